//! Reports of hand-built plans: text goldens, escaping, determinism, size, well-formedness, contrast.

mod fixture;
