//! The shared semantics, in integers, without devices or time.
