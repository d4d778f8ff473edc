//! Turns a user's files into nouns: Hugging Face configs, presets, clusters.
