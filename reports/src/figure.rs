//! What figures share: the patterns that tell kinds apart without colour, and horizontal bars that scale with the screen
//! because their positions are percentages.

use crate::format::position;
use maud::{Markup, html};

/// Definitions of every pattern, once per page; `style.css` refers to them. Solid kinds need none.
pub(crate) fn patterns() -> Markup {
    html! {
        svg.defs width="0" height="0" aria-hidden="true" {
            defs {
                (pattern("p-backward", 7, "M-2 2l4-4M0 7l7-7M5 9l4-4"))
                (pattern("p-collective", 6, "M0 1.5h2M3 4.5h2"))
                (pattern("p-exchange", 5, "M2.5 0v5"))
                (pattern("p-optimizer", 7, "M-2 2l4-4M0 7l7-7M5 9l4-4M-2 5l4 4M0 0l7 7M5-2l4 4"))
                (pattern("p-rearrange", 5, "M0 2.5h5"))
                (pattern("p-idle", 6, "M0 1.5h1.5M3 4.5h1.5"))
                @for (k, (side, strokes)) in CLASSES.iter().enumerate() { (pattern(&format!("p-c{k}"), *side, strokes)) }
            }
        }
    }
}

/// Strokes of the fills `c0` to `c9`, which classes without a meaning of their own take in turn; the first is solid.
const CLASSES: [(u32, &str); 10] = [
    (8, ""),
    (7, "M-2 2l4-4M0 7l7-7M5 9l4-4"),
    (5, "M2.5 0v5"),
    (5, "M0 2.5h5"),
    (6, "M0 1.5h2M3 4.5h2"),
    (7, "M-2 5l4 4M0 0l7 7M5-2l4 4"),
    (7, "M-2 2l4-4M0 7l7-7M5 9l4-4M-2 5l4 4M0 0l7 7M5-2l4 4"),
    (6, "M3 0v6M0 3h6"),
    (9, "M0 2h9M0 5h9"),
    (9, "M2 0v9M5 0v9"),
];

/// A square tile of side `side`: the kind's colour under strokes in the page's colour.
fn pattern(id: &str, side: u32, strokes: &str) -> Markup {
    html! {
        pattern id=(id) width=(side) height=(side) patternUnits="userSpaceOnUse" {
            rect.ground width=(side) height=(side) {}
            path d=(strokes) {}
        }
    }
}

/// One part of a bar.
pub(crate) struct Part {
    /// Class in the stylesheet.
    pub(crate) class: String,
    /// Length, in the unit of the bar's `full`.
    pub(crate) length: u64,
    /// What the pointer shows.
    pub(crate) title: String,
}

/// Parts end to end, against a `full` length that fills the width.
pub(crate) fn bar(label: &str, full: u64, parts: &[Part]) -> Markup {
    let percent = |n: u64| if full == 0 { 0.0 } else { 100.0 * n as f64 / full as f64 };
    let mut from = 0;
    let placed = parts.iter().map(|part| {
        let start = from;
        from += part.length;
        (part, position(percent(start)), position(percent(part.length)))
    });
    html! {
        svg.bar width="100%" height="20" role="img" aria-label=(label) {
            @for (part, x, width) in placed {
                @if part.length > 0 {
                    g class=(part.class) { rect x={ (x) "%" } width={ (width) "%" } height="100%" { title { (part.title) } } }
                }
            }
        }
    }
}
