use super::*;

/// A guest that kicks every `gap`, served by a loop that finds something or does not.
fn hand_overs(kicks: u32, gap: Duration, loop_finds: bool, answered: bool) -> u32 {
    let mut cadence = Cadence::default();
    let mut now = Instant::now();
    let mut count = 0;
    for _ in 0..kicks {
        now += gap;
        if cadence.kick(now) {
            count += 1;
            cadence.handed_over();
            if loop_finds {
                cadence.found();
            }
            cadence.given_back();
        } else if answered {
            cadence.start_anew();
        }
    }
    count
}

const CLOSE: Duration = Duration::from_micros(30);

#[test]
fn a_stream_is_handed_over_at_its_third_kick_and_from_then_on_at_every_kick() {
    assert_eq!(hand_overs(2, CLOSE, true, false), 0);
    assert_eq!(hand_overs(3, CLOSE, true, false), 1);
    assert_eq!(hand_overs(1000, CLOSE, true, false), 998);
}

#[test]
fn kicks_far_apart_are_never_handed_over() {
    assert_eq!(hand_overs(1000, WINDOW * 2, true, false), 0);
}

#[test]
fn kicks_that_are_answered_at_once_are_never_handed_over() {
    assert_eq!(hand_overs(1000, CLOSE, true, true), 0);
}

#[test]
fn hand_overs_in_vain_become_rare() {
    let count = hand_overs(1000, Duration::from_micros(500), false, false);
    assert!((1..20).contains(&count), "{count} of 1000");
}

#[test]
fn a_hand_over_that_pays_after_many_in_vain_restores_the_patience_of_the_beginning() {
    let mut cadence = Cadence::default();
    let mut now = Instant::now();
    let mut until_hand_over = |cadence: &mut Cadence, finds: bool| {
        for kick in 1.. {
            now += CLOSE;
            if cadence.kick(now) {
                cadence.handed_over();
                if finds {
                    cadence.found();
                }
                cadence.given_back();
                return kick;
            }
        }
        unreachable!()
    };
    let waits: Vec<u32> = (0..8)
        .map(|_| until_hand_over(&mut cadence, false))
        .collect();
    assert_eq!(waits, [3, 6, 12, 24, 48, 96, 96, 96]);
    assert_eq!(until_hand_over(&mut cadence, true), 96);
    assert_eq!(until_hand_over(&mut cadence, false), 1);
    assert_eq!(until_hand_over(&mut cadence, false), 6);
}
