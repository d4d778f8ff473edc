//! The text form of a program: one line per thing, words separated by spaces, positions implied by order. It round-trips
//! through `parse`, and is what golden tests compare. Names are percent-escaped where they hold white space.

use super::{Action, Code, Program};
use crate::Init;
use std::fmt;

fn escape(name: &str) -> String {
    if name.is_empty() {
        return "%;".into();
    }
    name.chars()
        .flat_map(|c| {
            if c.is_whitespace() || c == '%' { format!("%{:x};", c as u32) } else { c.to_string() }
                .chars()
                .collect::<Vec<_>>()
        })
        .collect()
}

fn list(items: &[u32]) -> String {
    if items.is_empty() { "-".into() } else { items.iter().map(u32::to_string).collect::<Vec<_>>().join(",") }
}

fn optional<T: fmt::Display>(x: Option<T>) -> String {
    x.map_or("-".into(), |x| x.to_string())
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "meshwright-program 1")?;
        writeln!(f, "mesh {}", self.mesh)?;
        writeln!(f, "step tokens={} micro_batches={}", self.tokens, self.micro_batches)?;
        self.streams.iter().try_for_each(|s| writeln!(f, "stream {s}"))?;
        self.kernels.iter().try_for_each(|k| writeln!(f, "kernel {k}"))?;
        for c in &self.collectives {
            let stages = c.stages.as_ref().map_or("*".to_string(), |s| list(s));
            writeln!(
                f,
                "collective {} {} stages={stages} n={} {} {}",
                c.kind, c.axes, c.elements, c.dtype, c.algorithm
            )?;
        }
        for e in &self.exchanges {
            writeln!(
                f,
                "exchange {:+} send={} receive={} {}",
                e.peer,
                optional(e.send),
                optional(e.receive),
                e.dtype
            )?;
        }
        self.names.iter().try_for_each(|n| writeln!(f, "name {}", escape(n)))?;
        self.roles.iter().enumerate().try_for_each(|(r, code)| write_role(f, r, code))
    }
}

fn write_role(f: &mut fmt::Formatter<'_>, role: usize, code: &Code) -> fmt::Result {
    writeln!(
        f,
        "role {role} arena={} loss={} norm={}",
        code.arena.0,
        optional(code.loss),
        optional(code.norm)
    )?;
    for b in &code.buffers {
        writeln!(f, "buffer {} {} {} @{} {}", b.name, b.dtype, b.elements, b.offset.0, b.class)?;
    }
    for p in &code.parameters {
        let shape = match p.shape.is_empty() {
            true => "-".to_string(),
            false => p.shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x"),
        };
        let init = match p.init {
            Init::Normal { std } => format!("normal={std}"),
            Init::Ones => "ones".into(),
            Init::Zeros => "zeros".into(),
        };
        let (name, master, moments) = (escape(&p.name), optional(p.master), list(&p.moments));
        writeln!(
            f,
            "param {name} {shape} {} {init} decays={} storage={} w={} m={master} g={} s={moments}",
            p.layout, p.decays, p.storage, p.weight, p.gradient
        )?;
    }
    for (k, i) in code.instructions.iter().enumerate() {
        let action = match i.action {
            Action::Compute(n) => format!("k{n}"),
            Action::Collective(n) => format!("c{n}"),
            Action::Exchange(n) => format!("x{n}"),
        };
        let (reads, writes, after) = (list(code.reads(k)), list(code.writes(k)), list(code.after(k)));
        writeln!(
            f,
            "{action} s{} mb={} b={} r={reads} w={writes} a={after}",
            i.stream, i.micro_batch, i.block
        )?;
    }
    Ok(())
}
