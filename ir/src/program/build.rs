//! Building a role's code one instruction at a time: operands and dependencies go to the role's tables.

use super::{Action, Buffer, Code, Instruction};

/// Collects one role's code.
#[derive(Debug, Default)]
pub struct CodeBuilder {
    /// The code so far.
    pub code: Code,
}

impl CodeBuilder {
    /// Adds a buffer and returns its position.
    pub fn buffer(&mut self, buffer: Buffer) -> u32 {
        self.code.buffers.push(buffer);
        self.code.buffers.len() as u32 - 1
    }

    /// Adds an instruction at the end of the listing and returns its position.
    #[allow(clippy::too_many_arguments)]
    pub fn push(
        &mut self,
        action: Action,
        stream: u8,
        micro_batch: u16,
        block: u16,
        reads: &[u32],
        writes: &[u32],
        after: &[u32],
    ) -> u32 {
        let code = &mut self.code;
        let size = |n: usize| u16::try_from(n).expect("an instruction has at most 65,535 operands");
        code.instructions.push(Instruction {
            action,
            args: code.args.len() as u32,
            reads: size(reads.len()),
            writes: size(writes.len()),
            deps: code.deps.len() as u32,
            after: size(after.len()),
            stream,
            micro_batch,
            block,
        });
        code.args.extend_from_slice(reads);
        code.args.extend_from_slice(writes);
        code.deps.extend_from_slice(after);
        code.instructions.len() as u32 - 1
    }

    /// A copy of `code` in which each instruction is kept, changed or dropped: for passes and for planting faults in
    /// tests. `edit` gets the position and the parts, and returns the parts to keep. Dependencies on dropped
    /// instructions are dropped, others are renumbered.
    pub fn rewrite(code: &Code, mut edit: impl FnMut(usize, Parts) -> Option<Parts>) -> Code {
        let kept = Code { instructions: Vec::new(), args: Vec::new(), deps: Vec::new(), ..code.clone() };
        let mut builder = CodeBuilder { code: kept };
        let mut moved = vec![None; code.instructions.len()];
        for k in 0..code.instructions.len() {
            let Instruction { action, stream, micro_batch, block, .. } = code.instructions[k];
            let parts = Parts {
                action,
                stream,
                reads: code.reads(k).to_vec(),
                writes: code.writes(k).to_vec(),
                after: code.after(k).to_vec(),
            };
            if let Some(p) = edit(k, parts) {
                let after: Vec<u32> =
                    p.after.iter().filter_map(|a| moved.get(*a as usize).copied().flatten()).collect();
                moved[k] =
                    Some(builder.push(p.action, p.stream, micro_batch, block, &p.reads, &p.writes, &after));
            }
        }
        builder.code
    }
}

/// The parts of one instruction, for [`CodeBuilder::rewrite`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// What it does.
    pub action: Action,
    /// Stream it lies on.
    pub stream: u8,
    /// Buffers read.
    pub reads: Vec<u32>,
    /// Buffers written.
    pub writes: Vec<u32>,
    /// Dependencies, numbered as in the original.
    pub after: Vec<u32>,
}
