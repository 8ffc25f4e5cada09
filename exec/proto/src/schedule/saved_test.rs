use alloc::vec;

use super::*;
use crate::schedule::Turn;

fn id(n: u64) -> ExecId {
    ExecId::new(n).unwrap()
}

fn busy() -> Scheduler<u32> {
    let mut schedule = Scheduler::new();
    for n in 1..=6 {
        schedule.push_ack(id(n));
        schedule.push_slot(Slot::Exec(id(n)));
        schedule.push_control(u32::try_from(n).unwrap()).unwrap();
    }
    schedule
}

#[test]
fn a_restored_order_goes_on_at_the_same_place_of_the_round() {
    // Six acknowledgements, four controls and a slot are one round.
    for taken in 0..=12 {
        let mut original = busy();
        for _ in 0..taken {
            original.next_turn().unwrap();
        }
        let (order, controls) = original.save();
        let mut restored = Scheduler::restore(&order, controls, |_| true).unwrap();
        // What comes now waits for the next round at both.
        original.push_ack(id(9));
        restored.push_ack(id(9));
        loop {
            let turn = original.next_turn();
            assert_eq!(restored.next_turn(), turn, "after {taken}");
            if turn.is_none() {
                break;
            }
        }
    }
}

#[test]
fn the_bytes_of_a_saved_order_are_what_they_were() {
    let phases: [(_, &[u8]); 4] = [
        (SavedPhase::Begin, &[0x82, 0, 0x80]),
        (SavedPhase::Acks { left: 3 }, &[0x82, 1, 0x81, 3]),
        (SavedPhase::Controls { left: 2 }, &[0x82, 2, 0x81, 2]),
        (SavedPhase::Slot, &[0x82, 3, 0x80]),
    ];
    for (phase, golden) in phases {
        let order = Order {
            acks: vec![id(1)],
            slots: vec![id(2)],
            phase,
        };
        let bytes = crate::message::encode(&order);
        assert_eq!(bytes, [&[0x83, 0x81, 1, 0x81, 2], golden].concat());
    }
}

#[test]
fn an_ack_that_leaves_the_line_lets_no_later_one_into_its_round() {
    let mut schedule: Scheduler<u32> = Scheduler::new();
    for n in 1..=3 {
        schedule.push_ack(id(n));
    }
    schedule.push_slot(Slot::Exec(id(7)));
    assert_eq!(schedule.next_turn(), Some(Turn::Ack(id(1))));
    schedule.remove(id(2));
    schedule.push_ack(id(4));
    assert_eq!(schedule.next_turn(), Some(Turn::Ack(id(3))));
    assert_eq!(schedule.next_turn(), Some(Turn::Slot(Slot::Exec(id(7)))));
    assert_eq!(schedule.next_turn(), Some(Turn::Ack(id(4))));
}

#[test]
fn an_order_that_no_scheduler_had_is_refused() {
    let (good, controls) = busy().save();
    let refused = |order: &Order, controls| {
        Scheduler::restore(order, controls, |known| known.get() <= 6).unwrap_err()
    };
    let mut order = good.clone();
    order.acks.push(id(1));
    assert!(refused(&order, controls.clone()).contains("twice"));
    let mut order = good.clone();
    order.slots.push(id(7));
    assert!(refused(&order, controls.clone()).contains("that there is not"));
    let mut order = good.clone();
    order.phase = SavedPhase::Acks { left: 7 };
    assert!(refused(&order, controls.clone()).contains("acknowledgements left"));
    order.phase = SavedPhase::Acks { left: u64::MAX };
    assert!(refused(&order, controls.clone()).contains("acknowledgements left"));
    order.phase = SavedPhase::Controls { left: 5 };
    assert!(refused(&order, controls).contains("controls left"));
    assert!(refused(&good, vec![0; CONTROL_QUEUE + 1]).contains("controls are in line"));
}
