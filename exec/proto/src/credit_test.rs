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
    let mut credit = Receiver::new(10);
    credit.charge(10).unwrap();
    assert_eq!(credit.charge(1), Err(CreditError));
    credit.release(1).unwrap();
    credit.charge(1).unwrap();
}

#[test]
fn releasing_more_than_is_outstanding_is_refused() {
    let mut credit = Receiver::new(10);
    credit.charge(3).unwrap();
    assert_eq!(credit.release(4), Err(CreditError));
    assert_eq!(credit.outstanding(), 3);
}

#[test]
fn releases_coalesce_into_one_total() {
    let mut credit = Receiver::new(10);
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
    };
    assert_eq!(receiver.charge(2), Err(CreditError));
}
