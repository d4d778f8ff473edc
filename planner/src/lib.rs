//! The search: intra-op ILP, stages, enumeration, bounds, explanations.
