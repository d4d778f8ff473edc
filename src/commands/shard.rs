//! `shard`: solves an *iopddl* sharding problem within a limit of wall time.

use super::{Answer, output};
use clap::Args;
use meshwright::{Failure, files};
use meshwright_planner::shard::{self, Effort};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct Arguments {
    /// An iopddl problem, `.json` or `.json.gz`.
    problem: PathBuf,
    /// Wall time, parsing included; 0.5 is half a second.
    seconds: f64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct View {
    /// Sum of all costs of the solution.
    cost: u128,
    /// Whether it takes nothing that is ruled out and fits the limit at every time.
    feasible: bool,
    /// No feasible solution costs less; null where it is proved that there is none.
    lower_bound: Option<u128>,
    /// (cost - lower bound) / cost; null where no feasible solution is known.
    gap: Option<f64>,
    seconds: f64,
    solution: Vec<u32>,
}

/// Longest limit: what a clock can add to now.
const LONGEST: f64 = 1e9;

/// Wall time left for a last check, for printing and for leaving: a share of the limit, and some (a guess).
const SPARE: (f64, f64) = (0.02, 0.1);

pub(crate) fn command(a: Arguments) -> Result<Answer, Failure> {
    let start = Instant::now();
    if !(a.seconds > 0.0 && a.seconds <= LONGEST) {
        let message = format!("SECONDS is {}: no limit to work within", a.seconds);
        return Err(Failure::new(message, "give seconds above 0, such as 60"));
    }
    let file = a.problem.display().to_string();
    let bytes = files::read_bytes(&a.problem)?;
    let instance = shard::parse(&bytes).map_err(|e| Failure::in_file(&file, e))?;
    drop(bytes);
    // What reading took says how busy the machine is.
    let spare = SPARE.0 * a.seconds + SPARE.1 + 0.2 * start.elapsed().as_secs_f64();
    let until = start + Duration::from_secs_f64((a.seconds - spare).max(0.3 * a.seconds));
    let stop = || Instant::now() >= until;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let found = shard::solve(&instance, Effort { threads, sweeps: None, stop: &stop });
    let proved = found.proved();
    let (solution, score) = found.best.unwrap_or_default();
    let known = score.feasible && found.lower_bound <= score.cost;
    let gap = known.then(|| (score.cost - found.lower_bound) as f64 / (score.cost as f64).max(1.0));
    let view = View {
        cost: score.cost,
        feasible: score.feasible,
        lower_bound: found.infeasible.is_none().then_some(found.lower_bound),
        gap,
        seconds: start.elapsed().as_secs_f64(),
        solution,
    };
    let answer = if view.feasible { Answer::Yes } else { Answer::No };
    if a.json {
        output::json(&view);
        return Ok(answer);
    }
    let verdict = match (&found.infeasible, gap) {
        (Some(why), _) => format!("no solution: {why}"),
        (None, Some(_)) if proved => "optimal".to_string(),
        (None, Some(gap)) => {
            format!("feasible, at most {} above the optimum", format_args!("{:.4} %", 100.0 * gap))
        }
        (None, None) => "none found that is feasible; the list is the best so far".to_string(),
    };
    let limit = instance.limit.map_or("none".into(), |l| l.to_string());
    let rows = [
        ("problem", format!("{} nodes, {} edges", instance.nodes.len(), instance.edges.len())),
        (
            "after presolve",
            format!("{} nodes, {} edges, {} memory rows", found.left[0], found.left[1], found.left[2]),
        ),
        ("verdict", verdict),
        ("cost", view.cost.to_string()),
        ("lower bound", view.lower_bound.map_or("none".into(), |b| b.to_string())),
        ("memory", format!("{} of {limit} at the peak", score.peak)),
        ("seconds", format!("{:.2}", view.seconds)),
    ];
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(k, v)| vec![k.into(), v]).collect();
    let list: Vec<String> = view.solution.iter().map(u32::to_string).collect();
    output::say(&format!("{}\n\n{}\n[{}]\n", instance.name, output::pairs(&rows), list.join(", ")));
    Ok(answer)
}
