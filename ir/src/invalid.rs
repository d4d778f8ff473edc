//! The one error type of the nouns: which field is wrong, what it holds, and what to do about it.

use thiserror::Error;

/// A field whose value cannot be accepted. Whoever read the value from a file adds the file's name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {found}; {fix}")]
pub struct Invalid {
    /// Dotted path of the field, as the user wrote it (`training.sequence`).
    pub field: String,
    /// What was found there.
    pub found: String,
    /// What to write instead.
    pub fix: String,
}

impl Invalid {
    /// Builds the error from its three parts.
    pub fn new(field: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { field: field.into(), found: found.into(), fix: fix.into() }
    }

    /// The same error one level further in: `prefix.field`.
    pub fn within(mut self, prefix: &str) -> Self {
        self.field = format!("{prefix}.{}", self.field);
        self
    }
}
