//! A table of measured runs: CSV (RFC 4180) with a header, one training step a row. Columns are found by name, so their
//! order is free and unknown ones are ignored; an empty cell is unknown. The invariant: every row has as many cells as the
//! header, and an id of its own.

use crate::Failure;
use std::collections::{BTreeMap, BTreeSet};

/// Columns without which a table says nothing.
const REQUIRED: [&str; 4] = ["id", "gpu", "n_gpus", "iter_time_s"];

/// One measured run.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Line of the file that it starts on, from 1.
    pub line: usize,
    cells: BTreeMap<String, String>,
}

impl Row {
    /// A row of these cells.
    pub fn new(line: usize, cells: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { line, cells: cells.into_iter().collect() }
    }
    /// What stands in a column; empty where the table has none.
    pub fn text(&self, column: &str) -> &str {
        self.cells.get(column).map_or("", |c| c.trim())
    }
    /// The row's name.
    pub fn id(&self) -> &str {
        self.text("id")
    }
    /// A whole number, if the cell holds one above 0.
    pub fn count(&self, column: &str) -> Option<u64> {
        self.number(column).filter(|x| x.fract() == 0.0 && (1.0..=1e15).contains(x)).map(|x| x as u64)
    }
    /// A number above 0, if the cell holds one.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.text(column).parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0)
    }
}

/// Reads the table `text`, the content of `file`.
pub fn read(file: &str, text: &str) -> Result<Vec<Row>, Failure> {
    let records = records(file, text.strip_prefix('\u{feff}').unwrap_or(text))?;
    let mut records = records.into_iter();
    let fix = "write a header and one row a run, as in docs/validation.md";
    let (_, header) = records.next().ok_or_else(|| Failure::new(format!("{file} is empty"), fix))?;
    let header: Vec<String> = header.into_iter().map(|h| h.trim().to_string()).collect();
    if let Some(missing) = REQUIRED.iter().find(|r| !header.iter().any(|h| h == *r)) {
        let message = format!("{file}, line 1: there is no column `{missing}`");
        return Err(Failure::new(message, format!("add it; columns needed: {}", REQUIRED.join(", "))));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = header.iter().find(|h| !names.insert(*h)) {
        return Err(Failure::new(format!("{file}, line 1: two columns `{twice}`"), "rename or drop one"));
    }
    let mut rows = vec![];
    let mut ids = BTreeSet::new();
    for (line, cells) in records {
        if cells.len() != header.len() {
            let message =
                format!("{file}, line {line}: {} cells under {} columns", cells.len(), header.len());
            return Err(Failure::new(message, "write one cell a column, in quotes where it has a comma"));
        }
        let row = Row::new(line, header.iter().cloned().zip(cells));
        if row.id().is_empty() || !ids.insert(row.id().to_string()) {
            let message = format!("{file}, line {line}: id `{}` is empty or taken", row.id());
            return Err(Failure::new(message, "give every row an id of its own"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Records with the line each starts on; lines without any text are none.
fn records(file: &str, text: &str) -> Result<Vec<(usize, Vec<String>)>, Failure> {
    let mut records = vec![];
    let (mut record, mut cell) = (vec![], String::new());
    let (mut line, mut start, mut quoted, mut any) = (1, 1, false, false);
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        line += usize::from(c == '\n');
        match (c, quoted) {
            ('"', true) if characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            ('"', true) => quoted = false,
            ('"', false) if cell.is_empty() => (quoted, any) = (true, true),
            (',', false) => {
                record.push(std::mem::take(&mut cell));
                any = true;
            }
            ('\r', false) if characters.peek() == Some(&'\n') => {}
            ('\n', false) => {
                if any || !cell.trim().is_empty() {
                    record.push(std::mem::take(&mut cell));
                    records.push((start, std::mem::take(&mut record)));
                }
                cell.clear();
                (start, any) = (line, false);
            }
            (c, _) => cell.push(c),
        }
    }
    if quoted {
        let message = format!("{file}, line {start}: a quote that never closes");
        return Err(Failure::new(message, "close it, and write a quote within quotes twice"));
    }
    if any || !cell.trim().is_empty() {
        record.push(cell);
        records.push((start, record));
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas_lines_and_quotes() {
        let text = "id,gpu,n_gpus,iter_time_s,notes\r\nR1,A100,8,1.5,\"a, \"\"b\"\"\nc\"\n\nR2,,16,2,\n";
        let rows = read("t.csv", text).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].text("notes"), rows[0].count("n_gpus")), ("a, \"b\"\nc", Some(8)));
        assert_eq!((rows[1].line, rows[1].text("gpu"), rows[1].number("iter_time_s")), (5, "", Some(2.0)));
    }

    #[test]
    fn a_malformed_table_is_refused_by_line() {
        let head = "id,gpu,n_gpus,iter_time_s\n";
        for (text, what) in [
            ("", "empty"),
            ("id,gpu,n_gpus\n", "no column `iter_time_s`"),
            ("id,gpu,n_gpus,iter_time_s,gpu\n", "two columns `gpu`"),
            (&format!("{head}R1,A,1\n"), "line 2: 3 cells under 4"),
            (&format!("{head}R1,A,1,1\nR1,A,1,1\n"), "line 3: id `R1`"),
            (&format!("{head}R1,\"A,1,1\n"), "line 2: a quote"),
        ] {
            let message = read("t.csv", text).unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        }
    }
}
