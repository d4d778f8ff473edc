//! The sections of a report, in order. A section is a function from the report to its markup, or to nothing where the
//! report lacks what it shows. A new section is a file here and a line in [`SECTIONS`].

mod answer;
mod breakdown;
mod candidates;
mod cluster;
mod loss;
mod memory;
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
    /// The markup below the title.
    pub(crate) draw: fn(&Report<'_>) -> Option<Markup>,
}

/// Every section, in reading order.
pub(crate) const SECTIONS: [Section; 10] = [
    Section { id: "answer", title: "Answer", draw: answer::draw },
    Section { id: "cluster", title: "The plan on the cluster", draw: cluster::draw },
    Section { id: "timeline", title: "One step in time", draw: timeline::draw },
    Section { id: "memory", title: "Memory", draw: memory::draw },
    Section { id: "breakdown", title: "Where the time goes", draw: breakdown::draw },
    Section { id: "loss", title: "Training", draw: loss::draw },
    Section { id: "strategies", title: "How each op is sharded", draw: strategies::draw },
    Section { id: "candidates", title: "Candidates", draw: candidates::draw },
    Section { id: "why", title: "Why this plan", draw: why::draw },
    Section { id: "repeat", title: "Repeat it", draw: repeat::draw },
];
