//! Reading `config.json`: a JSON object whose keys are looked up by the several spellings families use, each value
//! checked for type and range. A key that is absent or null takes a default, and the default is remembered as assumed.

use crate::ZooError;
use crate::source::nearest;
use meshwright_ir::{ActivationKind, AttentionCore, Dropout, Real};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Largest width, head count or vocabulary that is believed.
const LARGEST_DIM: u64 = 1 << 32;
/// Most layers that are believed.
const MOST_LAYERS: u64 = 100_000;

/// The keys of one config.
pub(crate) struct Keys<'a> {
    file: &'a str,
    /// Where in the document this object stands: empty, or `text_config.`.
    place: String,
    object: Map<String, Value>,
    assumed: Rc<RefCell<Vec<String>>>,
    /// Sizes of the family's class, for an object that leaves them out.
    sizes: &'static [(&'static str, u64)],
    /// Keys that were looked for here, whether or not they were there.
    sought: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Keys<'a> {
    /// Parses the text of `file`.
    pub(crate) fn parse(file: &'a str, text: &str) -> Result<Self, ZooError> {
        let value: Value = serde_json::from_str(&tolerate(text)).map_err(|e| {
            let message = e.to_string();
            let what = message.split(" at line ").next().unwrap_or_default();
            ZooError::new(file, "the document", format!("no JSON: {what}"), "mend the JSON there")
                .at_line(e.line())
        })?;
        match value {
            Value::Object(object) => Ok(Self {
                file,
                place: String::new(),
                object,
                assumed: Rc::default(),
                sizes: &[],
                sought: RefCell::default(),
            }),
            other => Err(ZooError::new(
                file,
                "the document",
                show(&other),
                "write one JSON object, as Hugging Face's config.json does",
            )),
        }
    }

    /// An error about a key of this file.
    pub(crate) fn error(&self, key: &str, found: impl AsRef<str>, fix: impl AsRef<str>) -> ZooError {
        ZooError::new(self.file, format!("{}{key}", self.place), found, fix)
    }
    /// The object behind a key, empty where the file has none; what it assumes is remembered here.
    pub(crate) fn nested(&self, name: &'static str) -> Result<Option<Keys<'a>>, ZooError> {
        match self.get(&[name]) {
            None => Ok(None),
            Some((_, Value::Object(object))) => Ok(Some(self.within(name, object.clone()))),
            Some((key, value)) => Err(self.error(key, show(value), "write an object in braces")),
        }
    }
    /// Keys of an object found within this one.
    pub(crate) fn within(&self, name: &str, object: Map<String, Value>) -> Keys<'a> {
        Keys {
            file: self.file,
            place: format!("{}{name}.", self.place),
            object,
            assumed: Rc::clone(&self.assumed),
            sizes: &[],
            sought: RefCell::default(),
        }
    }
    /// The same keys, with sizes for what the object leaves out.
    pub(crate) fn with_sizes(self, sizes: &'static [(&'static str, u64)]) -> Self {
        Self { sizes, ..self }
    }
    /// Keys of this object that no reader looked for and that may matter: not those that are null or false, nor those that
    /// describe the file, its tokens or how it is run.
    pub(crate) fn unread(&self) -> Vec<&str> {
        let sought = self.sought.borrow();
        let matters = |key: &str, value: &Value| {
            !matches!(value, Value::Null | Value::Bool(false))
                && !sought.contains(key)
                && !key.starts_with('_')
                && !key.ends_with("_token_id")
                && !INERT.contains(&key)
        };
        self.object.iter().filter(|(k, v)| matters(k, v)).map(|(k, _)| k.as_str()).collect()
    }
    /// Whether the file has the key, null or not.
    pub(crate) fn has(&self, name: &'static str) -> bool {
        self.sought.borrow_mut().insert(name);
        self.object.contains_key(name)
    }
    /// Remembers what the file did not say.
    pub(crate) fn assume(&self, what: impl Into<String>) {
        self.assumed.borrow_mut().push(what.into());
    }
    /// What was assumed so far, in the order of reading.
    pub(crate) fn assumed(&self) -> Vec<String> {
        self.assumed.borrow().clone()
    }
    /// What a person calls the file.
    pub(crate) fn file(&self) -> &'a str {
        self.file
    }
    /// The first of `names` that is present and not null.
    pub(crate) fn get(&self, names: &[&'static str]) -> Option<(&'static str, &Value)> {
        self.sought.borrow_mut().extend(names);
        names.iter().find_map(|n| self.object.get(*n).filter(|v| !v.is_null()).map(|v| (*n, v)))
    }
    /// Whether the key stands in the file with the value null, which families read differently from its absence.
    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(Value::is_null)
    }
    /// A whole number from 0, with the default of the family's class.
    pub(crate) fn count_or(&self, names: &[&'static str], default: u64) -> Result<u64, ZooError> {
        match self.get(names) {
            None => {
                self.assume(format!("{} = {default} (default of the family)", names[0]));
                Ok(default)
            }
            Some((key, value)) => match value.as_u64() {
                Some(n) if n <= LARGEST_DIM => Ok(n),
                _ => Err(self.error(key, show(value), "write a whole number from 0 to 4,294,967,296")),
            },
        }
    }
    /// A size with the default of the family's class, or none where the file says null.
    pub(crate) fn dim_or_null(&self, name: &'static str, default: u64) -> Result<Option<u64>, ZooError> {
        match self.optional_dim(&[name])? {
            None if self.is_null(name) => Ok(None),
            None => self.dim_or(&[name], default).map(Some),
            given => Ok(given),
        }
    }
    /// A share above 0 and at most 1, with the default of the family's class.
    pub(crate) fn share_or(&self, names: &[&'static str], default: f64) -> Result<f64, ZooError> {
        match self.get(names) {
            None => Ok(default),
            Some((key, value)) => match value.as_f64() {
                Some(x) if x > 0.0 && x <= 1.0 => Ok(x),
                _ => Err(self.error(key, show(value), "write a number above 0 and at most 1")),
            },
        }
    }
    /// A number above 0 by any of its names, if the file gives it.
    pub(crate) fn optional_positive(&self, names: &[&'static str]) -> Result<Option<f64>, ZooError> {
        self.get(names).map(|(key, value)| self.positive(key, value)).transpose()
    }
    /// The items of a list, if the file gives it.
    pub(crate) fn list(&self, name: &'static str) -> Result<Option<&[Value]>, ZooError> {
        match self.get(&[name]) {
            None => Ok(None),
            Some((_, Value::Array(items))) => Ok(Some(items)),
            Some((key, value)) => Err(self.error(key, show(value), "write a list in brackets")),
        }
    }
    /// Whether each layer is of the kind that a list of words, one for each layer, gives it.
    pub(crate) fn kinds(
        &self,
        name: &'static str,
        layers: u32,
        known: &[(&'static str, bool)],
    ) -> Result<Option<Vec<bool>>, ZooError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        if items.len() < layers as usize {
            let fix = format!("write one word for each of {layers} layers");
            return Err(self.error(name, format!("a list of {}", items.len()), fix));
        }
        let kind = |v: &Value| {
            known.iter().find(|(word, _)| v.as_str() == Some(*word)).map(|(_, kind)| *kind).ok_or_else(|| {
                let words: Vec<_> = known.iter().map(|k| k.0).collect();
                self.error(name, show(v), format!("use one of {}", words.join(", ")))
            })
        };
        items[..layers as usize].iter().map(kind).collect::<Result<_, _>>().map(Some)
    }
    /// The layers that a list of positions names.
    pub(crate) fn positions(&self, name: &'static str) -> Result<Option<BTreeSet<u64>>, ZooError> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let at =
            |v: &Value| v.as_u64().ok_or_else(|| self.error(name, show(v), "write whole numbers from 0"));
        items.iter().map(at).collect::<Result<_, _>>().map(Some)
    }

    /// A size that the file must give: a whole number from 1.
    pub(crate) fn dim(&self, names: &[&'static str]) -> Result<u64, ZooError> {
        match self.optional_dim(names)? {
            Some(n) => Ok(n),
            None if self.sizes.iter().any(|(key, _)| names.contains(key)) => {
                let size = self.sizes.iter().find(|(key, _)| names.contains(key)).map_or(1, |s| s.1);
                self.dim_or(names, size)
            }
            None => {
                let found = if self.is_null(names[0]) { "null" } else { "missing" };
                let near = nearest(names[0], self.object.keys().map(String::as_str));
                let hint = near
                    .filter(|n| *n != names[0])
                    .map(|n| format!("; the file has `{n}`"))
                    .unwrap_or_default();
                let fix = format!("write `\"{}\": …`, a whole number above 0{hint}", names[0]);
                Err(self.error(names[0], found, fix))
            }
        }
    }
    /// A size the file may give.
    pub(crate) fn optional_dim(&self, names: &[&'static str]) -> Result<Option<u64>, ZooError> {
        let Some((key, value)) = self.get(names) else { return Ok(None) };
        match value.as_u64() {
            Some(n) if (1..=LARGEST_DIM).contains(&n) => Ok(Some(n)),
            _ => Err(self.error(key, show(value), "write a whole number from 1 to 4,294,967,296")),
        }
    }
    /// A size with the default of the family's class.
    pub(crate) fn dim_or(&self, names: &[&'static str], default: u64) -> Result<u64, ZooError> {
        Ok(match self.optional_dim(names)? {
            Some(n) => n,
            None => {
                self.assume(format!("{} = {default} (default of the family)", names[0]));
                default
            }
        })
    }
    /// The number of layers.
    pub(crate) fn layers(&self, names: &[&'static str]) -> Result<u32, ZooError> {
        let n = self.dim(names)?;
        self.layers_of(names[0], n)
    }
    /// A number of layers that was read under `name`.
    pub(crate) fn layers_of(&self, name: &str, n: u64) -> Result<u32, ZooError> {
        if n > MOST_LAYERS {
            return Err(self.error(name, n.to_string(), "write at most 100,000 layers"));
        }
        Ok(n as u32)
    }
    /// A number above 0, with the default of the family's class.
    pub(crate) fn positive_or(&self, name: &'static str, default: f64) -> Result<f64, ZooError> {
        self.positive_of(&[name], default)
    }
    /// A number above 0 by any of its names, with the default of the family's class.
    pub(crate) fn positive_of(&self, names: &[&'static str], default: f64) -> Result<f64, ZooError> {
        match self.get(names) {
            Some((key, value)) => self.positive(key, value),
            None => {
                self.assume(format!("{} = {default:?} (default of the family)", names[0]));
                Ok(default)
            }
        }
    }
    /// A value that must be a number above 0.
    pub(crate) fn positive(&self, key: &str, value: &Value) -> Result<f64, ZooError> {
        match value.as_f64() {
            Some(x) if x > 0.0 && x <= 1e30 => Ok(x),
            _ => Err(self.error(key, show(value), "write a finite number above 0")),
        }
    }
    /// A switch, if the file sets it.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>, ZooError> {
        match self.get(&[name]) {
            None => Ok(None),
            Some((_, Value::Bool(b))) => Ok(Some(*b)),
            Some((key, value)) => Err(self.error(key, show(value), "write true or false")),
        }
    }
    /// A switch with the default of the family's class, which is remembered as assumed.
    pub(crate) fn flag_or(&self, name: &'static str, default: bool) -> Result<bool, ZooError> {
        Ok(match self.flag(name)? {
            Some(b) => b,
            None => {
                self.assume(format!("{name} = {default} (default of the family)"));
                default
            }
        })
    }
    /// A word, if the file gives it.
    pub(crate) fn word(&self, name: &'static str) -> Result<Option<&str>, ZooError> {
        match self.get(&[name]) {
            None => Ok(None),
            Some((_, Value::String(s))) => Ok(Some(s)),
            Some((key, value)) => Err(self.error(key, show(value), "write text in quotes")),
        }
    }
    /// An activation function by its Hugging Face name.
    pub(crate) fn activation(&self, name: &'static str, default: &str) -> Result<ActivationKind, ZooError> {
        self.activation_of(&[name], default)
    }
    /// An activation function by any of its keys.
    pub(crate) fn activation_of(
        &self,
        names: &[&'static str],
        default: &str,
    ) -> Result<ActivationKind, ZooError> {
        let (name, word) = match self.get(names) {
            Some((key, Value::String(word))) => (key, word.as_str()),
            Some((key, value)) => return Err(self.error(key, show(value), "write text in quotes")),
            None => {
                self.assume(format!("{} = {default} (default of the family)", names[0]));
                (names[0], default)
            }
        };
        ACTIVATIONS.iter().find(|(n, _)| *n == word).map(|(_, kind)| *kind).ok_or_else(|| {
            let known: Vec<_> = ACTIVATIONS.iter().map(|a| a.0).collect();
            self.error(name, format!("`{word}`"), format!("use one of {}", known.join(", ")))
        })
    }
    /// Refuses a switch that changes the graph in a way no op here expresses.
    pub(crate) fn refuse_if_set(&self, name: &'static str, why: &str) -> Result<(), ZooError> {
        match self.flag(name)? {
            Some(true) => Err(self.error(name, "true", why)),
            Some(false) | None => Ok(()),
        }
    }
    /// Notes dropout that the file asks for and the graph leaves out.
    pub(crate) fn note_dropout(&self, names: &[&'static str]) {
        let asked =
            names.iter().filter_map(|n| self.get(&[n])).find(|(_, v)| v.as_f64().is_some_and(|x| x > 0.0));
        if let Some((key, value)) = asked {
            self.assume(format!("no dropout, although {key} = {}", show(value)));
        }
    }
    /// A rate of dropout, if the file gives one above 0.
    pub(crate) fn dropout(&self, name: &'static str, site: u32) -> Result<Option<Dropout>, ZooError> {
        let Some((key, value)) = self.get(&[name]) else { return Ok(None) };
        match value.as_f64() {
            Some(rate) if (0.0..1.0).contains(&rate) => {
                Ok((rate > 0.0).then_some(Dropout { rate: Real(rate), site }))
            }
            _ => Err(self.error(key, show(value), "write a number from 0 to under 1")),
        }
    }
    /// What attention keeps of its scores, by the key that transformers writes where one was asked for.
    pub(crate) fn attention_core(&self) -> Result<AttentionCore, ZooError> {
        for name in ["_attn_implementation", "attn_implementation"] {
            let Some(word) = self.word(name)? else { continue };
            return CORES.iter().find(|(n, _)| *n == word).map(|(_, core)| *core).ok_or_else(|| {
                let known: Vec<_> = CORES.iter().map(|c| c.0).collect();
                self.error(name, format!("`{word}`"), format!("use one of {}", known.join(", ")))
            });
        }
        Ok(AttentionCore::Fused)
    }
}

/// Keys that change neither ops nor sizes.
const INERT: [&str; 18] = [
    "architectures",
    "attn_implementation",
    "auto_map",
    "dtype",
    "max_position_embeddings",
    "max_window_layers",
    "model_type",
    "output_router_logits",
    "pretraining_tp",
    "quantization_config",
    "rope_scaling",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "tokenizer_class",
    "torch_dtype",
    "transformers_version",
    "use_cache",
    "vocab_size",
];

/// Hugging Face names of attention implementations (transformers, `ALL_ATTENTION_FUNCTIONS`). All but the plain one are
/// fused.
const CORES: [(&str, AttentionCore); 5] = [
    ("eager", AttentionCore::Eager),
    ("sdpa", AttentionCore::Fused),
    ("flash_attention_2", AttentionCore::Fused),
    ("flash_attention_3", AttentionCore::Fused),
    ("flex_attention", AttentionCore::Fused),
];

/// Hugging Face names of activation functions (transformers, the `ACT2FN` table).
const ACTIVATIONS: [(&str, ActivationKind); 14] = [
    ("gelu", ActivationKind::Gelu),
    ("gelu_new", ActivationKind::GeluTanh),
    ("gelu_fast", ActivationKind::GeluTanh),
    ("gelu_pytorch_tanh", ActivationKind::GeluTanh),
    ("gelu_python", ActivationKind::Gelu),
    ("silu", ActivationKind::Silu),
    ("swish", ActivationKind::Silu),
    ("relu", ActivationKind::Relu),
    ("relu2", ActivationKind::Relu2),
    ("quick_gelu", ActivationKind::QuickGelu),
    ("tanh", ActivationKind::Tanh),
    ("sigmoid", ActivationKind::Sigmoid),
    ("gelu_accurate", ActivationKind::GeluTanh),
    ("relu_squared", ActivationKind::Relu2),
];

/// A value as an error shows it: short, and never a whole nested object.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(map) => format!("an object of {} keys", map.len()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// Quotes the literals `NaN`, `Infinity` and `-Infinity` outside strings: Python writes them, JSON does not know them.
/// As text they fail where a number is needed and pass where nobody looks.
fn tolerate(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(c) = rest.chars().next() {
        let literal =
            ["NaN", "Infinity", "-Infinity"].into_iter().find(|l| !in_string && rest.starts_with(l));
        let taken = match literal {
            Some(l) => {
                out.extend(['"', '"']);
                out.insert_str(out.len() - 1, l);
                l.len()
            }
            None if in_string && c == '\\' => {
                let pair: usize = rest.chars().take(2).map(char::len_utf8).sum();
                out.push_str(&rest[..pair]);
                pair
            }
            None => {
                in_string ^= c == '"';
                out.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_literals_are_quoted_outside_strings_only() {
        let text = r#"{"a": [0.0, Infinity, -Infinity], "b\"NaN": "NaN \\", "c": NaN}"#;
        let want = r#"{"a": [0.0, "Infinity", "-Infinity"], "b\"NaN": "NaN \\", "c": "NaN"}"#;
        assert_eq!(tolerate(text), want);
    }
}
