use super::*;

fn milliseconds(time: u64) -> Duration {
    Duration::from_millis(time)
}

#[test]
fn a_price_is_what_was_spent_between_per_mebibyte() {
    let cpu = |vcpus, host| Cpu {
        vcpus: milliseconds(vcpus),
        host: milliseconds(host),
    };
    let frames = |from_guest, to_guest| Frames {
        from_guest,
        to_guest,
    };
    let before = (cpu(10, 100), frames(3, 5));
    let after = (cpu(30, 110), frames(131, 9));
    let price = Price::between(2 * MIB, before, after);
    assert_eq!((price.vcpus, price.host), (10.0, 5.0));
    assert_eq!((price.from_guest, price.to_guest), (64.0, 2.0));
}

#[test]
fn the_time_of_this_process_is_told_and_goes_on() {
    let before = Cpu::now().unwrap();
    for number in 0..100_000 {
        std::hint::black_box(number);
    }
    let after = Cpu::now().unwrap();
    assert!(after.host > before.host);
    assert_eq!(after.vcpus, before.vcpus);
}
