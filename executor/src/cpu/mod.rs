//! The CPU backend: one thread per rank and stream walks its instructions in order; an instruction waits, parked, until
//! those it names in `after` are complete. Kernels run on the thread that walks the compute stream, collectives on the
//! thread of theirs, so communication overlaps compute as far as cores allow. Tensors may be stored in fp32, bf16 or fp16.

mod arena;
mod dispatch;
mod operands;
mod walk;

use crate::backend::{Backend, Measured, Rank, RunError, StepSettings, Wires};
use arena::Arena;
use meshwright_ir::program::{Buffer, Checked, Kernel};
use meshwright_ir::{Bytes, DType};
use operands::{Output, input};
use walk::Live;

/// The host's processor cores.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cpu;

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn check(&self, program: &Checked) -> Result<(), RunError> {
        let known = |dtype: DType| dtype != DType::F8;
        let refuse =
            |what: String, fix: &str| Err(RunError::Unsupported { backend: "cpu", what, fix: fix.into() });
        for role in &program.roles {
            let name = |b: &Buffer| &program.names[b.name as usize];
            if let Some(b) = role.buffers.iter().find(|b| !known(b.dtype)) {
                let what = format!("buffer {} in {}", name(b), b.dtype);
                return refuse(what, "plan with training.precision = \"fp32\", \"bf16\" or \"fp16\"");
            }
            if let Some(b) = role.buffers.iter().find(|b| !b.offset.0.is_multiple_of(4)) {
                let what = format!("buffer {} at byte {}", name(b), b.offset.0);
                return refuse(what, "place every buffer at a multiple of 4 bytes");
            }
            if role.arena > Bytes::gib(64) {
                return refuse(
                    format!("an arena of {} a rank", role.arena),
                    "plan a smaller model or fewer sequences",
                );
            }
        }
        for kernel in &program.kernels {
            if let Kernel::Op(k) = kernel
                && let Some(what) = dispatch::lacks(&k.op)
            {
                return refuse(what, "plan and simulate it; the CPU has no kernel for that op");
            }
        }
        Ok(())
    }

    fn open<'p>(
        &'p self,
        program: &'p Checked,
        rank: u32,
        wires: Wires,
    ) -> Result<Box<dyn Rank + 'p>, RunError> {
        let code = program.code_of(rank);
        Ok(Box::new(CpuRank { program, rank, wires, arena: Arena::new(code.arena), live: Live::new(code) }))
    }
}

struct CpuRank<'p> {
    program: &'p Checked,
    rank: u32,
    wires: Wires,
    arena: Arena,
    live: Live,
}

impl Rank for CpuRank<'_> {
    fn write(&mut self, buffer: u32, values: &[f32]) {
        let buffer = &self.program.code_of(self.rank).buffers[buffer as usize];
        // SAFETY: `&mut self`: no step runs, and nobody else has the arena.
        #[allow(unsafe_code)]
        let mut output = unsafe { Output::open(&self.arena, buffer, false) };
        output.values().copy_from_slice(values);
        output.close();
    }
    fn read(&self, buffer: u32) -> Vec<f32> {
        let buffer = &self.program.code_of(self.rank).buffers[buffer as usize];
        // SAFETY: the stream threads exist only inside `step`, which has `&mut self`.
        #[allow(unsafe_code)]
        unsafe { input(&self.arena, buffer) }.into_owned()
    }
    fn step(&mut self, settings: &StepSettings<'_>) -> Result<Measured, RunError> {
        walk::step(self.program, self.rank, &self.wires, &self.arena, &mut self.live, settings)
    }
}
