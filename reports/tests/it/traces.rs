//! The other documents: Chrome traces and CSV.

use crate::fixture::{Fixture, PIPELINE, SMALL};
use expect_test::expect;
use meshwright_ir::program::Action;
use meshwright_ir::{Program, Trace};
use meshwright_reports::{loss_csv, perfetto};
use serde_json::Value;

fn document(program: &Program, trace: &Trace) -> String {
    let mut out = Vec::new();
    perfetto(program, trace, &mut out).unwrap();
    String::from_utf8(out).unwrap() + "}\n"
}

#[test]
fn a_chrome_trace_names_ranks_streams_and_times() {
    let fixture = Fixture::new(&SMALL);
    let text = document(&fixture.program, &fixture.measured);
    let json: Value = serde_json::from_str(&text).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
    assert_eq!(of("X"), fixture.measured.spans.len());
    let counted = events.iter().filter(|e| e["ph"] == "C").map(|e| e["args"]["bytes"].as_u64().unwrap());
    assert_eq!(counted.max(), fixture.measured.peaks().iter().map(|p| p.get()).max());
    assert!((2..=fixture.measured.memory.len()).contains(&of("C")));
    assert_eq!(of("M"), fixture.measured.ranks.len() * (2 + fixture.program.streams.len()));
    let last = events
        .iter()
        .filter(|e| e["ph"] == "X")
        .map(|e| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap());
    let step = fixture.measured.step_time.get() as f64 / 1e6;
    assert!((last.fold(0.0, f64::max) - step).abs() < 1e-6);
    let lines: Vec<&str> = text.lines().filter(|l| !l.contains("\"ph\":\"M\"")).take(3).collect();
    expect![[r#"
        {"displayTimeUnit":"ns","otherData":{"producer":"meshwright","source":"measured","mesh":"pp=1 dp=2 fsdp=1 cp=1 tp=2","args":"i: position in the listing of the stage, mb: micro-batch, block: block of the model"},"traceEvents":[
        {"ph":"X","pid":0,"tid":0,"ts":0,"dur":367,"name":"embedding forward","cat":"forward","args":{"i":0,"mb":0,"block":0}},
        {"ph":"X","pid":0,"tid":1,"ts":367,"dur":249,"name":"reduce-scatter tp","cat":"collective","args":{"i":1,"mb":0,"block":0}},"#]]
    .assert_eq(&lines.join("\n"));
}

#[test]
fn every_message_is_an_arrow_within_its_two_halves() {
    let fixture = Fixture::new(&PIPELINE);
    let (program, trace) = (&fixture.program, &fixture.predicted);
    let json: Value = serde_json::from_str(&document(program, trace)).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
    let (begins, ends) = (of("s"), of("f"));
    let sends = |s: &&meshwright_ir::trace::Span| {
        let instruction = program.code_of(s.rank).instructions[s.instruction as usize];
        matches!(instruction.action, Action::Exchange(e) if program.exchanges[e as usize].send.is_some())
    };
    assert_eq!(begins.len(), trace.spans.iter().filter(sends).count());
    assert!(!begins.is_empty() && begins.len() == ends.len());
    let slices = of("X");
    let inside = |e: &Value| {
        slices.iter().any(|x| {
            let (start, at) = (x["ts"].as_f64().unwrap(), e["ts"].as_f64().unwrap());
            let here = x["pid"] == e["pid"] && x["tid"] == e["tid"] && x["cat"] == "exchange";
            here && start <= at && at <= start + x["dur"].as_f64().unwrap() + 1e-6
        })
    };
    for (begin, end) in begins.iter().zip(&ends) {
        assert_eq!((&begin["id"], &begin["cat"]), (&end["id"], &end["cat"]));
        assert!(begin["pid"] != end["pid"] && begin["ts"].as_f64() <= end["ts"].as_f64());
        assert!(inside(begin) && inside(end), "{begin} {end}");
    }
    let names: Vec<&str> = of("M")
        .iter()
        .filter(|e| e["name"] == "process_name")
        .filter_map(|e| e["args"]["name"].as_str())
        .collect();
    assert_eq!(names, ["rank 0 · stage 0 · dp0 tp0", "rank 4 · stage 1 · dp0 tp0"]);
}

#[test]
fn csv_leaves_out_what_is_no_number() {
    expect![[r#"
        step,loss,step_time_s
        1,5.5,0.25
        2,,0.125
        3,4.25,
    "#]]
    .assert_eq(&loss_csv(&[5.5, f64::NAN, 4.25], &[0.25, 0.125]));
}
