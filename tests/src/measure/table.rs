//! Rows of figures: Markdown for people and documents, one JSON object per row for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::measure::statistics::number;

/// One table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its name, stable over versions.
    name: String,
    /// What exactly was measured, from where to where.
    what: String,
    columns: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// What stands at one place.
#[derive(Debug, Clone)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A figure.
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
    /// For people.
    pub(crate) fn shown(&self) -> String {
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
    pub fn new(
        name: impl Into<String>,
        what: impl Into<String>,
        columns: &[impl AsRef<str>],
    ) -> Self {
        Self {
            name: name.into(),
            what: what.into(),
            columns: columns
                .iter()
                .map(|name| name.as_ref().to_owned())
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, a cell per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// As Markdown: heading, description, table, with its columns aligned.
    pub fn markdown(&self) -> String {
        let shown = |row: &Vec<Cell>| row.iter().map(Cell::shown).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(shown).collect();
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            let all = cells.chain(self.columns.get(column));
            all.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = format!("### `{}`\n\n{}\n\n", self.name, self.what);
        line(&mut text, &self.columns, &widths);
        for width in &widths {
            let _ = write!(text, "|{}", "-".repeat(width + 2));
        }
        text.push_str("|\n");
        for row in &rows {
            line(&mut text, row, &widths);
        }
        text
    }

    /// Each row as an object: its table, and each column's figure by the column's name.
    pub fn records(&self) -> Vec<Map<String, Value>> {
        self.rows
            .iter()
            .map(|row| {
                let cells = self.columns.iter().zip(row);
                let mut record: Map<String, Value> = cells
                    .map(|(column, cell)| (column.clone(), cell.json()))
                    .collect();
                record.insert("table".to_owned(), json!(self.name));
                record
            })
            .collect()
    }
}

fn line(text: &mut String, cells: &[String], widths: &[usize]) {
    for (cell, width) in cells.iter().zip(widths) {
        let _ = write!(text, "| {cell:width$} ");
    }
    text.push_str("|\n");
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
