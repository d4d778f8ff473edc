//! The only place durations come from: compute, collectives, launches, device memory.
