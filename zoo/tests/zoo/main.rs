//! What the zoo reads, as data: text in, text out. Modules by subject.

mod bad_input;
mod clusters;
mod fuzz;
mod graphs;
mod jobs;
mod params;
