//! Reports of hand-built plans: text goldens, escaping, determinism, size, well-formedness, contrast.

mod document;
mod fixture;
mod markup;
mod sections;
mod traces;
