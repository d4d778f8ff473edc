//! A trace in five numbers. Shares are means over one rank per stage, so every stage counts once however many ranks it
//! has. Kernels hide collectives and both hide waiting between stages, also that in a collective which spans stages.

use meshwright_ir::program::Action;
use meshwright_ir::trace::{Span, Trace};
use meshwright_ir::{Axis, Bytes, Program, Time};

/// What a person asks of a step first.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Length of the step.
    pub step_time: Time,
    /// Share of the step in which the first rank of a stage had nothing under way or waited for another stage.
    pub bubble_fraction: f64,
    /// Share of the step in which it ran no kernel while a collective within the stage was under way.
    pub exposed_comm_fraction: f64,
    /// Largest live bytes of any traced rank of each stage.
    pub peaks: Vec<Bytes>,
    /// Instructions in the trace.
    pub instructions: u64,
}

impl Summary {
    /// Summary of a trace of `program`, of all ranks or of one per stage.
    pub fn of(program: &Program, trace: &Trace) -> Self {
        let stride = program.mesh.stride(Axis::Pp);
        let first: Vec<u32> = trace.ranks.iter().copied().filter(|r| r % stride == 0).collect();
        let kernel = |action: Action| matches!(action, Action::Compute(_));
        let inside = |action: Action| match action {
            Action::Compute(_) => true,
            Action::Collective(c) => !program.collectives[c as usize].axes.contains(Axis::Pp),
            Action::Exchange(_) => false,
        };
        let over = |keep: &dyn Fn(Action) -> bool| -> u64 {
            let of_rank = |rank: &u32| {
                let code = program.code_of(*rank);
                let kept = |s: &&Span| keep(code.instructions[s.instruction as usize].action);
                covered(trace.of_rank(*rank).iter().filter(kept))
            };
            first.iter().map(of_rank).sum()
        };
        let (computing, busy) = (over(&kernel), over(&inside));
        let whole = trace.step_time.get() * first.len() as u64;
        let share = |time: u64| if whole > 0 { time as f64 / whole as f64 } else { 0.0 };
        let mut peaks = vec![Bytes::ZERO; program.roles.len()];
        for points in trace.memory.chunk_by(|a, b| a.rank == b.rank) {
            let peak = &mut peaks[program.role_of(points[0].rank)];
            *peak = points.iter().map(|p| p.bytes).fold(*peak, Bytes::max);
        }
        Self {
            step_time: trace.step_time,
            bubble_fraction: share(whole - busy),
            exposed_comm_fraction: share(busy - computing),
            peaks,
            instructions: trace.spans.len() as u64,
        }
    }
}

/// Time in which at least one of the spans, by rising start, was under way.
fn covered<'a>(spans: impl Iterator<Item = &'a Span>) -> u64 {
    let add = |(total, reach): (u64, u64), s: &Span| {
        (total + s.end.get().saturating_sub(reach.max(s.start.get())), reach.max(s.end.get()))
    };
    spans.fold((0, 0), add).0
}
