//! What a search's points say together: which of them nothing beats in both time and memory, and what each of the others
//! would need. The invariant: both are read off what the planner recorded; nothing is priced here.

use crate::{Axis, Bytes, Candidate, Plan, SearchReport, StateSharding};

/// What would have to change for a candidate to be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Need {
    /// It is this much short of memory, even in its smallest choice. By closed form its step is so many times the plan's,
    /// where that is known.
    Memory {
        /// Bytes that a rank lacks.
        short: Bytes,
        /// Step time over the plan's.
        step: Option<f64>,
    },
    /// It fits, and its step is so many times the plan's, both by closed form.
    Time {
        /// Step time over the plan's.
        step: f64,
    },
    /// It was not solved: no choice of it takes less than so many times the plan's closed form.
    Bound {
        /// Least step time over the plan's.
        step: f64,
    },
    /// A rule is in the way, which its reason names.
    Rule,
}

impl SearchReport {
    /// Positions of the feasible points that no other beats in step time and peak memory, by falling memory; of equals
    /// the first.
    pub fn pareto(&self) -> Vec<usize> {
        let place = |c: &Candidate| Some((c.closed_form_s.filter(|s| s.is_finite())?, c.peak_memory_bytes?));
        let fitting = self.points.iter().enumerate().filter(|(_, c)| c.rejected.is_none());
        let mut places: Vec<(f64, Bytes, usize)> =
            fitting.filter_map(|(k, c)| place(c).map(|(s, b)| (s, b, k))).collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        let mut least: Option<Bytes> = None;
        places.retain(|(_, bytes, _)| {
            let better = least.is_none_or(|l| *bytes < l);
            if better {
                least = Some(*bytes);
            }
            better
        });
        places.into_iter().map(|(_, _, k)| k).collect()
    }
}

impl Plan {
    /// What a candidate of this plan's search would need to be chosen instead.
    pub fn need(&self, c: &Candidate) -> Need {
        let limit = self.prediction.memory_limit_bytes;
        let own = self.prediction.closed_form_s;
        let over = |s: Option<f64>| s.map(|s| s / own).filter(|x| x.is_finite() && *x > 0.0);
        let least = c.peak_memory_bytes.or(c.states_bytes);
        match (least.filter(|b| *b > limit), over(c.closed_form_s), over(c.bound_s)) {
            (Some(bytes), step, _) if c.rejected.is_some() => Need::Memory { short: bytes - limit, step },
            (_, Some(step), _) => Need::Time { step },
            (_, None, Some(step)) if c.rejected.is_some() => Need::Bound { step },
            (_, None, _) => Need::Rule,
        }
    }
}

impl Plan {
    /// Pins that lead a search back to this point: `dp=2,tp=2,…`. What is recomputed is left to the planner, which may mix
    /// levels as no pin can.
    pub fn pins(&self) -> String {
        let degree = |a: Axis| format!("{a}={}", self.mesh.degree(a));
        let zero = match self.state_sharding {
            StateSharding::None => 0,
            StateSharding::Zero1 => 1,
            StateSharding::Zero2 => 2,
            StateSharding::Zero3 => 3,
        };
        let others = [
            format!("sp={}", self.sequence_parallel()),
            format!("microbatch={}", self.micro_batch),
            format!("schedule={}", self.schedule),
            format!("zero={zero}"),
        ];
        let fsdp = (self.mesh.degree(Axis::Fsdp) > 1).then_some(Axis::Fsdp);
        let axes = [Axis::Dp].into_iter().chain(fsdp).chain([Axis::Tp, Axis::Pp]);
        axes.map(degree).chain(others).collect::<Vec<_>>().join(",")
    }
}
