use std::collections::VecDeque;

use super::*;

/// Plays the server's part: answers the command by its meaning and counts.
#[derive(Default)]
struct Served {
    sent: Vec<u8>,
    available: VecDeque<u64>,
}

impl Port for Served {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.sent.extend_from_slice(bytes);
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        self.available.push_back(bytes);
        Ok(())
    }
}

#[test]
fn a_write_is_asked_for_and_waited_for_to_the_last_byte() {
    let mut port = Served::default();
    let rate = write_rate(&mut port, 16384, 1 << 20).unwrap();
    assert!(rate > 0.0);
    assert_eq!(port.sent.len(), COMMAND);
    assert_eq!(port.sent[0], b'w');
    assert_eq!(port.sent[4..8], 16384_u32.to_le_bytes());
    assert_eq!(port.sent[8..16], (1_u64 << 20).to_le_bytes());
    assert_eq!(port.available, [1 << 20]);
}

#[test]
fn a_read_sends_all_bytes_and_waits_for_the_answer() {
    let mut port = Served::default();
    let amount = (64 << 10) + 100;
    read_rate(&mut port, amount).unwrap();
    assert_eq!(port.sent[0], b'r');
    assert_eq!(port.sent.len() as u64, COMMAND as u64 + amount);
    assert_eq!(port.available, [RECORD]);
}

#[test]
fn an_echo_waits_for_each_byte_before_it_sends_the_next() {
    let mut port = Served::default();
    let times = echo_times(&mut port, 3).unwrap();
    assert_eq!(times.len(), 3);
    assert_eq!(port.sent.len(), COMMAND + 3);
    assert_eq!(port.available, [1, 1, 1]);
}
