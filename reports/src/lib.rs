//! Values to documents: one offline HTML report, a Chrome trace for Perfetto, and CSV. Everything drawn here was computed
//! elsewhere; this crate scales to pixels and formats. The one invariant: the same values give the same bytes, for there
//! is no clock, no randomness and no unordered map.

mod chart;
mod csv;
mod figure;
mod format;
mod kind;
mod lane;
mod page;
mod perfetto;
mod report;
mod sections;
mod spans;
mod table;
mod thin;
mod twin;

pub use csv::loss_csv;
pub use page::html;
pub use perfetto::perfetto;
pub use report::{Action, Basis, CriticalItem, Report};
pub use twin::twin;
