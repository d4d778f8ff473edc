//! Runs that cannot go well: refused before they begin, or ended by the first rank that fails, with its own message.

use expect_test::{Expect, expect};
use meshwright_executor::{Backend, Cpu, Measured, Rank, RunError, RunOptions, StepSettings, Wires, train};
use meshwright_ir::program::{Checked, IdKind, Program};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Every rank loads its sample, and the loss is the sum of the squares of a parameter that tp cuts, summed over all.
const PROGRAM: &str = "meshwright-program 1
mesh dp=2 tp=2
step tokens=1 micro_batches=1
stream compute
stream collective dp.tp
kernel load tokens batch=1/dp.tp sequence=2/-
kernel sum-squares n=2 replicas=2 accumulate=false piece=-
collective all-reduce dp.tp stages=* n=1 f32 direct
name w
name loss
name ids
role 0 arena=1024 loss=1 norm=-
buffer 0 f32 2 @0 weight
buffer 1 f32 1 @256 scalar
buffer 2 i32 2 @512 workspace
buffer 0 f32 2 @768 gradient
param w 4 (tp) ones decays=true storage=- w=0 m=- g=3 s=-
k0 s0 mb=0 b=0 r=- w=2 a=-
k1 s0 mb=0 b=0 r=0 w=1 a=-
c0 s1 mb=0 b=0 r=1 w=1 a=1
";

fn program(text: &str) -> Checked {
    text.parse::<Program>().unwrap().check().unwrap()
}

fn options(steps: u64) -> RunOptions {
    RunOptions {
        steps,
        seed: 1,
        learning_rate: 0.1,
        warmup: 0,
        clip: 0.0,
        weight_decay: 0.0,
        traced_step: None,
    }
}

fn ids(_: IdKind, _: u64, _: u64, _: u64, into: &mut [u32]) {
    into.fill(0);
}

/// The CPU, but rank 1 fails in step 2.
struct Faulty {
    how: fn() -> RunError,
    opened: AtomicU64,
}

impl Faulty {
    fn new(how: fn() -> RunError) -> Self {
        Self { how, opened: AtomicU64::new(0) }
    }
}

struct FaultyRank<'p> {
    rank: u32,
    how: fn() -> RunError,
    inner: Box<dyn Rank + 'p>,
}

impl Backend for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn check(&self, program: &Checked) -> Result<(), RunError> {
        Cpu.check(program)
    }
    fn open<'p>(
        &'p self,
        program: &'p Checked,
        rank: u32,
        wires: Wires,
    ) -> Result<Box<dyn Rank + 'p>, RunError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FaultyRank { rank, how: self.how, inner: Cpu.open(program, rank, wires)? }))
    }
}

impl Rank for FaultyRank<'_> {
    fn write(&mut self, buffer: u32, values: &[f32]) {
        self.inner.write(buffer, values);
    }
    fn read(&self, buffer: u32) -> Vec<f32> {
        self.inner.read(buffer)
    }
    fn step(&mut self, settings: &StepSettings<'_>) -> Result<Measured, RunError> {
        if self.rank == 1 && settings.step == 2 { Err((self.how)()) } else { self.inner.step(settings) }
    }
}

/// What a run ends with. A hang fails the test instead of hanging it.
fn end(run: impl FnOnce() -> Result<Vec<f64>, RunError> + Send + 'static) -> String {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(run()));
    let outcome = told.recv_timeout(Duration::from_secs(60)).expect("the run hangs");
    outcome.map_or_else(|e| e.to_string(), |losses| format!("{losses:?}"))
}

/// Twenty times over: whose threads notice first must not matter.
fn always(expected: Expect, run: impl Fn() -> Result<Vec<f64>, RunError> + Copy + Send + 'static) {
    let first = end(run);
    expected.assert_eq(&first);
    for _ in 0..20 {
        assert_eq!(end(run), first);
    }
}

fn faulty(how: fn() -> RunError) -> Result<Vec<f64>, RunError> {
    let (program, progress) = (program(PROGRAM), AtomicU64::new(0));
    let count = |_, _, _| {
        progress.fetch_add(1, Ordering::SeqCst);
    };
    let outcome = train(&program, &Faulty::new(how), &ids, &options(4), &count);
    assert_eq!(progress.into_inner(), 2);
    outcome.map(|o| o.losses)
}

#[test]
fn a_run_that_goes_well() {
    always(expect!["[4.0, 4.0, 4.0, 4.0]"], || {
        train(&program(PROGRAM), &Cpu, &ids, &options(4), &|_, _, _| {}).map(|o| o.losses)
    });
}

#[test]
fn a_rank_that_fails_ends_the_run_with_its_own_message() {
    always(expect!["rank 1 failed: the device fell off"], || {
        faulty(|| RunError::Invalid("the device fell off".into()))
    });
    always(expect!["rank 1 failed: panicked: the device fell off"], || {
        faulty(|| panic!("the device fell off"))
    });
}

/// A panic inside an instruction: here in the source of samples, for the one that rank 1 loads.
#[test]
fn an_instruction_that_panics_ends_the_run_with_its_own_message() {
    always(expect!["rank 1 failed: panicked: sample 1 of step 2 is unreadable"], || {
        let samples = |_: IdKind, step: u64, sample: u64, _: u64, into: &mut [u32]| {
            assert!(step < 2 || sample != 1, "sample {sample} of step {step} is unreadable");
            into.fill(0);
        };
        train(&program(PROGRAM), &Cpu, &samples, &options(4), &|_, _, _| {}).map(|o| o.losses)
    });
}

#[test]
fn what_is_refused_before_step_0() {
    let refused = |text: &str, steps: u64| {
        let backend = Faulty::new(|| unreachable!("no step is run"));
        let outcome =
            train(&program(text), &backend, &ids, &options(steps), &|_, _, _| panic!("a step was run"));
        assert_eq!(backend.opened.into_inner(), 0, "a rank was opened");
        outcome.unwrap_err().to_string()
    };
    expect!["a run of 0 steps trains nothing: ask for at least 1"].assert_eq(&refused(PROGRAM, 0));
    expect![[r#"the cpu backend cannot run buffer w in f8: plan with training.precision = "fp32", "bf16" or "fp16""#]]
        .assert_eq(&refused(&PROGRAM.replace("buffer 0 f32", "buffer 0 f8"), 1));
    expect!["the cpu backend cannot run buffer w at byte 770: place every buffer at a multiple of 4 bytes"]
        .assert_eq(&refused(&PROGRAM.replace("@768", "@770"), 1));
    expect![
        "the cpu backend cannot run an arena of 93.1 GiB a rank: plan a smaller model or fewer sequences"
    ]
    .assert_eq(&refused(&PROGRAM.replace("arena=1024", "arena=99999999999"), 1));
}
