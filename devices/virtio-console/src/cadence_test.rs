use super::*;

const CLOSE: Duration = Duration::from_micros(30);

/// A guest that kicks `kicks` times.
struct Guest {
    kicks: u32,
    gap: Duration,
    /// What each kick carries.
    cost: usize,
    /// Whether something is placed towards it after each.
    placed: bool,
    /// Whether a loop that gets the ring finds a chain.
    found: bool,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            kicks: 1000,
            gap: CLOSE,
            cost: LARGE,
            placed: false,
            found: true,
        }
    }
}

fn hand_overs(guest: Guest) -> u32 {
    let mut cadence = Cadence::default();
    let mut now = Instant::now();
    let mut count = 0;
    for _ in 0..guest.kicks {
        now += guest.gap;
        let streaming = cadence.kick(now, guest.placed);
        cadence.served(guest.cost);
        if streaming {
            count += 1;
            cadence.handed_over(now);
            if guest.found {
                cadence.found();
            }
            cadence.given_back();
        }
    }
    count
}

#[test]
fn a_stream_is_handed_over_at_its_third_kick_and_from_then_on_at_every_kick() {
    for (cost, placed) in [(LARGE, false), (LARGE, true), (1, false)] {
        let stream = |kicks| {
            hand_overs(Guest {
                kicks,
                cost,
                placed,
                ..Guest::default()
            })
        };
        assert_eq!(stream(2), 0, "{cost} {placed}");
        assert_eq!(stream(3), 1, "{cost} {placed}");
        assert_eq!(stream(1000), 998, "{cost} {placed}");
    }
}

#[test]
fn kicks_far_apart_are_never_handed_over() {
    let gap = WINDOW * 2;
    assert_eq!(
        hand_overs(Guest {
            gap,
            ..Guest::default()
        }),
        0
    );
}

#[test]
fn small_kicks_in_turn_with_what_is_placed_are_never_handed_over() {
    let talk = Guest {
        cost: LARGE - 1,
        placed: true,
        ..Guest::default()
    };
    assert_eq!(hand_overs(talk), 0);
}

#[test]
fn hand_overs_in_vain_become_rare() {
    let count = hand_overs(Guest {
        gap: WINDOW / 2,
        found: false,
        ..Guest::default()
    });
    assert!((1..20).contains(&count), "{count} of 1000");
}

#[test]
fn a_look_lasts_as_long_as_three_wakes() {
    const LEAST: Duration = Duration::from_micros(20);
    let mut cadence = Cadence::default();
    let mut now = Instant::now();
    let mut look = |wake: u64| {
        cadence.handed_over(now);
        now += Duration::from_micros(wake);
        cadence.looked_at(now);
        // A ring of the doorbell for something else says nothing of wakes.
        now += Duration::from_secs(1);
        cadence.looked_at(now);
        cadence.look(LEAST).as_micros()
    };
    assert_eq!(Cadence::default().look(LEAST), LEAST);
    assert_eq!(look(5), 20);
    let after: Vec<_> = (0..40).map(|_| look(80)).collect();
    assert!(after.is_sorted(), "{after:?}");
    assert!((230..=240).contains(after.last().unwrap()), "{after:?}");
    // One that took long is not what they take.
    assert!((500..700).contains(&look(60_000)));
    // A host on which all do has better things to do.
    assert_eq!((0..40).map(|_| look(60_000)).last(), Some(20));
}

#[test]
fn a_hand_over_that_pays_after_many_in_vain_restores_the_patience_of_the_beginning() {
    let mut cadence = Cadence::default();
    let mut now = Instant::now();
    let mut until_hand_over = |cadence: &mut Cadence, finds: bool| {
        for kick in 1.. {
            now += CLOSE;
            if cadence.kick(now, false) {
                cadence.handed_over(now);
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
