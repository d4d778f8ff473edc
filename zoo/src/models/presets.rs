//! Models known by name. Each is a `config.json` in `zoo/models/`, read like a user's own; its `_source` key says where
//! its numbers come from.

/// Name and config of every preset, small to large.
pub(crate) const PRESETS: [(&str, &str); 7] = [
    ("gpt-nano", include_str!("../../models/gpt-nano.json")),
    ("gpt2-124m", include_str!("../../models/gpt2-124m.json")),
    ("qwen3-0.6b", include_str!("../../models/qwen3-0.6b.json")),
    ("llama3-8b", include_str!("../../models/llama3-8b.json")),
    ("llama3-70b", include_str!("../../models/llama3-70b.json")),
    ("gpt3-175b", include_str!("../../models/gpt3-175b.json")),
    ("llama3.1-405b", include_str!("../../models/llama3.1-405b.json")),
];
