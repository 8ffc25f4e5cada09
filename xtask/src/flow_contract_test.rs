//! `docs/flow-contract.md` names files, names in them, and tests: all of them must exist. So must the
//! tests that `docs/scenarios.md` names.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::workspace::root;

/// Rows of the tables with code and tests, as their cells.
fn rows(document: &str) -> Vec<[String; 3]> {
    document
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .filter_map(|line| {
            let mut cells = line
                .trim_matches('|')
                .split('|')
                .map(|c| c.trim().to_owned());
            let row = [cells.next()?, cells.next()?, cells.next()?];
            (row[0] != "rule").then_some(row)
        })
        .collect()
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The names of all tests in the Rust files below a directory.
fn tests_below(directory: &Path, found: &mut HashSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            tests_in(&fs::read_to_string(&path).unwrap(), found);
        }
    }
}

fn tests_in(source: &str, found: &mut HashSet<String>) {
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some((_, name)) = line.split_once("fn ")
            && std::mem::take(&mut is_test)
        {
            let end = name.find(['(', '<']).unwrap_or(name.len());
            found.insert(name[..end].to_owned());
        }
    }
}

/// Whether the source has the name as a word.
fn names(source: &str, name: &str) -> bool {
    source
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|word| word == name)
}

#[test]
fn the_flow_contract_names_only_what_exists() {
    let document = fs::read_to_string(root().join("docs/flow-contract.md")).unwrap();
    let mut tests = HashSet::new();
    tests_below(root(), &mut tests);
    let mut wrong = Vec::new();
    let rows = rows(&document);
    assert!(rows.len() > 90, "the tables were not read: {}", rows.len());
    for [rule, code, evidence] in &rows {
        let mut source = String::new();
        for quoted in quoted(code) {
            if quoted.ends_with(".rs") {
                source = fs::read_to_string(root().join(quoted)).unwrap_or_default();
            }
            if source.is_empty() || (!quoted.ends_with(".rs") && !names(&source, quoted)) {
                wrong.push(format!("{rule}: no code {quoted}"));
            }
        }
        let without = evidence.starts_with("not yet") || evidence.starts_with("no test: ");
        if without == quoted(evidence).next().is_some() || (code.is_empty() && !without) {
            wrong.push(format!("{rule}: either tests, or why there are none"));
        }
        for test in quoted(evidence).filter(|test| !tests.contains(*test)) {
            wrong.push(format!("{rule}: no test {test}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_scenarios_name_only_tests_that_exist() {
    let document = fs::read_to_string(root().join("docs/scenarios.md")).unwrap();
    let mut tests = HashSet::new();
    tests_below(root(), &mut tests);
    let mut read = 0;
    for line in document.lines().filter(|line| line.starts_with("| B")) {
        let last = line.trim_end_matches([' ', '|']).rsplit('|').next();
        let named: Vec<_> = last.into_iter().flat_map(quoted).collect();
        assert!(!named.is_empty(), "no test: {line}");
        for test in named {
            assert!(tests.contains(test), "no test {test}: {line}");
        }
        read += 1;
    }
    assert!(read > 30, "the table was not read: {read}");
}

#[test]
fn a_test_is_told_from_other_functions() {
    let source = "fn helper() {}\n#[test]\n#[allow(x)]\nfn real() {}\nfn after() {}\n\
                  #[tokio::test(flavor = \"y\")]\nasync fn other<T>() {}";
    let mut found = HashSet::new();
    tests_in(source, &mut found);
    assert_eq!(
        found,
        HashSet::from(["real".to_owned(), "other".to_owned()])
    );
}
