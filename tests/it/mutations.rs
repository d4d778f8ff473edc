//! Documents changed at random, through the library's entry points: each is refused or taken, and whatever is taken goes
//! on to the end. A panic anywhere fails the test; hundreds of changes of each document, the same in every run.

use crate::plans::{self, Shape};
use meshwright::files::{plan_from, program_from};
use meshwright_ir::program::Checked;
use meshwright_ir::{Cluster, Plan, Schedule, Trace};
use serde_json::{Value, json};
use std::path::Path;

/// Changes of each document.
const CHANGES: usize = 300;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
    fn pick<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

/// Numbers that have broken something somewhere.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "255",
    "65536",
    "16777217",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
];

fn cluster() -> Cluster {
    meshwright_zoo::cluster("h100-sxm", None, Path::new("")).unwrap().0
}

fn plan() -> Plan {
    let shape = Shape {
        model: plans::gpt(2),
        dp: 2,
        fsdp: 1,
        tp: 2,
        pp: 2,
        sp: true,
        micro_batch: 1,
        global_batch: 8,
        sequence: 16,
        schedule: Schedule::OneForwardOneBackward,
    };
    let mut plan = plans::plan(&shape, &mut plans::megatron(true)).expect("even sizes convert");
    plan.job.cluster = cluster();
    plan
}

/// What happens to a plan that was taken.
fn follow(plan: &Plan) {
    let Ok(program) = meshwright::lower(plan) else { return };
    let Ok(simulated) = meshwright::simulate(&program, &plan.job.cluster, false) else { return };
    let _ = program.to_string().parse::<meshwright_ir::Program>().expect("what is written can be read");
    let _ = meshwright::report(plan, Some(&program), Some(&simulated), None, None, "meshwright report");
}

/// Every place in a document.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_string());
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(k, v)| {
                places(v, &format!("{at}/{}", k.replace('~', "~0").replace('/', "~1")), all)
            });
        }
        Value::Array(list) => list.iter().enumerate().for_each(|(k, v)| places(v, &format!("{at}/{k}"), all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The document with a few values replaced by something of their kind or not, dropped, or doubled.
fn changed(document: &Value, dice: &mut Dice) -> Value {
    let mut document = document.clone();
    for _ in 0..1 + dice.below(2) {
        let mut all = vec![];
        places(&document, "", &mut all);
        let at = dice.pick(&all[1..]).clone();
        let place: &String = dice.pick(&all);
        let other = document.pointer(place).cloned().unwrap_or_default();
        let number: &&str = dice.pick(&NUMBERS);
        let number: Value = serde_json::from_str(number).unwrap();
        let choice = dice.below(8);
        let value = document.pointer_mut(&at).expect("a place of this document");
        *value = match (&*value, choice) {
            (Value::Number(_), 0..=4) => number,
            (Value::Number(n), 5) => json!(n.as_f64().unwrap_or(1.0) * 1e200),
            (Value::Array(list), 0..=2) => list.iter().chain(list).cloned().collect(),
            (Value::Array(list), 3..=5) => list.iter().skip(1).cloned().collect(),
            (Value::String(_), 0..=3) => {
                json!(dice.pick(&["tp", "dp", "pp", "fsdp", "ring", "tree", "none"]))
            }
            (Value::Object(map), 0..=4) => {
                let mut map = map.clone();
                let key = map.keys().nth(dice.below(map.len().max(1))).cloned();
                key.and_then(|k| map.remove(&k));
                if choice > 2 {
                    map.insert(dice.pick(&["tp", "dp", "cp"]).to_string(), json!(dice.below(5)));
                }
                Value::Object(map)
            }
            (_, 6) => other,
            (_, 7) => Value::Null,
            (_, _) => number,
        };
    }
    document
}

#[test]
fn a_changed_plan_is_refused_or_goes_all_the_way() {
    let document = serde_json::to_value(plan()).unwrap();
    let mut dice = Dice(1);
    let mut taken = 0;
    for _ in 0..CHANGES {
        let text = changed(&document, &mut dice).to_string();
        if let Ok(plan) = plan_from("plan.json", &text) {
            taken += 1;
            follow(&plan);
        }
    }
    assert!((CHANGES / 50..CHANGES).contains(&taken), "{taken} of {CHANGES} changes are harmless");
}

#[test]
fn a_changed_program_is_refused_or_simulated() {
    let text = meshwright::lower(&plan()).unwrap().to_string();
    let lines: Vec<&str> = text.lines().collect();
    let cluster = cluster();
    let mut dice = Dice(2);
    let mut taken = 0;
    for _ in 0..CHANGES {
        let mut spoilt: Vec<String> = lines.iter().map(|l| l.to_string()).collect();
        // Tables stand at the front and matter most.
        let near = dice.below(2) == 0;
        let at = dice.below(if near { lines.len().min(80) } else { lines.len() });
        match dice.below(8) {
            0 => spoilt.truncate(at),
            1 => drop(spoilt.remove(at)),
            2 => spoilt.insert(at, dice.pick(&lines).to_string()),
            3 => spoilt.swap(at, (at + 1) % lines.len()),
            _ => {
                let words: Vec<String> = spoilt[at].split(' ').map(str::to_string).collect();
                let digits: Vec<usize> =
                    (0..words.len()).filter(|k| words[*k].contains(|c: char| c.is_ascii_digit())).collect();
                if !digits.is_empty() {
                    let mut words = words;
                    let word = &mut words[*dice.pick(&digits)];
                    let from = word.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
                    let rest = word[from..].trim_start_matches(|c: char| c.is_ascii_digit()).to_string();
                    *word = format!("{}{}{rest}", &word[..from], dice.pick(&NUMBERS));
                    spoilt[at] = words.join(" ");
                }
            }
        }
        if let Ok(program) = program_from("step.program", &spoilt.join("\n"))
            && program.mesh.ranks() <= cluster.ranks()
        {
            taken += 1;
            let _ = meshwright::simulate(&program, &cluster, taken % 2 == 0);
        }
    }
    assert!((CHANGES / 50..CHANGES).contains(&taken), "{taken} of {CHANGES} changes are harmless");
}

#[test]
fn a_changed_trace_is_refused_or_drawn() {
    let plan = plan();
    let program: Checked = meshwright::lower(&plan).unwrap();
    let simulated = meshwright::simulate(&program, &plan.job.cluster, false).unwrap();
    simulated.trace.check(&program).unwrap();
    let document = serde_json::to_value(&simulated.trace).unwrap();
    let mut dice = Dice(3);
    let mut taken = 0;
    for _ in 0..CHANGES {
        let Ok(trace) = serde_json::from_value::<Trace>(changed(&document, &mut dice)) else { continue };
        if trace.check(&program).is_ok() {
            taken += 1;
            let _ = meshwright::report(&plan, Some(&program), Some(&simulated), Some(&trace), None, "report");
        }
    }
    assert!(taken < CHANGES, "no change of a trace is refused");
    // A trace of another plan is told apart.
    let mut other = plan.clone();
    (other.micro_batches, other.job.training.global_batch) = (2, 4);
    let other = meshwright::lower(&other).unwrap();
    assert!(simulated.trace.check(&other).is_err());
}
