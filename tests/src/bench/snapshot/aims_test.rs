use super::*;

/// Which of a growth that is at its aim and a time beyond it are told, and whether they are met.
fn told(mut aims: Aims) -> Vec<(String, String)> {
    aims.growth("growth".to_owned(), 1.1, 1.1);
    aims.time("time".to_owned(), 31.0, 30.0);
    let records = aims.table().records();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &serde_json::Map<_, _>| (text(&row["figure"]), text(&row[""]));
    records.iter().map(row).collect()
}

fn pair(what: &str, met: &str) -> (String, String) {
    (what.to_owned(), met.to_owned())
}

#[test]
fn each_clock_tells_what_it_can_where_it_is() {
    let growth = [pair("growth", "met")];
    assert_eq!(told(Aims::of(Clock::Instructions, true)), growth);
    assert_eq!(told(Aims::of(Clock::Wall, false)), growth);
    let time = [pair("time", "not met")];
    assert_eq!(told(Aims::of(Clock::Wall, true)), time);
}
