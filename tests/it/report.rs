//! What a report adds to a plan: the load on the interconnect and what would help, held to other ways of computing them.

use crate::plans;
use meshwright::advice::advice;
use meshwright::load::load;
use meshwright::{Change, what_if};
use meshwright_ir::{Axis, AxisSet, Plan};

/// Two nodes, so that every axis may meet either level.
fn plan(dp: u32, tp: u32, pp: u32) -> Plan {
    plans::on_h100(dp, tp, pp, Some(2))
}

#[test]
fn what_would_help_is_what_whatif_says() {
    for (dp, tp, pp) in [(2, 2, 2), (8, 2, 1), (1, 4, 2)] {
        let plan = plan(dp, tp, pp);
        let program = meshwright::lower(&plan).unwrap();
        let actions = advice(&plan, &program);
        assert!(!actions.is_empty() && actions.windows(2).all(|w| w[0].gain >= w[1].gain));
        let changes: Vec<Change> = actions.iter().map(|a| Change::set(&a.change).unwrap()).collect();
        let answer = what_if(&plan, &changes, false).unwrap();
        for (action, case) in actions.iter().zip(&answer.cases) {
            assert_eq!(case.step_time_s, Some(action.step_time_s), "{}", action.change);
            let faster = case.goodput.unwrap() / answer.baseline.goodput.unwrap();
            assert!((1.0 - 1.0 / faster - action.gain).abs() < 1e-9, "{}", action.change);
        }
    }
}

#[test]
fn bytes_on_levels_are_the_bytes_of_the_axes() {
    for (dp, tp, pp) in [(2, 2, 1), (8, 2, 1), (4, 4, 1), (1, 4, 1)] {
        let plan = plan(dp, tp, pp);
        let load = load(&meshwright::lower(&plan).unwrap(), &plan.job.cluster, 1.0);
        let levels: u64 = load.levels.iter().map(|l| l.bytes.get()).sum();
        let axes: u64 = load.axes.iter().map(|a| a.bytes.get()).sum();
        assert!(levels.abs_diff(axes) <= 4, "dp={dp} tp={tp}: {levels} and {axes}");
        assert!(load.levels.iter().all(|l| l.busy >= 0.0 && l.busy.is_finite()));
    }
    // Sixteen ranks on two nodes: eight replicas of two meet on both levels, peers of one layer on the inner alone.
    let load = load(&meshwright::lower(&plan(8, 2, 1)).unwrap(), &plan(8, 2, 1).job.cluster, 1.0);
    let of = |axis: Axis| load.axes.iter().find(|a| a.axes == AxisSet::of(axis)).unwrap().levels.clone();
    assert_eq!(
        (of(Axis::Dp), of(Axis::Tp)),
        (vec!["nvlink".into(), "infiniband".into()], vec!["nvlink".into()])
    );
}
