//! Predictions beside measurements: a table of measured runs goes row by row through the path that users get, and what
//! comes out is scored against what was measured. Rows that cannot be predicted are listed with the reason.

mod calibrate;
mod framework;
mod issue;
mod predict;
mod score;
mod setup;
mod shape;
mod table;

pub use calibrate::{Fitted, calibrate};
pub use framework::Framework;
pub use issue::{Manner, issued};
pub use predict::{Predicted, Prepared, Term, predict, predict_once, prepare};
pub use score::{Score, Scored, kendall, score, with_baseline};
pub use setup::{Setup, setup};
pub use table::{Row, read};

use crate::Failure;
use meshwright_zoo::{Constants, apply_constants, hash};
use std::collections::BTreeMap;

/// A row without a prediction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The row's name.
    pub id: String,
    /// Why.
    pub why: String,
}

/// Rows to predict, and rows that are skipped.
pub fn setups(rows: &[Row]) -> (Vec<Setup>, Vec<Skipped>) {
    let (mut ready, mut skipped) = (vec![], vec![]);
    for row in rows {
        match setup(row) {
            Ok(s) => ready.push(s),
            Err(why) => skipped.push(Skipped { id: row.id().to_string(), why }),
        }
    }
    (ready, skipped)
}

/// Puts the constants of `file` in place of their clusters' own.
pub fn with_constants(
    setups: &mut [Setup],
    file: &str,
    constants: &BTreeMap<String, Constants>,
) -> Result<(), Failure> {
    for setup in setups.iter_mut().filter(|s| constants.contains_key(&s.cluster)) {
        setup.reprice(apply_constants(setup.preset.clone(), file, constants)?);
        setup.job.cluster_source.hash = hash(&setup.job.cluster);
    }
    Ok(())
}
