//! Rows of figures: Markdown for people and documents, one JSON object per row for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::bench::report::number;

/// One table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    /// Its name, stable over versions.
    name: &'static str,
    /// What exactly was measured, from where to where.
    what: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// What stands at one place.
#[derive(Debug, Clone)]
pub(crate) enum Cell {
    Text(String),
    Number(f64),
    /// Not measured here.
    Nothing,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Nothing, Self::Number)
    }
}

impl Cell {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(value) => number(*value),
            Self::Nothing => "–".to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(value) => json!(value),
            Self::Nothing => Value::Null,
        }
    }
}

impl Table {
    /// One without rows.
    pub(crate) fn new(
        name: &'static str,
        what: impl Into<String>,
        columns: &[&'static str],
    ) -> Self {
        Self {
            name,
            what: what.into(),
            columns: columns.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, a cell per column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// As Markdown: heading, description, table.
    pub(crate) fn markdown(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(Cell::shown).collect())
            .collect();
        let mut text = format!("### `{}`\n\n{}\n\n", self.name, self.what);
        let rule = vec!["---"; self.columns.len()];
        line(&mut text, &self.columns);
        // Without spaces, as such rules are written.
        let _ = writeln!(text, "|{}|", rule.join("|"));
        for row in &rows {
            line(&mut text, row);
        }
        text
    }

    /// Each row as an object: its table, and each column's figure by the column's name.
    pub(crate) fn records(&self) -> Vec<Map<String, Value>> {
        self.rows
            .iter()
            .map(|row| {
                let cells = self.columns.iter().zip(row);
                let mut record: Map<String, Value> = cells
                    .map(|(column, cell)| ((*column).to_owned(), cell.json()))
                    .collect();
                record.insert("table".to_owned(), json!(self.name));
                record
            })
            .collect()
    }
}

fn line(text: &mut String, cells: &[impl AsRef<str>]) {
    for cell in cells {
        text.push_str("| ");
        text.push_str(cell.as_ref());
        text.push(' ');
    }
    text.push_str("|\n");
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
