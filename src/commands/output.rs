//! Writing to a person's terminal. A closed stdout ends quietly: whoever closed it has read enough.

use meshwright::Failure;
use serde::Serialize;
use std::io::{ErrorKind, Write};

/// Writes text to stdout.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(e) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && e.kind() == ErrorKind::BrokenPipe
    {
        std::process::exit(0);
    }
}

/// Writes one JSON object to stdout.
pub(crate) fn json<T: Serialize>(value: &T) {
    say(&meshwright::files::to_json(value));
}

/// Writes a line to stderr, unless quiet.
pub(crate) fn note(quiet: bool, text: &str) {
    if !quiet {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// Shows a failure on stderr. Lines are not broken, so that a path or a name can be copied whole.
pub(crate) fn failure(failure: Failure) {
    let whole_lines = || miette::MietteHandlerOpts::new().wrap_lines(false).build();
    // A second hook would be refused; there is none.
    let _ = miette::set_hook(Box::new(move |_| Box::new(whole_lines())));
    let _ = writeln!(std::io::stderr(), "{:?}", miette::Report::new(failure));
}

/// A table with the first column left-aligned and the others right-aligned.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(c, cell)| match c {
            0 => format!("{cell:<w$}", w = widths[0]),
            _ => format!("{cell:>w$}", w = widths[c]),
        });
        format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Widest line of a table.
const WIDTH: usize = 100;

/// Key and value lines, both left-aligned; a long value goes on below itself.
pub(crate) fn pairs(rows: &[Vec<String>]) -> String {
    let width = rows.iter().map(|r| r[0].chars().count()).max().unwrap_or(0);
    rows.iter().map(|r| hanging(&format!("  {:<width$}  ", r[0]), &r[1])).collect()
}

/// One line an item, with a dash; a long item goes on below itself.
pub(crate) fn items<'t>(items: impl IntoIterator<Item = &'t str>) -> String {
    items.into_iter().map(|item| hanging("  - ", item)).collect()
}

/// Text that goes on where it started, below what leads to it.
fn hanging(lead: &str, text: &str) -> String {
    let indent = lead.chars().count();
    let mut lines = lead.to_string();
    let mut at = indent;
    for (k, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if k > 0 && at + 1 + length > WIDTH {
            lines += &format!("\n{:indent$}", "");
            at = indent;
        } else if k > 0 {
            lines.push(' ');
            at += 1;
        }
        lines += word;
        at += length;
    }
    lines + "\n"
}

/// The command as it was typed, quoted for a shell.
pub(crate) fn typed() -> String {
    let quoted = |word: String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words = std::env::args_os().skip(1).map(|w| quoted(w.to_string_lossy().into_owned()));
    std::iter::once("meshwright".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
