use alloc::vec::Vec;
use core::time::Duration;

use super::*;
use crate::message::{decode, encode};

fn stays<T>(body: &T, bytes: &[u8])
where
    T: Encode<()> + for<'b> Decode<'b, ()> + PartialEq + core::fmt::Debug,
{
    assert_eq!(encode(body), Vec::from(bytes));
    assert_eq!(decode::<T>(bytes).as_ref(), Some(body));
}

#[test]
fn the_bytes_of_leaving_and_adopting_are_what_they_were() {
    let second = Duration::from_secs;
    stays(&Leave { timeout: None }, b"\xa0");
    let timeout = Some(Timeout {
        limit: second(5),
        left: second(1),
        at_start: second(5),
    });
    stays(
        &Leave { timeout },
        b"\xa1\x00\xa3\x00\x82\x05\x00\x01\x82\x01\x00\x02\x82\x05\x00",
    );
    let adopted = Adopted {
        pid: Some(7),
        stdin_open: true,
        stdin_accepted: 5,
        stdout_consumed: 6,
        ..Adopted::default()
    };
    stays(
        &adopted,
        b"\xa6\x00\x07\x01\xf4\x02\xf5\x04\x05\x05\x06\x06\x00",
    );
    let status = ExitStatus {
        signal: Some(9),
        duration_us: 5,
        ..ExitStatus::default()
    };
    let limit = second(5);
    stays(
        &TimedOut { limit, status },
        b"\xa2\x00\x82\x05\x00\x01\xa2\x01\x09\x02\x05",
    );
}

#[test]
fn what_a_newer_end_says_beside_it_is_skipped() {
    assert_eq!(decode(b"\xa1\x09\x01"), Some(Leave::default()));
}
