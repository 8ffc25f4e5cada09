use super::{MIB, leave_room, meminfo, memory_limit};

#[test]
fn the_agent_keeps_a_reserve_of_memory() {
    assert_eq!(memory_limit(240 * MIB, 200 * MIB), 188 * MIB);
    assert_eq!(memory_limit(60 * MIB, 40 * MIB), 32 * MIB);
    // In a guest too small for the reserve, half.
    assert_eq!(memory_limit(20 * MIB, 10 * MIB), 5 * MIB);
}

#[test]
fn figures_of_meminfo_are_read_by_their_whole_name() {
    let text = "MemTotal:         246228 kB\nMemFree:    7 kB\nMemAvailable:   200 kB\nHuge:  5\n";
    assert_eq!(meminfo(text, "MemTotal:"), Some(246_228 * 1024));
    assert_eq!(meminfo(text, "MemAvailable:"), Some(200 * 1024));
    assert_eq!(meminfo(text, "Available:"), None);
    assert_eq!(meminfo(text, "Huge:"), None);
}

#[test]
fn the_agent_keeps_room_for_processes() {
    assert_eq!(leave_room(32_768), 28_672);
    assert_eq!(leave_room(128), 96);
    assert_eq!(leave_room(40), 20);
}
