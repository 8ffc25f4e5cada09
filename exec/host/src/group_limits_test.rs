use super::GroupLimits;

/// Refused, with this message.
fn refusal(limits: GroupLimits) -> String {
    limits.check().unwrap_err().to_string()
}

#[test]
fn limits_that_cannot_work_are_refused_by_field_value_and_bound() {
    let none = GroupLimits::default;
    for bytes in [0, (1 << 20) - 1] {
        let limits = GroupLimits {
            memory_limit: Some(bytes),
            ..none()
        };
        let expected = format!("memory_limit is {bytes}, it must be at least 1048576 bytes");
        assert_eq!(refusal(limits), expected);
    }
    for most in [0, (1 << 22) + 1, u32::MAX] {
        let limits = GroupLimits {
            process_limit: Some(most),
            ..none()
        };
        let expected = format!("process_limit is {most}, it must be 1 to 4194304");
        assert_eq!(refusal(limits), expected);
    }
    for weight in [0, 10_001, u16::MAX] {
        let limits = GroupLimits {
            cpu_weight: Some(weight),
            ..none()
        };
        let expected = format!("cpu_weight is {weight}, it must be 1 to 10000");
        assert_eq!(refusal(limits), expected);
    }
    let cpus = [
        0.0,
        -1.0,
        0.009,
        1024.1,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    for cpus in cpus {
        let limits = GroupLimits {
            cpu_limit: Some(cpus),
            ..none()
        };
        let expected = format!("cpu_limit is {cpus}, it must be 0.01 to 1024 CPUs");
        assert_eq!(refusal(limits), expected);
    }
}

#[test]
fn the_bounds_themselves_pass_and_cpus_become_microseconds() {
    let least = GroupLimits {
        memory_limit: Some(1 << 20),
        process_limit: Some(1),
        cpu_weight: Some(1),
        cpu_limit: Some(0.01),
    };
    let least = least.check().unwrap();
    assert_eq!((least.memory, least.pids), (Some(1 << 20), Some(1)));
    assert_eq!((least.cpu_weight, least.cpu_quota), (Some(1), Some(1_000)));
    let most = GroupLimits {
        memory_limit: Some(u64::MAX),
        process_limit: Some(1 << 22),
        cpu_weight: Some(10_000),
        cpu_limit: Some(1024.0),
    };
    let most = most.check().unwrap();
    assert_eq!((most.memory, most.pids), (Some(u64::MAX), Some(1 << 22)));
    assert_eq!(
        (most.cpu_weight, most.cpu_quota),
        (Some(10_000), Some(102_400_000))
    );
    for (cpus, quota) in [(0.29, 29_000), (1.5, 150_000), (2.000_004, 200_000)] {
        let limits = GroupLimits {
            cpu_limit: Some(cpus),
            ..GroupLimits::default()
        };
        assert_eq!(limits.check().unwrap().cpu_quota, Some(quota));
    }
    assert_eq!(
        GroupLimits::default().check(),
        Ok(forebay_exec_proto::Resources::default())
    );
}
