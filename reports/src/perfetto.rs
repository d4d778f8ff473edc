//! A trace as Chrome trace events (the JSON object form that Perfetto and chrome://tracing open): one process per rank,
//! one thread per stream, an arrow for each message, a counter for the arena. Times are microseconds, written exactly from
//! integer picoseconds. The invariant: every arrow that begins also ends, within the slices of the two halves.
//! Format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use crate::kind::Kind;
use meshwright_ir::program::Action;
use meshwright_ir::trace::{Span, TraceSource};
use meshwright_ir::{Axis, Program, Time, Trace};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The trace of one step of `program` as one JSON object.
///
/// # Panics
/// If a span names a rank or an instruction that the program does not have.
pub fn perfetto(program: &Program, trace: &Trace) -> String {
    let mut out = String::with_capacity(128 * (trace.spans.len() + trace.memory.len()) + 1024);
    let source = match trace.source {
        TraceSource::Predicted => "predicted",
        TraceSource::Measured => "measured",
    };
    out.push_str("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"meshwright\",\"source\":\"");
    write!(out, "{source}\",\"mesh\":{}}},\"traceEvents\":[", quoted(&program.mesh.to_string()))
        .expect(GROWS);
    let mut events = Events { out, any: false };
    for rank in &trace.ranks {
        events.name_rank(program, *rank);
    }
    for span in &trace.spans {
        events.span(program, span);
    }
    for (id, (send, receive)) in messages(program, trace).into_iter().enumerate() {
        events.arrow(program, id, &send, &receive);
    }
    for point in &trace.memory {
        events.push(format_args!(
            "{{\"ph\":\"C\",\"pid\":{},\"tid\":0,\"ts\":{},\"name\":\"arena\",\"args\":{{\"bytes\":{}}}}}",
            point.rank,
            micros(point.time),
            point.bytes.get()
        ));
    }
    events.out.push_str("]}\n");
    events.out
}

const GROWS: &str = "a string grows";

/// The list of events so far.
struct Events {
    out: String,
    any: bool,
}

impl Events {
    fn push(&mut self, event: std::fmt::Arguments<'_>) {
        self.out.push_str(if self.any { ",\n" } else { "\n" });
        self.any = true;
        self.out.write_fmt(event).expect(GROWS);
    }

    fn span(&mut self, program: &Program, span: &Span) {
        let instruction = &program.code_of(span.rank).instructions[span.instruction as usize];
        let kind = Kind::of(program, instruction.action).name();
        let (start, length) = (micros(span.start), micros(span.end.saturating_sub(span.start)));
        let (micro_batch, block) = (instruction.micro_batch, instruction.block);
        let name = program.kind_name(instruction.action);
        // What ends the step belongs to no micro-batch.
        let name = match kind {
            "optimizer" => quoted(&name),
            _ => quoted(&format!("{name} · micro-batch {micro_batch} · block {block}")),
        };
        self.push(format_args!(
            "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{start},\"dur\":{length},\"name\":{name},\"cat\":\"{kind}\",\
             \"args\":{{\"kind\":\"{kind}\",\"instruction\":{},\"micro_batch\":{micro_batch},\"block\":{block}}}}}",
            span.rank, instruction.stream, span.instruction
        ));
    }

    /// From where a message is sent to where both halves are there.
    fn arrow(&mut self, program: &Program, id: usize, send: &Span, receive: &Span) {
        let met = receive.start.max(send.start).min(receive.end);
        for (phase, span, at) in [("\"s\"", send, send.start), ("\"f\",\"bp\":\"e\"", receive, met)] {
            let stream = program.code_of(span.rank).instructions[span.instruction as usize].stream;
            self.push(format_args!(
                "{{\"ph\":{phase},\"id\":{id},\"pid\":{},\"tid\":{stream},\"ts\":{},\"name\":\"message\",\"cat\":\"message\"}}",
                span.rank,
                micros(at)
            ));
        }
    }

    fn name_rank(&mut self, program: &Program, rank: u32) {
        let mesh = &program.mesh;
        let place = |a: Axis| format!("{a}{}", mesh.coord(rank, a));
        let within: Vec<String> = mesh.active().iter().filter(|a| *a != Axis::Pp).map(place).collect();
        let within = if within.is_empty() { String::new() } else { format!(" · {}", within.join(" ")) };
        let name = quoted(&format!("rank {rank} · stage {}{within}", program.role_of(rank)));
        self.push(format_args!(
            "{{\"ph\":\"M\",\"pid\":{rank},\"name\":\"process_name\",\"args\":{{\"name\":{name}}}}}"
        ));
        self.push(format_args!(
            "{{\"ph\":\"M\",\"pid\":{rank},\"name\":\"process_sort_index\",\"args\":{{\"sort_index\":{rank}}}}}"
        ));
        for (k, stream) in program.streams.iter().enumerate() {
            let name = quoted(&stream.to_string());
            self.push(format_args!(
                "{{\"ph\":\"M\",\"pid\":{rank},\"tid\":{k},\"name\":\"thread_name\",\"args\":{{\"name\":{name}}}}}"
            ));
        }
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

/// Microseconds with the six decimals that picoseconds need, none lost: `12.000345`.
fn micros(t: Time) -> String {
    format!("{}.{:06}", t.get() / 1_000_000, t.get() % 1_000_000)
}
