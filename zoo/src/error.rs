//! The one error of the crate: where the trouble is, what was found there, and what to write instead. Its message stays
//! under 2 KiB whatever the input holds, because every part is clipped when the error is made.

use meshwright_ir::Invalid;
use thiserror::Error;

/// Input that cannot be accepted. Shown as `file, line N: field: found; fix`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[error("{}: {field}: {found}; {fix}", self.place())]
pub struct ZooError {
    /// The file as its user named it, or the preset, or `job` for a job made of flags.
    pub file: String,
    /// Line in the file, from 1, where the reader knows it.
    pub line: Option<usize>,
    /// Dotted path of the key (`training.sequence`), or what was being done.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub fix: String,
}

impl ZooError {
    /// Builds the error from its parts; each is clipped and made printable.
    pub(crate) fn new(
        file: impl AsRef<str>,
        field: impl AsRef<str>,
        found: impl AsRef<str>,
        fix: impl AsRef<str>,
    ) -> Self {
        Self {
            // An empty name is shown as one, not as nothing.
            file: clip(if file.as_ref().is_empty() { "\"\"" } else { file.as_ref() }, 240),
            line: None,
            field: clip(field.as_ref(), 200),
            found: clip(found.as_ref(), 400),
            fix: clip(fix.as_ref(), 700),
        }
    }

    /// What a noun's own check found in a file.
    pub(crate) fn invalid(file: &str, e: Invalid) -> Self {
        Self::new(file, e.field, e.found, e.fix)
    }

    /// The error at a line of its file.
    pub(crate) fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }

    /// The same error of another file: for a caller that knows which job file the fields came from.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        self.file = clip(file, 240);
        self
    }

    fn place(&self) -> String {
        match self.line {
            Some(line) => format!("{}, line {line}", self.file),
            None => self.file.clone(),
        }
    }
}

/// At most `limit` bytes of `text`, without control characters. What is cut is the middle of the text: both the start
/// of a message and the end of a path say most.
fn clip(text: &str, limit: usize) -> String {
    let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() <= limit {
        return shown;
    }
    let half = (limit - '…'.len_utf8()) / 2;
    let head = (0..=half).rev().find(|k| shown.is_char_boundary(*k)).unwrap_or(0);
    let tail = (shown.len() - half..shown.len()).find(|k| shown.is_char_boundary(*k)).unwrap_or(shown.len());
    format!("{}…{}", &shown[..head], &shown[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_short_and_printable() {
        let long = "ä\n".repeat(5000);
        let e = ZooError::new(&long, &long, &long, &long).at_line(usize::MAX);
        let message = e.to_string();
        assert!(message.len() <= 2048, "{} bytes", message.len());
        assert!(!message.chars().any(char::is_control));
    }
}
