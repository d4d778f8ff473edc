//! Cutting the chain of blocks into stages and choosing what each stage's blocks do to fit: the stage problem, over
//! [`Part`]s, which are what a run of blocks may be as a stage. [`split`] meets the least bottleneck at once; [`labels`]
//! finds the least of a bound on the step over all cuts, by dynamic programming with a certified bound; `programme`
//! states the same as a linear programme, for where the first had to round; [`trial`] times what is left between
//! bound and best. The invariant: no cut's closed form is less than the bound told with it.

mod labels;
mod pipeline;
mod programme;
mod split;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use labels::least;
pub(crate) use pipeline::{Part, Pipeline};
pub(crate) use programme::{Answer, programme};
pub(crate) use split::{possible, split};
pub(crate) use trial::trial;

/// A run of blocks as a stage: its first block, and which of its parts.
pub(crate) type Run = (usize, usize);

/// What blocks `first..end` may be as a stage: none of them where they do not fit. Fewer blocks never do worse.
pub(crate) type Parts<'a> = dyn Fn(usize, usize, usize) -> std::rc::Rc<Vec<Part>> + 'a;

/// The stage problem.
pub(crate) struct Stages<'a> {
    /// Least forward and backward of each block of the chain.
    pub(crate) blocks: &'a [(u64, u64)],
    /// How stages follow each other.
    pub(crate) pipeline: Pipeline<'a>,
    /// By stage, first block and end.
    pub(crate) parts: &'a Parts<'a>,
}

impl Stages<'_> {
    /// The bound of a cut.
    pub(crate) fn bound(&self, cut: &[Run]) -> u64 {
        let (mut label, mut end) = (None, self.blocks.len());
        for (stage, (first, part)) in cut.iter().enumerate().rev() {
            let part = (self.parts)(stage, *first, end)[*part];
            (label, end) = (Some(self.pipeline.before(stage, &part, label.as_ref())), *first);
        }
        label.map_or(0, |l| l.step())
    }

    /// First blocks that a stage which ends at `end` may have, last ones first: every earlier stage needs a block, and the
    /// first stage takes all that are left.
    fn firsts(&self, stage: usize, end: usize) -> impl Iterator<Item = usize> + use<> {
        let from = if stage == 0 { end.min(1) } else { end };
        (if stage == 0 { 0 } else { stage }..from).rev()
    }
}
