//! A trace as Chrome trace events (the JSON object form that Perfetto and chrome://tracing open): one process per rank,
//! one thread per stream, a counter for the arena. Times are microseconds, written exactly from integer picoseconds.
//! Format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.

use crate::kind::Kind;
use meshwright_ir::trace::TraceSource;
use meshwright_ir::{Program, Time, Trace};
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
    // A kind's name depends only on the action: each is made once.
    let mut names = std::collections::BTreeMap::new();
    for span in &trace.spans {
        let instruction = &program.code_of(span.rank).instructions[span.instruction as usize];
        let (name, kind) = names.entry(instruction.action).or_insert_with(|| {
            (quoted(&program.kind_name(instruction.action)), Kind::of(program, instruction.action).name())
        });
        let (start, length) = (micros(span.start), micros(span.end.saturating_sub(span.start)));
        events.push(format_args!(
            "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{start},\"dur\":{length},\"name\":{name},\"cat\":\"{kind}\",\
             \"args\":{{\"instruction\":{},\"micro_batch\":{},\"block\":{}}}}}",
            span.rank, instruction.stream, span.instruction, instruction.micro_batch, instruction.block
        ));
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

    fn name_rank(&mut self, program: &Program, rank: u32) {
        let name = quoted(&format!("rank {rank} (stage {})", program.role_of(rank)));
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

/// A JSON string with its quotes.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Microseconds with the six decimals that picoseconds need, none lost: `12.000345`.
fn micros(t: Time) -> String {
    format!("{}.{:06}", t.get() / 1_000_000, t.get() % 1_000_000)
}
