use super::*;

#[test]
fn a_sender_never_passes_its_limit() {
    let mut credit = Sender::new(10);
    credit.charge(7).unwrap();
    assert_eq!(credit.charge(4), Err(CreditError));
    assert_eq!(credit.available(), 3, "a refused charge changes nothing");
    credit.charge(3).unwrap();
    assert_eq!(credit.available(), 0);
}

#[test]
fn a_repeated_total_frees_nothing() {
    let mut credit = Sender::new(10);
    credit.charge(10).unwrap();
    assert_eq!(credit.acknowledge(4), Ok(4));
    assert_eq!(credit.acknowledge(4), Ok(0));
    assert_eq!(credit.available(), 4);
}

#[test]
fn totals_going_back_or_beyond_what_was_sent_are_refused() {
    let mut credit = Sender::new(10);
    credit.charge(6).unwrap();
    credit.acknowledge(5).unwrap();
    assert_eq!(credit.acknowledge(4), Err(CreditError));
    assert_eq!(credit.acknowledge(7), Err(CreditError));
    assert_eq!((credit.acked(), credit.outstanding()), (5, 1));
}

#[test]
fn a_receiver_refuses_one_unit_over_the_allowance() {
    let mut credit = Receiver::telling_all(10);
    credit.charge(10).unwrap();
    assert_eq!(credit.charge(1), Err(CreditError));
    credit.release(1).unwrap();
    credit.charge(1).unwrap();
}

#[test]
fn releasing_more_than_is_outstanding_is_refused() {
    let mut credit = Receiver::telling_all(10);
    credit.charge(3).unwrap();
    assert_eq!(credit.release(4), Err(CreditError));
    assert_eq!(credit.outstanding(), 3);
}

#[test]
fn releases_coalesce_into_one_total() {
    let mut credit = Receiver::telling_all(10);
    credit.charge(5).unwrap();
    assert!(!credit.due());
    credit.release(2).unwrap();
    credit.release(3).unwrap();
    assert!(credit.due());
    assert_eq!(credit.say(), 5);
    assert!(!credit.due(), "a total is said once");
}

#[test]
fn a_total_that_would_pass_the_counter_is_refused() {
    let mut sender = Sender {
        limit: 10,
        sent: u64::MAX - 1,
        acked: u64::MAX - 1,
    };
    assert_eq!(sender.charge(2), Err(CreditError));
    let mut receiver = Receiver {
        limit: 10,
        received: u64::MAX - 1,
        released: u64::MAX - 1,
        said: 0,
        batch: 0,
        urgent: 0,
    };
    assert_eq!(receiver.charge(2), Err(CreditError));
}

#[test]
fn nearly_half_of_the_window_is_said_together() {
    let mut credit = Receiver::new(1600, 1);
    credit.charge(699).unwrap();
    credit.release(699).unwrap();
    assert!(!credit.due(), "the sender has 901 left");
    credit.charge(1).unwrap();
    credit.release(1).unwrap();
    assert!(credit.due());
    assert_eq!(credit.say(), 700);
    assert!(!credit.due());
}

#[test]
fn a_receiver_that_takes_half_a_window_with_its_headers_says_so() {
    // A turn of the guest's agent: half of the window in bytes on the wire.
    let mut credit = Receiver::new(64 << 10, 1);
    let payload = (32 << 10) - 2 * crate::HEADER_LEN as u64;
    credit.charge(payload).unwrap();
    credit.release(payload).unwrap();
    assert!(credit.due());
}

#[test]
fn every_release_is_said_while_the_sender_has_an_eighth_left() {
    let mut credit = Receiver::new(1000, 1);
    credit.charge(874).unwrap();
    credit.release(437).unwrap();
    assert!(!credit.due(), "the sender has 126 left");
    credit.charge(1).unwrap();
    assert!(credit.due(), "a charge can make a total due");
    credit.say();
    credit.charge(437).unwrap();
    credit.release(1).unwrap();
    assert!(credit.due());
}

#[test]
fn a_sender_that_is_stuck_hears_of_every_release_at_once() {
    // Every window and every least charge: whatever the receiver holds when the sender can send
    // nothing more, one unit released is said.
    for limit in 1..60 {
        for least in 1..=limit {
            let mut sender = Sender::new(limit);
            let mut receiver = Receiver::new(limit, least);
            for _ in 0..200 {
                while sender.available() >= u64::from(least) {
                    sender.charge(u64::from(least)).unwrap();
                    receiver.charge(u64::from(least)).unwrap();
                }
                receiver.release(1).unwrap();
                assert!(receiver.due(), "limit {limit}, least {least}");
                sender.acknowledge(receiver.say()).unwrap();
            }
        }
    }
}

#[test]
fn a_receiver_knows_what_it_can_take_and_what_it_has_promised() {
    let mut window = Receiver::new(100, 1);
    window.charge(80).unwrap();
    assert_eq!((window.available(), window.promised()), (20, 20));
    window.release(50).unwrap();
    assert_eq!((window.available(), window.promised()), (70, 20));
    assert_eq!(window.say(), 50);
    assert_eq!((window.said(), window.promised()), (50, 70));
}

#[test]
fn a_sender_that_is_told_nothing_is_bounded_all_the_same_and_waits_for_nothing() {
    let mut window = Receiver::telling_nothing(100);
    for _ in 0..10 {
        window.charge(100).unwrap();
        assert_eq!(window.charge(1), Err(CreditError));
        window.release(100).unwrap();
        assert!(!window.due());
        assert_eq!((window.available(), window.promised()), (100, 100));
    }
}

#[test]
fn a_sender_without_bounds_never_waits() {
    let mut credit = Sender::unbounded();
    for _ in 0..10 {
        credit.charge(u64::from(u32::MAX)).unwrap();
        assert!(credit.available() > u64::from(u32::MAX));
    }
}

#[test]
fn nothing_is_due_to_a_sender_that_is_gone() {
    let mut credit = Receiver::telling_all(10);
    credit.charge(8).unwrap();
    credit.release(2).unwrap();
    assert!(credit.due());
    credit.hush();
    assert!(!credit.due());
    credit.release(6).unwrap();
    assert!(!credit.due(), "nor is what is read later");
}
