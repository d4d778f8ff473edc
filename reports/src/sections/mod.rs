//! The sections of a report, in order. A section is a function from the report to its markup, or to nothing where the
//! report lacks what it shows. A new section is a file here and a line in [`SECTIONS`].

mod answer;
mod assumptions;
mod breakdown;
mod candidates;
mod cluster;
mod errors;
mod load;
mod loss;
mod memory;
mod memory_classes;
mod repeat;
mod strategies;
mod timeline;
mod why;

use crate::Report;
use maud::Markup;

/// One section: its anchor, its title, and what draws it.
pub(crate) struct Section {
    /// Anchor.
    pub(crate) id: &'static str,
    /// Title.
    pub(crate) title: &'static str,
    /// Title in the navigation, where it must be short.
    pub(crate) short: &'static str,
    /// The markup below the title.
    pub(crate) draw: fn(&Report<'_>) -> Option<Markup>,
}

const fn section(
    id: &'static str,
    title: &'static str,
    short: &'static str,
    draw: fn(&Report<'_>) -> Option<Markup>,
) -> Section {
    Section { id, title, short, draw }
}

/// Every section, in reading order.
pub(crate) const SECTIONS: [Section; 13] = [
    section("answer", "Answer", "Answer", answer::draw),
    section("timeline", "One step in time", "Timeline", timeline::draw),
    section("breakdown", "Where the time goes", "Time", breakdown::draw),
    section("errors", "Predicted against measured", "Errors", errors::draw),
    section("memory", "Memory", "Memory", memory::draw),
    section("cluster", "The plan on the cluster", "Cluster", cluster::draw),
    section("load", "Load on the interconnect", "Interconnect", load::draw),
    section("loss", "Training", "Training", loss::draw),
    section("candidates", "Candidates", "Candidates", candidates::draw),
    section("why", "Why this plan", "Why", why::draw),
    section("strategies", "How each op is sharded", "Sharding", strategies::draw),
    section("assumptions", "Assumptions and sources", "Assumptions", assumptions::draw),
    section("repeat", "Repeat it", "Repeat", repeat::draw),
];
