//! What a person reads when their input cannot be used: one message, one fix, exit code 2.

use meshwright_zoo::ZooError;
use miette::Diagnostic;
use thiserror::Error;

/// A message of at most 2 KiB, fix included.
#[derive(Debug, Error, Diagnostic)]
#[error("{message}")]
pub struct Failure {
    message: String,
    #[help]
    fix: Option<String>,
}

impl Failure {
    /// What is wrong, and what to do about it.
    pub fn new(message: impl std::fmt::Display, fix: impl std::fmt::Display) -> Self {
        let (message, fix) = (clip(message.to_string(), 1200), clip(fix.to_string(), 600));
        Self { message, fix: Some(fix).filter(|f| !f.is_empty()) }
    }
    /// An error that carries its own fix after a semicolon, as the nouns' errors do.
    pub fn of(error: impl std::fmt::Display) -> Self {
        let text = error.to_string();
        match text.rsplit_once("; ") {
            Some((message, fix)) => Self::new(message, fix),
            None => Self::new(text, ""),
        }
    }
    /// The same, about a file.
    pub fn in_file(file: &str, error: impl std::fmt::Display) -> Self {
        Self::of(format!("{file}: {error}"))
    }
}

impl From<ZooError> for Failure {
    fn from(e: ZooError) -> Self {
        let fix = e.fix.clone();
        let whole = e.to_string();
        Self::new(whole.strip_suffix(&format!("; {fix}")).unwrap_or(&whole), fix)
    }
}

fn clip(text: String, limit: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
    // An endless word must not push out what stands behind it: the name of a flag, the fix.
    let text: String = text.split_inclusive([' ', '\n']).map(shorten).collect();
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit - 3).rev().find(|k| text.is_char_boundary(*k)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// A word of over 200 letters, by its start and its end.
fn shorten(word: &str) -> String {
    let letters: Vec<char> = word.chars().collect();
    if letters.len() <= 200 {
        return word.to_string();
    }
    let (start, end) = (&letters[..80], &letters[letters.len() - 40..]);
    start.iter().chain(&['…']).chain(end).collect()
}
