//! A trace as Chrome trace events (the JSON object form that Perfetto and chrome://tracing open): one process per rank,
//! one thread per stream, an arrow for each message, a counter for the arena. Times are microseconds, written exactly from
//! integer picoseconds. Events are written as they are made, so memory does not grow with their number. The invariant:
//! every arrow that begins also ends, within the slices of the two halves.
//! Format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use crate::kind::Kind;
use meshwright_ir::program::{Action, Instruction};
use meshwright_ir::trace::{MemoryPoint, Span, TraceSource};
use meshwright_ir::{Axis, Program, Time, Trace};
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// What the short names of an event's arguments stand for.
const ARGUMENTS: &str = "i: position in the listing of the stage, mb: micro-batch, block: block of the model";

/// Changes of memory below this share of a rank's peak are not drawn: a line of a screen's height has no more steps.
const FINEST: u64 = 1024;

/// Writes the trace of one step of `program` as one JSON object but for its closing brace, so that a caller may add keys
/// of its own. Spans and messages are written all; memory but for changes too small to be seen.
///
/// # Panics
/// If a span names a rank or an instruction that the program does not have.
pub fn perfetto(program: &Program, trace: &Trace, out: &mut dyn Write) -> Result<()> {
    let source = match trace.source {
        TraceSource::Predicted => "predicted",
        TraceSource::Measured => "measured",
    };
    let (mesh, arguments) = (quoted(&program.mesh.to_string()), quoted(ARGUMENTS));
    write!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"producer\":\"meshwright\",\"source\":\"{source}\",\
         \"mesh\":{mesh},\"args\":{arguments}}},\"traceEvents\":["
    )?;
    let names = Names::of(program);
    let mut events = Events { out, any: false, program, names: &names };
    for rank in &trace.ranks {
        events.name_rank(*rank)?;
    }
    for span in &trace.spans {
        events.span(span)?;
    }
    for (id, (send, receive)) in messages(program, trace).into_iter().enumerate() {
        events.arrow(id, &send, &receive)?;
    }
    for points in trace.memory.chunk_by(|a, b| a.rank == b.rank) {
        events.memory(points)?;
    }
    events.out.write_all(b"]")
}

/// The list of events so far.
struct Events<'a> {
    out: &'a mut dyn Write,
    any: bool,
    program: &'a Program,
    names: &'a Names,
}

/// Name and category of every action, as the JSON fields that events hold.
struct Names {
    kernels: Vec<String>,
    collectives: Vec<String>,
    exchanges: Vec<String>,
}

impl Names {
    fn of(program: &Program) -> Self {
        let fields = |action: Action| {
            let (name, kind) = (quoted(&program.kind_name(action)), Kind::of(program, action).name());
            format!("\"name\":{name},\"cat\":\"{kind}\"")
        };
        let all = |n: usize, action: fn(u32) -> Action| (0..n as u32).map(|k| fields(action(k))).collect();
        Self {
            kernels: all(program.kernels.len(), Action::Compute),
            collectives: all(program.collectives.len(), Action::Collective),
            exchanges: all(program.exchanges.len(), Action::Exchange),
        }
    }

    fn get(&self, action: Action) -> &str {
        match action {
            Action::Compute(k) => &self.kernels[k as usize],
            Action::Collective(c) => &self.collectives[c as usize],
            Action::Exchange(e) => &self.exchanges[e as usize],
        }
    }
}

impl Events<'_> {
    fn push(&mut self, event: std::fmt::Arguments<'_>) -> Result<()> {
        self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        self.out.write_fmt(event)
    }

    fn instruction(&self, span: &Span) -> Instruction {
        self.program.code_of(span.rank).instructions[span.instruction as usize]
    }

    fn span(&mut self, span: &Span) -> Result<()> {
        let instruction = self.instruction(span);
        let (start, length) = (Micros(span.start), Micros(span.end.saturating_sub(span.start)));
        let names = self.names;
        let fields = names.get(instruction.action);
        let (rank, stream, k) = (span.rank, instruction.stream, span.instruction);
        // What ends the step belongs to no micro-batch.
        match Kind::of(self.program, instruction.action) {
            Kind::Optimizer => self.push(format_args!(
                "{{\"ph\":\"X\",\"pid\":{rank},\"tid\":{stream},\"ts\":{start},\"dur\":{length},{fields},\
                 \"args\":{{\"i\":{k}}}}}"
            )),
            _ => self.push(format_args!(
                "{{\"ph\":\"X\",\"pid\":{rank},\"tid\":{stream},\"ts\":{start},\"dur\":{length},{fields},\
                 \"args\":{{\"i\":{k},\"mb\":{},\"block\":{}}}}}",
                instruction.micro_batch, instruction.block
            )),
        }
    }

    /// From where a message is sent to where both halves are there.
    fn arrow(&mut self, id: usize, send: &Span, receive: &Span) -> Result<()> {
        let met = receive.start.max(send.start).min(receive.end);
        for (phase, span, at) in [("\"s\"", send, send.start), ("\"f\",\"bp\":\"e\"", receive, met)] {
            let (stream, at) = (self.instruction(span).stream, Micros(at));
            self.push(format_args!(
                "{{\"ph\":{phase},\"id\":{id},\"pid\":{},\"tid\":{stream},\"ts\":{at},\"name\":\"message\",\
                 \"cat\":\"message\"}}",
                span.rank
            ))?;
        }
        Ok(())
    }

    /// The arena of one rank: its first point, its peak, and each change that can be seen.
    fn memory(&mut self, points: &[MemoryPoint]) -> Result<()> {
        let peak = points.iter().map(|p| p.bytes.get()).max().unwrap_or_default();
        let mut drawn: Option<u64> = None;
        for point in points {
            let bytes = point.bytes.get();
            let seen = |last: u64| bytes.abs_diff(last) * FINEST >= peak || bytes == peak;
            if drawn.is_none_or(seen) {
                drawn = Some(bytes);
                let at = Micros(point.time);
                self.push(format_args!(
                    "{{\"ph\":\"C\",\"pid\":{},\"tid\":0,\"ts\":{at},\"name\":\"arena\",\
                     \"args\":{{\"bytes\":{bytes}}}}}",
                    point.rank
                ))?;
            }
        }
        Ok(())
    }

    fn name_rank(&mut self, rank: u32) -> Result<()> {
        let (program, mesh) = (self.program, &self.program.mesh);
        let place = |a: Axis| format!("{a}{}", mesh.coord(rank, a));
        let within: Vec<String> = mesh.active().iter().filter(|a| *a != Axis::Pp).map(place).collect();
        let within = if within.is_empty() { String::new() } else { format!(" · {}", within.join(" ")) };
        let name = quoted(&format!("rank {rank} · stage {}{within}", program.role_of(rank)));
        self.push(format_args!(
            "{{\"ph\":\"M\",\"pid\":{rank},\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}"
        ))?;
        self.push(format_args!(
            "{{\"ph\":\"M\",\"pid\":{rank},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{rank}}}}}"
        ))?;
        for (k, stream) in program.streams.iter().enumerate() {
            let name = quoted(&stream.to_string());
            self.push(format_args!(
                "{{\"ph\":\"M\",\"pid\":{rank},\"tid\":{k},\"name\":\"thread_name\",\"args\":{{\"name\":{name}}}}}"
            ))?;
        }
        Ok(())
    }
}

/// Both halves of every message between traced ranks, by sender, then in the order sent: the n-th that one rank sends
/// another is the n-th that the other receives from it.
fn messages(program: &Program, trace: &Trace) -> Vec<(Span, Span)> {
    let mut sent: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    let mut received = sent.clone();
    for rank in &trace.ranks {
        for (k, i) in program.code_of(*rank).instructions.iter().enumerate() {
            let Action::Exchange(e) = i.action else { continue };
            let exchange = &program.exchanges[e as usize];
            let peer = program.peer(*rank, exchange);
            if exchange.send.is_some() {
                sent.entry((*rank, peer)).or_default().push(k as u32);
            }
            if exchange.receive.is_some() {
                received.entry((peer, *rank)).or_default().push(k as u32);
            }
        }
    }
    let exchanges = |s: &&Span| {
        let code = program.code_of(s.rank);
        matches!(code.instructions[s.instruction as usize].action, Action::Exchange(_))
    };
    let spans: BTreeMap<(u32, u32), Span> =
        trace.spans.iter().filter(exchanges).map(|s| ((s.rank, s.instruction), *s)).collect();
    let halves = |((from, to), sends): ((u32, u32), Vec<u32>)| {
        let receives = received.get(&(from, to)).cloned().unwrap_or_default();
        let pairs = sends.into_iter().zip(receives);
        pairs.filter_map(|(s, r)| Some((*spans.get(&(from, s))?, *spans.get(&(to, r))?))).collect::<Vec<_>>()
    };
    sent.into_iter().flat_map(halves).collect()
}

/// A JSON string with its quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Microseconds with as many of six decimals as picoseconds need, none lost: `12.000345`.
struct Micros(Time);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, mut rest, mut digits) = (self.0.get() / 1_000_000, self.0.get() % 1_000_000, 6);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        while rest % 10 == 0 {
            (rest, digits) = (rest / 10, digits - 1);
        }
        write!(f, "{whole}.{rest:0digits$}")
    }
}
