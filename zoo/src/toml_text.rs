//! TOML to any noun, with errors a person can act on: the line, the dotted key, what was found, and the nearest known
//! word where one was misspelt. The noun's own serde attributes are the only list of known keys.

use crate::ZooError;
use crate::source::nearest;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// Words the command line promises whose value the nouns cannot hold yet: refused as such, not as spelling mistakes.
const NOT_BUILT: [&str; 2] = ["lars", "lamb"];

/// Reads `text`, the content of `file`.
pub(crate) fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, ZooError> {
    toml::from_str(text).map_err(|e| explain(file, text, &e))
}

fn explain(file: &str, text: &str, e: &toml::de::Error) -> ZooError {
    let at = e.span().map_or(0, |s| s.start).min(text.len());
    let path = DeTable::parse(text).ok().and_then(|t| path_at(t.get_ref(), at)).unwrap_or_default();
    let (field, found, fix) = words(path, e.message());
    ZooError::new(file, field, found, fix).at_line(text[..floor(text, at)].matches('\n').count() + 1)
}

/// The last character boundary of `text` at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|k| text.is_char_boundary(*k)).unwrap_or(0)
}

/// Turns serde's message into field, found and fix.
fn words(mut path: Vec<String>, message: &str) -> (String, String, String) {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let subject = quoted.next().unwrap_or_default().to_string();
    let known: Vec<&str> = quoted.collect();
    let list = known.join(", ");
    let join = |path: &[String]| if path.is_empty() { "the document".to_string() } else { path.join(".") };
    let suggest = |kind: &str| match nearest(&subject, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? known {kind}: {list}"),
        None => format!("known {kind}: {list}"),
    };
    if message.starts_with("unknown field") {
        if path.last() != Some(&subject) {
            path.push(subject.clone());
        }
        return (join(&path), "no such key".into(), suggest("keys"));
    }
    if message.starts_with("unknown variant") {
        if NOT_BUILT.contains(&subject.as_str()) {
            return (join(&path), format!("`{subject}`, which is not built yet"), format!("use {list}"));
        }
        return (join(&path), format!("`{subject}`"), suggest("values"));
    }
    if message.starts_with("missing field") {
        path.push(subject.clone());
        return (join(&path), "missing".into(), format!("add `{subject} = …`"));
    }
    if let Some((found, fix)) = message.split_once(": write ") {
        return (join(&path), found.into(), format!("write {fix}"));
    }
    if let Some((found, wanted)) = message.split_once(", expected ") {
        let found =
            found.strip_prefix("invalid type: ").or(found.strip_prefix("invalid value: ")).unwrap_or(found);
        return (join(&path), found.into(), format!("write {}", plain(wanted)));
    }
    (join(&path), message.into(), "mend the TOML there".into())
}

/// What a Rust type is called outside Rust.
fn plain(wanted: &str) -> &str {
    match wanted {
        "u32" | "u64" => "a whole number, 0 or more",
        "f64" => "a number",
        "a string" | "string" => "text in quotes",
        structure if structure.starts_with("struct ") => "a table",
        other => other,
    }
}

/// The dotted path of the innermost key or value at byte `at`.
fn path_at(table: &DeTable<'_>, at: usize) -> Option<Vec<String>> {
    table.iter().find_map(|(key, value)| {
        let inner = path_in(value.get_ref(), at);
        let here = key.span().contains(&at) || value.span().contains(&at);
        let rest = inner.or_else(|| here.then(Vec::new))?;
        Some([vec![key.get_ref().to_string()], rest].concat())
    })
}

fn path_in(value: &DeValue<'_>, at: usize) -> Option<Vec<String>> {
    match value {
        DeValue::Table(table) => path_at(table, at),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(k, item)| {
            let inner = path_in(item.get_ref(), at);
            let rest = inner.or_else(|| item.span().contains(&at).then(Vec::new))?;
            Some([vec![name_of(item.get_ref()).unwrap_or_else(|| k.to_string())], rest].concat())
        }),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => None,
    }
}

/// Lists of named tables (`levels`) read better by name than by number.
fn name_of(item: &DeValue<'_>) -> Option<String> {
    match item {
        DeValue::Table(table) => table.get("name")?.get_ref().as_str().map(str::to_string),
        _ => None,
    }
}
