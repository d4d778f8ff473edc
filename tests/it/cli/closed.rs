//! A reader that goes away, a place that is no file, and whoever asks for nothing to be said.

use super::{PLAN, Workplace, finished};
use std::process::{Command, Stdio};

/// Commands that print, each with what it writes.
const PRINTING: [(&str, &str); 6] = [
    ("model gpt-nano", ""),
    ("cluster h100-sxm --json", ""),
    ("lower plan.json", ""),
    ("simulate plan.json --trace trace.json", "trace.json"),
    ("report plan.json -o report.html", "report.html"),
    ("auto repository/examples/quickstart.toml --steps 1 --sequence 16 --report auto.html", "auto.html"),
];

#[test]
fn a_closed_stdout_ends_quietly_with_the_work_done() {
    let w = Workplace::new();
    w.ok(&format!("{PLAN} -o plan.json"));
    for (arguments, file) in PRINTING {
        // Whoever reads has gone before the first byte.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = w.command(&format!("{arguments} -q")).stdout(writer).stderr(Stdio::piped()).output();
        let ran = finished(arguments, &output.unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments} into a pipe that is closed");
        assert!(file.is_empty() || std::fs::remove_file(w.path(file)).is_ok(), "{arguments}: no {file}");
        // There is no stdout at all.
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(env!("CARGO_BIN_EXE_meshwright"));
        shell.args(arguments.split_whitespace()).arg("-q");
        let inherited = w.command("");
        shell.current_dir(inherited.get_current_dir().unwrap());
        shell.envs(inherited.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let ran = finished(arguments, &shell.output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments} without a stdout");
        assert!(file.is_empty() || w.path(file).is_file(), "{arguments}: no {file}");
    }
}

#[test]
fn quiet_says_nothing_on_stderr_and_otherwise_what_was_written() {
    let w = Workplace::new();
    assert_eq!(w.ok(&format!("{PLAN} -o plan.json -q")).err, "");
    assert_eq!(w.ok(&format!("{PLAN} -o plan.json")).err, "written: plan.json\n");
    assert_eq!(w.ok("lower plan.json -o step.program -q").err, "");
    assert_eq!(w.ok("simulate plan.json --trace t.json").err, "written: t.json\n");
    assert_eq!(w.ok("run plan.json --data repository/README.md --steps 1 -q").err, "");
}

#[test]
fn outputs_that_are_no_files_stay_what_they_are() {
    let w = Workplace::new();
    w.ok(&format!("{PLAN} -o plan.json"));
    w.ok("lower plan.json -o /dev/null");
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file(), "/dev/null was replaced by a file");
    assert!(w.ok("lower plan.json -o /dev/stdout").out.starts_with("meshwright-program"));
    // A link is followed, not replaced.
    w.give("real.program", "old");
    std::os::unix::fs::symlink(w.path("real.program"), w.path("link.program")).unwrap();
    w.ok("lower plan.json -o link.program");
    assert!(std::fs::symlink_metadata(w.path("link.program")).unwrap().is_symlink());
    assert!(std::fs::read_to_string(w.path("real.program")).unwrap().starts_with("meshwright-program"));
    let names = ["link.program", "pair.toml", "plan.json", "real.program", "repository"];
    assert_eq!(w.files(), names, "nothing half-written is left");
}
