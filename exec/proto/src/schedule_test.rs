use alloc::vec::Vec;

use super::*;

fn id(n: u64) -> ExecId {
    ExecId::new(n).unwrap()
}

/// Runs the scheduler dry; slots in `busy` always have another frame.
fn order(schedule: &mut Scheduler<u32>, turns: usize, busy: bool) -> Vec<Turn<u32>> {
    let mut out = Vec::new();
    for _ in 0..turns {
        match schedule.next_turn() {
            Some(Turn::Slot(slot)) => {
                if busy {
                    schedule.push_slot(slot);
                }
                out.push(Turn::Slot(slot));
            }
            Some(turn) => out.push(turn),
            None => break,
        }
    }
    out
}

#[test]
fn a_control_waits_for_at_most_one_data_frame() {
    let mut schedule = Scheduler::new();
    for n in 1..=8 {
        schedule.push_slot(Slot::Exec(id(n)));
    }
    // At every possible moment of a busy channel, a fresh control departs after at most one
    // more data frame.
    for warm_up in 0..40 {
        let _ = order(&mut schedule, warm_up, true);
        schedule.push_control(7).unwrap();
        let turns = order(&mut schedule, 2, true);
        assert!(
            turns.contains(&Turn::Control(7)),
            "after {warm_up} turns: {turns:?}"
        );
    }
}

#[test]
fn controls_cannot_starve_data() {
    let mut schedule = Scheduler::new();
    schedule.push_slot(Slot::Exec(id(1)));
    let mut data = 0;
    for turn in 0..100 {
        while schedule.push_control(turn).is_ok() {}
        if let Some(Turn::Slot(slot)) = schedule.next_turn() {
            data += 1;
            schedule.push_slot(slot);
        }
    }
    assert_eq!(data, 20, "one data frame for every four controls");
}

#[test]
fn acks_of_a_round_go_once_each_and_do_not_hold_up_controls() {
    let mut schedule = Scheduler::new();
    schedule.push_slot(Slot::Exec(id(9)));
    schedule.push_ack(id(1));
    schedule.push_ack(id(2));
    schedule.push_control(5).unwrap();
    let mut seen = Vec::new();
    for _ in 0..8 {
        let turn = schedule.next_turn().unwrap();
        match &turn {
            // A reader that releases again at once.
            Turn::Ack(id) => schedule.push_ack(*id),
            Turn::Slot(slot) => schedule.push_slot(*slot),
            Turn::Control(_) => {}
        }
        seen.push(turn);
    }
    let control = seen.iter().position(|t| *t == Turn::Control(5)).unwrap();
    assert!(
        control <= 3,
        "the control came at place {control}: {seen:?}"
    );
}

#[test]
fn slots_take_turns() {
    let mut schedule: Scheduler<u32> = Scheduler::new();
    for n in 1..=3 {
        schedule.push_slot(Slot::Exec(id(n)));
    }
    let turns = order(&mut schedule, 6, true);
    let ids: Vec<u64> = turns
        .iter()
        .map(|t| match t {
            Turn::Slot(Slot::Exec(id)) => id.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [1, 2, 3, 1, 2, 3]);
}

#[test]
fn the_control_queue_refuses_the_seventeenth() {
    let mut schedule = Scheduler::new();
    for n in 0..CONTROL_QUEUE {
        schedule.push_control(n).unwrap();
    }
    assert_eq!(schedule.push_control(99), Err(Full));
    assert_eq!(
        schedule.controls(),
        CONTROL_QUEUE,
        "a refused control drops nothing"
    );
}
