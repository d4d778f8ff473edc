//! What a report is made from: values that were computed elsewhere, borrowed. The helpers below choose which ranks and
//! stages stand for the rest; they never derive a figure.

use meshwright_ir::{Axis, Bytes, Load, Plan, Program, Source, Time, Trace};

/// One stretch of the critical path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CriticalItem {
    /// What the step was waiting for, for a person.
    pub label: String,
    /// For how long.
    pub time: Time,
}

/// How the gain of an [`Action`] was computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The changed plan was simulated.
    Simulated,
    /// By the planner's closed form.
    ClosedForm,
}

/// Something that would shorten the step.
#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    /// What to do, for a person.
    pub label: String,
    /// The change as `whatif --set` takes it, where it does.
    pub change: String,
    /// The step time it gives.
    pub step_time_s: f64,
    /// Share of the time per token that it saves, between 0 and 1.
    pub gain: f64,
    /// How that was computed.
    pub basis: Basis,
    /// Whether it fits the memory there is.
    pub fits: bool,
}

/// Everything one report shows. Traces must be of `program`, and `program` of `plan`; a trace without a program has no
/// instructions to name, so only its step time and memory are drawn.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The plan, with its job, its predictions and what the search did.
    pub plan: &'a Plan,
    /// What each rank does.
    pub program: Option<&'a Program>,
    /// What the simulator says of one step.
    pub predicted: Option<&'a Trace>,
    /// What an executor recorded of one step.
    pub measured: Option<&'a Trace>,
    /// Mean nats per token of each step, before its update.
    pub losses: &'a [f64],
    /// Measured wall time of each step, in seconds.
    pub step_times_s: &'a [f64],
    /// Measured step time in seconds: the median after warm-up.
    pub measured_step_s: Option<f64>,
    /// Error of the prediction as a signed fraction: (predicted − measured) / measured.
    pub error: Option<f64>,
    /// Tokens per second, as predicted.
    pub tokens_per_s: Option<f64>,
    /// Model FLOP utilisation as predicted, a fraction, and the name of the convention it follows.
    pub mfu: Option<(f64, &'a str)>,
    /// The predicted critical path in order.
    pub critical_path: &'a [CriticalItem],
    /// What the step asks of the interconnect.
    pub load: Option<&'a Load>,
    /// What would shorten the step, the largest gain first.
    pub advice: &'a [Action],
    /// The exact command that repeats this.
    pub command: &'a str,
    /// Further files the report rests on, with their hashes; the job's model and cluster are listed anyway.
    pub sources: &'a [Source],
}

/// How many stages charts show one by one before they leave out the middle ones.
pub(crate) const STAGES_SHOWN: u32 = 8;

/// How many ranks a timeline draws in all, at least one of each stage shown.
const RANKS_DRAWN: usize = 8;

impl<'a> Report<'a> {
    /// A report of a plan alone; fill in the other fields that are known.
    pub fn new(plan: &'a Plan, command: &'a str) -> Self {
        Self {
            plan,
            program: None,
            predicted: None,
            measured: None,
            losses: &[],
            step_times_s: &[],
            measured_step_s: None,
            error: None,
            tokens_per_s: None,
            mfu: None,
            critical_path: &[],
            load: None,
            advice: &[],
            command,
            sources: &[],
        }
    }

    /// Name of the model, for titles and labels.
    pub(crate) fn model(&self) -> &'a str {
        &self.plan.job.model.name
    }
    /// Number of pipeline stages.
    pub(crate) fn stages(&self) -> u32 {
        self.plan.mesh.degree(Axis::Pp)
    }
    /// Stages that charts show: all, or the first and last ones.
    pub(crate) fn shown_stages(&self) -> Vec<u32> {
        let (all, half) = (self.stages(), STAGES_SHOWN / 2);
        (0..all).filter(|s| all <= STAGES_SHOWN || *s < half || s + half >= all).collect()
    }
    /// Says which stages a chart leaves out, if any.
    pub(crate) fn stages_left_out(&self) -> Option<String> {
        let all = self.stages();
        (all > STAGES_SHOWN).then(|| {
            format!(
                "The first {half} and last {half} of {all} stages are drawn; those between are left out.",
                half = STAGES_SHOWN / 2
            )
        })
    }
    /// First rank and number of ranks of a stage: stages are the major axis, so their ranks are consecutive.
    pub(crate) fn stage_ranks(&self, stage: u32) -> (u32, u32) {
        let size = self.plan.mesh.stride(Axis::Pp);
        (stage * size, size)
    }
    /// The rank that stands for a stage: its first among those traced.
    pub(crate) fn representative(&self, trace: &Trace, stage: u32) -> Option<u32> {
        let (first, size) = self.stage_ranks(stage);
        trace.ranks.iter().copied().find(|r| (first..first + size).contains(r))
    }
    /// Names of a stage's blocks: `embed – layer.5 (7 blocks)`.
    pub(crate) fn blocks_of(&self, stage: u32) -> String {
        let plan = &self.plan.stages[stage as usize];
        let name = |k: u32| self.plan.job.model.block_name(k);
        match plan.blocks {
            1 => name(plan.first),
            n => format!("{} – {} ({n} blocks)", name(plan.first), name(plan.first + n - 1)),
        }
    }
    /// Ranks that charts of time show of a stage: its first traced ones, more of them where there are few stages.
    pub(crate) fn drawn_ranks(&self, stage: u32) -> Vec<u32> {
        let each = (RANKS_DRAWN / self.shown_stages().len().max(1)).max(1);
        let (first, size) = self.stage_ranks(stage);
        let traced = |t: &Trace| {
            t.ranks.iter().copied().filter(|r| (first..first + size).contains(r)).collect::<Vec<_>>()
        };
        let mut ranks: Vec<u32> = self.traces().into_iter().flat_map(|(_, t)| traced(t)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.truncate(each);
        ranks
    }
    /// The predicted and the measured trace, whichever exist, with their names.
    pub(crate) fn traces(&self) -> Vec<(&'static str, &'a Trace)> {
        let both = [("predicted", self.predicted), ("measured", self.measured)];
        both.into_iter().filter_map(|(name, t)| t.map(|t| (name, t))).collect()
    }
    /// Measured step time: as given, or that of the measured trace.
    pub(crate) fn measured_step(&self) -> Option<f64> {
        self.measured_step_s.or_else(|| self.measured.map(|t| t.step_time.seconds()))
    }
    /// The stage with the highest predicted peak, and that peak.
    pub(crate) fn peak(&self) -> Option<(u32, Bytes)> {
        let peaks = self.plan.prediction.peak_memory_bytes.iter().copied().enumerate();
        // The first of equals, so that the answer does not depend on how many stages tie.
        peaks.rev().max_by_key(|(_, b)| *b).map(|(s, b)| (s as u32, b))
    }
}
