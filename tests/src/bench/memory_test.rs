use super::*;

const SMAPS: &str = "\
55d0a0000000-55d0a0100000 r-xp 00000000 00:1f 12 /usr/bin/program
Size:               1024 kB
KernelPageSize:        4 kB
Rss:                 600 kB
Pss:                 600 kB
7f0000000000-7f0010000000 rw-p 00000000 00:00 0
Size:             262144 kB
Rss:               40000 kB
7f0020000000-7f0020021000 rw-p 00000000 00:00 0
Size:                132 kB
Rss:                  44 kB
";

#[test]
fn the_guests_memory_is_left_out_and_all_else_is_counted() {
    assert_eq!(resident_beside(SMAPS, 262_144), 644);
}

#[test]
fn without_a_guest_everything_is_counted() {
    assert_eq!(resident_beside(SMAPS, 262_145), 40_644);
}
