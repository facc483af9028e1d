//! Answer of a command: tables and the assumptions, as text, or as JSON with full digits in base units.

use super::picture::Picture;
use command_line::quantity::seconds_text;
use say::columns::aligned;
use serde_json::{Map, Value, json};
use std::fmt::Write;

pub(super) struct Answer {
    pub(super) tables: Vec<AnswerTable>,
    /// Assumptions, and hints for the next step.
    pub(super) notes: Vec<String>,
    pub(super) picture: Option<Picture>,
}

pub(super) struct AnswerTable {
    pub(super) title: String,
    /// Name in JSON, which includes the unit, and heading of each column.
    pub(super) columns: Vec<(&'static str, &'static str)>,
    pub(super) rows: Vec<Vec<Cell>>,
}

pub(super) struct Cell {
    value: Value,
    text: String,
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { value: Value::String(text.clone()), text }
    }

    pub(super) fn number(value: f64, decimals: usize) -> Self {
        let text = if value.is_finite() { format!("{value:.decimals$}") } else { "never".into() };
        Self { value: json!(value), text }
    }

    pub(super) fn count(value: impl Into<u64>) -> Self {
        let value = value.into();
        Self { value: json!(value), text: value.to_string() }
    }

    pub(super) fn share(value: f64) -> Self {
        let percent = value * 100.0;
        let text = match percent {
            0.0 => "0 %".into(),
            small if small < 0.01 => format!("{percent:.1e} %"),
            _ => format!("{percent:.2} %"),
        };
        Self { value: json!(value), text }
    }

    pub(super) fn tiny(value: f64) -> Self {
        Self { value: json!(value), text: if value == 0.0 { "0".into() } else { format!("{value:.2e}") } }
    }

    pub(super) fn seconds(value: f64) -> Self {
        Self { value: json!(value), text: seconds_text(value) }
    }

    pub(super) fn bytes(value: f64) -> Self {
        let (mut shown, mut unit) = (value, 0);
        let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
        while shown >= 1000.0 && unit + 1 < units.len() {
            (shown, unit) = (shown / 1000.0, unit + 1);
        }
        Self { value: json!(value), text: format!("{shown:.1} {}", units[unit]) }
    }

    pub(super) fn absent() -> Self {
        Self { value: Value::Null, text: "-".into() }
    }

    pub(super) fn or_absent(cell: Option<Self>) -> Self {
        cell.unwrap_or_else(Self::absent)
    }
}

impl Answer {
    pub(super) fn new(tables: Vec<AnswerTable>) -> Self {
        Self { tables, notes: Vec::new(), picture: None }
    }

    pub(super) fn to_json(&self) -> Value {
        let row = |table: &AnswerTable, cells: &Vec<Cell>| {
            let pairs = table.columns.iter().zip(cells).map(|((key, _), cell)| ((*key).to_owned(), cell.value.clone()));
            Value::Object(pairs.collect::<Map<_, _>>())
        };
        let tables = self.tables.iter().map(|table| {
            let rows: Vec<_> = table.rows.iter().map(|cells| row(table, cells)).collect();
            json!({"title": table.title, "rows": rows})
        });
        json!({"tables": tables.collect::<Vec<_>>(), "notes": self.notes})
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            table.write(&mut text);
            text.push('\n');
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

impl AnswerTable {
    fn write(&self, text: &mut String) {
        let _ = writeln!(text, "{}", self.title);
        // Text is aligned to the left, figures to the right.
        let is_left: Vec<_> =
            (0..self.columns.len()).map(|column| self.rows.iter().all(|row| row[column].value.is_string())).collect();
        let headings = self.columns.iter().map(|(_, heading)| *heading).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
        let lines: Vec<_> = std::iter::once(headings).chain(rows).collect();
        for line in aligned(&lines, &is_left) {
            let _ = writeln!(text, "  {line}");
        }
    }
}
