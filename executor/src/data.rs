//! Training text as bytes: a file or a folder, read once, cut into windows of `sequence` bytes. Invariant: a
//! sample is a pure function of (seed, step, index in the global batch), so it does not depend on the layout;
//! every epoch visits every window once, in an order of its own, and a run longer than the data wraps round.
//! The order is a Feistel network with cycle walking (Black & Rogaway, CT-RSA 2002), so no permutation is
//! stored.

use std::path::{Path, PathBuf};

use crate::init::mix;

/// Why a text cannot be trained on.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Nothing is there.
    #[error("{}: no such file or folder; give the path of a text file, or of a folder of them", path.display())]
    Missing {
        /// As it was given.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: cannot be read ({source}); check its permissions", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The refusal.
        source: std::io::Error,
    },
    /// No text in it.
    #[error("{}: holds no text; files with NUL bytes, hidden folders and `target` are passed over", path.display())]
    Empty {
        /// As it was given.
        path: PathBuf,
    },
    /// Less than one sample.
    #[error(
        "{}: holds {bytes} bytes of text, a sequence of {} needs {needed}; give more text or a shorter sequence",
        path.display(),
        needed - 1
    )]
    Short {
        /// As it was given.
        path: PathBuf,
        /// Bytes of text found.
        bytes: usize,
        /// Bytes of one sample with its last target.
        needed: usize,
    },
}

/// Text to train on; a token is a byte.
#[derive(Clone, Debug)]
pub struct Corpus {
    text: Vec<u8>,
}

impl Corpus {
    /// Reads a file, or all text files under a folder in the order of their paths. At least one sample of
    /// `sequence` tokens must be in it.
    pub fn open(path: &Path, sequence: usize) -> Result<Self, DataError> {
        if !path.exists() {
            return Err(DataError::Missing { path: path.into() });
        }
        let mut text = Vec::new();
        read(path, &mut text)?;
        let (bytes, needed) = (text.len(), sequence + 1);
        match bytes {
            0 => Err(DataError::Empty { path: path.into() }),
            _ if bytes < needed => Err(DataError::Short { path: path.into(), bytes, needed }),
            _ => Ok(Self { text }),
        }
    }

    /// Bytes of text.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Never: an empty text does not open.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Token ids and targets (the ids one later), each `[sequence]`, of sample `index` of the global batch of
    /// a step. Panics when `sequence` is 0 or longer than the one the corpus was opened for allows.
    pub fn sample(
        &self,
        seed: u64,
        step: u64,
        index: usize,
        global_batch: usize,
        sequence: usize,
    ) -> (Vec<u32>, Vec<u32>) {
        let windows = (self.text.len() - 1) / sequence;
        assert!(windows > 0, "a sequence of {sequence} in a text of {} bytes", self.text.len());
        let (count, windows) = (step * global_batch as u64 + index as u64, windows as u64);
        let key = mix(seed ^ mix(count / windows));
        let start = permuted(count % windows, windows, key) as usize * sequence;
        let tokens = |from: usize| self.text[from..from + sequence].iter().map(|b| u32::from(*b)).collect();
        (tokens(start), tokens(start + 1))
    }
}

/// Appends the text at `path`, which exists.
fn read(path: &Path, text: &mut Vec<u8>) -> Result<(), DataError> {
    let unreadable = |source| DataError::Unreadable { path: path.into(), source };
    if !path.is_dir() {
        let bytes = std::fs::read(path).map_err(unreadable)?;
        if !bytes.contains(&0) {
            text.extend(bytes);
        }
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(unreadable)?.collect::<Result<Vec<_>, _>>();
    let mut entries: Vec<PathBuf> = entries.map_err(unreadable)?.into_iter().map(|e| e.path()).collect();
    entries.sort();
    // Links are passed over: one to a folder above would never end.
    entries
        .iter()
        .filter(|entry| !entry.is_symlink() && !skipped(entry))
        .try_for_each(|entry| read(entry, text))
}

/// Hidden folders and build output.
fn skipped(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.is_dir() && (name.starts_with('.') || name == "target")
}

/// Where `x` goes in a permutation of 0..n that `key` chooses.
fn permuted(x: u64, n: u64, key: u64) -> u64 {
    let half = (64 - (n - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1 << half) - 1;
    let mut y = x;
    loop {
        let (mut left, mut right) = (y >> half, y & mask);
        for round in 0..4 {
            (left, right) = (right, left ^ (mix(key ^ mix(right ^ (round << 32))) & mask));
        }
        y = left << half | right;
        // The network permutes the next power of four; walking on until inside 0..n permutes that.
        if y < n {
            return y;
        }
    }
}
