//! Where nouns come from: files read with a size limit, and the hash that names a resolved noun. The hash is FNV-1a of
//! the noun's JSON, whose key order is that of the type, so equal nouns hash alike on every machine.

use crate::ZooError;
use meshwright_ir::Source;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest description file that is read: a thousand times the largest known `config.json`.
const LARGEST_FILE: u64 = 16 << 20;

/// What reads a job file.
pub(crate) const JOB: &str = "the job file";

/// FNV-1a, 64 bits, in hex, of the value's JSON (Fowler, Noll and Vo; parameters of the IETF draft).
pub fn hash<T: Serialize>(noun: &T) -> String {
    let json = serde_json::to_vec(noun).expect("nouns have a JSON form");
    let fold = |h: u64, byte: &u8| (h ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", json.iter().fold(0xcbf2_9ce4_8422_2325, fold))
}

/// A noun's name as the user wrote it, with its hash.
pub(crate) fn named<T: Serialize>(name: &str, noun: &T) -> Source {
    Source { name: name.to_string(), hash: hash(noun) }
}

/// Where `source` lies: relative paths start at `base_dir`.
pub(crate) fn locate(source: &str, base_dir: &Path) -> PathBuf {
    base_dir.join(source)
}

/// The text of a file; `name` is how its user calls it, `field` which key named it.
pub(crate) fn read(path: &Path, name: &str, field: &str) -> Result<String, ZooError> {
    let trouble = |e: std::io::Error| {
        let fix = match field {
            JOB => "name a job file (TOML); a model and a cluster go after --model and --cluster",
            _ => "name a readable file, or a preset",
        };
        ZooError::new(name, field, format!("cannot be read: {e}"), fix)
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(LARGEST_FILE + 1).read_to_end(&mut bytes)).map_err(trouble)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(ZooError::new(
            name,
            field,
            "more than 16 MiB",
            "name a description, not data or weights",
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|e| ZooError::new(name, field, format!("not UTF-8 text: {e}"), "save the file as UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

/// The candidate that a misspelt word most likely meant: one that it begins, or within two edits or a third of its length.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    // Of those that go on from the word, the one that adds least.
    let whole = candidates.iter().filter(|c| word.len() >= 3 && c.starts_with(word)).min_by_key(|c| c.len());
    if let Some(whole) = whole {
        return Some(whole);
    }
    let limit = (word.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|c| (edits(word, c), c))
        .filter(|(d, _)| *d <= limit)
        .min_by_key(|(d, _)| *d)
        .map(|(_, c)| c)
}

/// Levenshtein distance of two words; long words are not compared, for they are no key of ours.
fn edits(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_match_the_published_vectors() {
        // Computed with an independent implementation that reproduces the published value of `a`, af63dc4c8601ec8c.
        assert_eq!(hash(&""), "07cc7607b4949e25");
        assert_eq!(hash(&1), "af63ac4c86019afc");
    }

    #[test]
    fn a_slip_finds_its_key_and_noise_does_not() {
        let keys = ["sequence", "global_batch", "precision"];
        assert_eq!(nearest("sequense", keys), Some("sequence"));
        assert_eq!(nearest("globalbatch", keys), Some("global_batch"));
        assert_eq!(nearest("learning_rate", keys), None);
    }
}
