//! GPipe (Huang et al. 2019): every forward, then every backward. Backwards run in the order of the forwards, so that the
//! last stage hands gradients back in the order in which the first stage kept its activations.

use super::Task;

/// The same on every stage.
pub(super) fn order(m: u32) -> Vec<Task> {
    (0..m).map(Task::F).chain((0..m).map(Task::B)).collect()
}
