//! The fields of a plan that may be changed, by dotted path. Paths are those of the plan's JSON, without `job.` in front
//! and with levels by name; what a field accepts is what its type and the noun's own check accept. The invariant: a plan
//! that comes out differs in the named field only, and in the micro-batch count that follows from it.

use crate::Failure;
use crate::change::{Amount, MOST};
use meshwright_algebra::storages_of;
use meshwright_ir::{Cluster, Plan, Recompute, SearchReport, Storage};
use meshwright_zoo::nearest;
use serde_json::Value;

/// A field: its path as a person writes it, and as a JSON pointer into the plan.
struct Field {
    path: String,
    pointer: String,
}

/// Choices of a plan.
const CHOICES: [&str; 4] = ["micro_batch", "micro_batches", "schedule", "state_sharding"];
/// Of the job's training: what a step's time or memory depends on.
const TRAINING: [&str; 5] = ["sequence", "global_batch", "precision", "optimizer", "clip"];
/// Of the search: only a new plan can follow.
const SEARCH: [&str; 2] = ["ranks", "objective"];
/// Of the device.
const DEVICE: [&str; 6] = ["memory", "reserved", "memory_bandwidth", "core_bandwidth", "cores", "launch"];
/// Of a level of interconnect.
const LEVEL: [&str; 3] = ["bandwidth", "latency", "efficiency"];

/// Size of the cluster, which no single field holds.
const NODES: &str = "cluster.nodes";
/// One word for all blocks of the chain.
const RECOMPUTE: &str = "recompute";
/// One word for all parameters.
const SHARDING: &str = "state_sharding";

/// Largest count of anything: sequences, tokens, cores.
const MOST_COUNT: u64 = 1 << 24;
/// Longest latency or launch: ten seconds, in picoseconds.
const LONGEST: u64 = 10_000_000_000_000;

/// `path` in its short form: without the `plan.` and `job.` that the JSON plan has in front.
pub(crate) fn short(path: &str) -> &str {
    let path = path.strip_prefix("plan.").unwrap_or(path);
    path.strip_prefix("job.").unwrap_or(path)
}

/// The plan with one field changed; `path` is short. Its choices may have become illegal; its cluster is sound.
pub(crate) fn changed(plan: &Plan, path: &str, amount: &Amount) -> Result<Plan, Failure> {
    let plan = Plan { search: SearchReport::default(), ..plan.clone() };
    let after = match path {
        NODES => with_nodes(plan, amount)?,
        RECOMPUTE => with_recompute(plan, amount)?,
        SHARDING => with_storage(with_field(&plan, path, amount)?),
        _ => with_field(&plan, path, amount)?,
    };
    after.job.cluster.check().map_err(Failure::of)?;
    Ok(count_micro_batches(after, path))
}

/// Every parameter that may be is stored as the plan's word says.
fn with_storage(mut plan: Plan) -> Plan {
    let stages = plan.stages.len() as u32;
    let wanted = Storage::of_word(plan.state_sharding, &plan.mesh);
    for (c, choices) in plan.classes.iter_mut().enumerate() {
        let strategies = &choices.strategies;
        choices.storage = storages_of(&plan.job.model, c as u32, strategies, stages, &plan.mesh, wanted);
    }
    plan
}

fn with_nodes(mut plan: Plan, amount: &Amount) -> Result<Plan, Failure> {
    let job = &mut plan.job;
    let (before, nodes) = (job.cluster.ranks(), u64::from(job.cluster.nodes()));
    let nodes = whole(NODES, nodes, amount)?;
    let nodes = u32::try_from(nodes).map_err(|_| wrong(NODES, &nodes.to_string(), "write fewer nodes"))?;
    meshwright_zoo::resize(&mut job.cluster, nodes).map_err(Failure::of)?;
    if job.search.ranks == before {
        job.search.ranks = job.cluster.ranks();
    }
    Ok(plan)
}

fn with_recompute(mut plan: Plan, amount: &Amount) -> Result<Plan, Failure> {
    let level: Recompute = match amount {
        Amount::To(word) => {
            word.parse().map_err(|e: String| Failure::new(format!("{RECOMPUTE}: {e}"), ""))?
        }
        Amount::Times(x) => {
            return Err(wrong(RECOMPUTE, &format!("{x}x"), "write none, gathers, selective or full"));
        }
    };
    plan.recompute.fill(level);
    Ok(plan)
}

fn with_field(plan: &Plan, path: &str, amount: &Amount) -> Result<Plan, Failure> {
    let mut document = serde_json::to_value(plan).expect("a plan is JSON");
    let fields = fields(&document, &plan.job.cluster);
    let field = fields.iter().find(|f| f.path == path).ok_or_else(|| unknown(path, &fields))?;
    let place = document.pointer_mut(&field.pointer).expect("fields point into the plan");
    *place = value(path, place, amount)?;
    serde_json::from_value(document).map_err(|e| {
        let given = match amount {
            Amount::To(given) => given.clone(),
            Amount::Times(x) => format!("{x}x"),
        };
        Failure::new(format!("{path}={given}: {e}"), "write a value that the field takes")
    })
}

/// Every field that `document`, a plan, has.
fn fields(document: &Value, cluster: &Cluster) -> Vec<Field> {
    let field = |path: String, pointer: String| Field { path, pointer };
    let under = |prefix: &str, names: &[&str]| -> Vec<Field> {
        let at = |n: &&str| field(format!("{prefix}.{n}"), format!("/job/{}/{n}", prefix.replace('.', "/")));
        names.iter().map(at).collect()
    };
    let keys = |pointer: &str| -> Vec<String> {
        let object = document.pointer(pointer).and_then(Value::as_object);
        object.map(|o| o.keys().cloned().collect()).unwrap_or_default()
    };
    let mut all: Vec<Field> = CHOICES.iter().map(|n| field(n.to_string(), format!("/{n}"))).collect();
    all.extend(
        keys("/algorithms").iter().map(|a| field(format!("algorithms.{a}"), format!("/algorithms/{a}"))),
    );
    all.extend(under("training", &TRAINING));
    all.extend(under("cluster.device", &DEVICE));
    let peaks = keys("/job/cluster/device/peak");
    all.extend(under("cluster.device.peak", &peaks.iter().map(String::as_str).collect::<Vec<_>>()));
    for (k, level) in cluster.levels.iter().enumerate() {
        let at = |n: &&str| {
            field(format!("cluster.levels.{}.{n}", level.name), format!("/job/cluster/levels/{k}/{n}"))
        };
        all.extend(LEVEL.iter().map(at));
    }
    all.extend(under("search", &SEARCH));
    all.retain(|f| document.pointer(&f.pointer).is_some());
    all
}

fn unknown(path: &str, fields: &[Field]) -> Failure {
    let known: Vec<&str> = fields.iter().map(|f| f.path.as_str()).chain([NODES, RECOMPUTE]).collect();
    let tail = |k: &&&str| k.rsplit('.').next() == path.rsplit('.').next();
    let meant = nearest(path, known.iter().copied()).or_else(|| known.iter().find(tail).copied());
    let hint = meant.map(|m| format!("did you mean `{m}`? ")).unwrap_or_default();
    // Siblings share their parent, so that the list stays short.
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (parent, leaf) in known.iter().map(|k| k.rsplit_once('.').unwrap_or(("", k))) {
        match groups.iter_mut().find(|(p, _)| *p == parent) {
            Some((_, leaves)) => leaves.push(leaf),
            None => groups.push((parent, vec![leaf])),
        }
    }
    let line = |(parent, leaves): &(&str, Vec<&str>)| match (*parent, leaves.as_slice()) {
        ("", leaves) => leaves.join(", "),
        (parent, [leaf]) => format!("{parent}.{leaf}"),
        (parent, leaves) => format!("{parent}.{{{}}}", leaves.join(",")),
    };
    let list = groups.iter().map(line).collect::<Vec<_>>().join(", ");
    Failure::new(format!("{path}: no such path in the plan"), format!("{hint}Known are {list}"))
}

fn wrong(path: &str, found: &str, fix: &str) -> Failure {
    Failure::new(format!("{path}: {found}"), fix)
}

/// What a field that holds `old` becomes.
fn value(path: &str, old: &Value, amount: &Amount) -> Result<Value, Failure> {
    match (old, amount) {
        (Value::Number(n), _) => match n.as_u64() {
            Some(old) => whole(path, old, amount).map(Value::from),
            None => real(path, n.as_f64().expect("numbers of a plan are finite"), amount).map(Value::from),
        },
        (_, Amount::To(word)) => Ok(Value::from(word.clone())),
        (_, Amount::Times(x)) => Err(wrong(path, &format!("{x}x of {old}"), "write a word, not a factor")),
    }
}

/// A whole number: a count, a size in bytes or a time in picoseconds.
fn whole(path: &str, old: u64, amount: &Amount) -> Result<u64, Failure> {
    let leaf = path.rsplit('.').next().unwrap_or(path);
    let (unit, most) = match leaf {
        "memory" | "reserved" => ("a size in bytes", 1 << 60),
        "latency" | "launch" => ("a time in picoseconds", LONGEST),
        _ => ("a count", MOST_COUNT),
    };
    let (found, number) = match amount {
        Amount::Times(x) => {
            let product = old as f64 * x;
            let exact = unit == "a count" && (product - product.round()).abs() > 1e-9 * product;
            (format!("{x} times {old}"), Some(product).filter(|_| !exact).map(f64::round))
        }
        Amount::To(text) => (text.clone(), text.parse::<f64>().ok().filter(|x| x.fract() == 0.0)),
    };
    // Parsed as a whole number first: a float cannot hold every size.
    let precise = match amount {
        Amount::To(text) => text.parse::<u64>().ok(),
        Amount::Times(_) => None,
    };
    let least = u64::from(unit == "a count");
    let number = precise.or(number.filter(|x| (0.0..1e18).contains(x)).map(|x| x as u64));
    number.filter(|n| (least..=most).contains(n)).ok_or_else(|| {
        wrong(
            path,
            &found,
            &format!("write {unit}: a whole number from {least} to {most}, or a factor as in 2x"),
        )
    })
}

/// A rate or a share: finite, above zero, and within four orders of magnitude of what it was.
fn real(path: &str, old: f64, amount: &Amount) -> Result<f64, Failure> {
    let (found, number) = match amount {
        Amount::Times(x) => (format!("{x} times {old}"), Some(old * x)),
        Amount::To(text) => (text.clone(), text.parse::<f64>().ok()),
    };
    let near = |x: &f64| {
        let norm = path == "training.clip" && (0.0..=1e9).contains(x);
        norm || (x.is_finite() && *x >= old / MOST && *x <= old * MOST)
    };
    number.filter(near).ok_or_else(|| {
        let fix = format!(
            "write a number within four orders of magnitude of the plan's {old:e}, or a factor as in 2x"
        );
        wrong(path, &found, &fix)
    })
}

/// The global batch stays as it is asked for: whichever of micro-batch and count was not set follows. Where nothing whole
/// does, the plan's own check says so.
fn count_micro_batches(mut plan: Plan, path: &str) -> Plan {
    let per_replica = plan.job.training.global_batch / u64::from(plan.mesh.replicas());
    match path {
        "micro_batch" | "training.global_batch" => plan.micro_batches = per_replica / plan.micro_batch,
        "micro_batches" => plan.micro_batch = per_replica / plan.micro_batches,
        _ => {}
    }
    plan
}
