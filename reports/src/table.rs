//! Tables: every chart has one behind it. Columns of numbers are right-aligned with tabular figures; a table wider than
//! the screen scrolls inside its own box, never the page.

use maud::{Markup, Render, html};

/// A table under construction.
pub(crate) struct Table {
    caption: String,
    columns: Vec<(String, &'static str)>,
    rows: Vec<Vec<Markup>>,
    note: Option<String>,
}

impl Table {
    /// A table that says what it shows.
    pub(crate) fn new(caption: impl Into<String>) -> Self {
        Self { caption: caption.into(), columns: Vec::new(), rows: Vec::new(), note: None }
    }
    /// A column of sentences, which may wrap.
    pub(crate) fn words(mut self, head: impl Into<String>) -> Self {
        self.columns.push((head.into(), "w"));
        self
    }
    /// A column of short names, which stay on one line.
    pub(crate) fn labels(mut self, head: impl Into<String>) -> Self {
        self.columns.push((head.into(), "l"));
        self
    }
    /// A column of numbers.
    pub(crate) fn numbers(mut self, head: impl Into<String>) -> Self {
        self.columns.push((head.into(), "n"));
        self
    }
    /// A remark below the table.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
    /// Adds a row; it has a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<Markup>) {
        assert_eq!(cells.len(), self.columns.len(), "a row of `{}`", self.caption);
        self.rows.push(cells);
    }
    /// The table folded away behind a summary.
    pub(crate) fn behind(&self, summary: &str) -> Markup {
        html! { details { summary { (summary) } (self) } }
    }
}

impl Render for Table {
    fn render(&self) -> Markup {
        html! {
            p.caption { (self.caption) }
            div.table tabindex="0" role="group" aria-label=(self.caption) {
                table aria-label=(self.caption) {
                    thead { tr { @for (head, class) in &self.columns {
                        th scope="col" class=(class) { (head) }
                    } } }
                    tbody { @for row in &self.rows {
                        tr { @for (cell, (_, class)) in row.iter().zip(&self.columns) {
                            td class=(class) { (cell) }
                        } }
                    } }
                }
            }
            @if let Some(note) = &self.note { p.note { (note) } }
        }
    }
}

/// A cell of escaped text.
pub(crate) fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// A cell of code.
pub(crate) fn code(text: impl AsRef<str>) -> Markup {
    html! { code { (text.as_ref()) } }
}
