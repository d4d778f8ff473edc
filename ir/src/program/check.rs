//! The checker: a program that passes is safe to interpret. Structure first, then memory per role, then matching of
//! messages and groups, then progress. Everything is symbolic per role, so its cost does not depend on the world size.

use super::{Action, Code, Collective, CollectiveKind, Parameter, Program, Stream, memory, progress};
use crate::{Axis, AxisSet};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use thiserror::Error;

/// What a fault violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A position, stream or operand that does not exist, or does not fit its action.
    Structure,
    /// A buffer outside the arena, or two states in one place.
    Arena,
    /// A read of what nothing has written.
    UseBeforeWrite,
    /// A use of memory that another buffer has taken.
    UseAfterFree,
    /// Two uses that neither streams nor `after` order.
    Race,
    /// A message without its other half.
    UnmatchedMessage,
    /// A rank missing from a collective's group, or members that disagree on what it is.
    IncompleteGroup,
    /// No progress when a send completes only with its receive.
    Deadlock,
    /// No progress when each rank issues in listing order, one operation at a time.
    CrossedOrder,
}

/// Why a program is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("role {role}{}: {rule}: {message}", instruction.map(|k| format!(", instruction {k}")).unwrap_or_default())]
pub struct Fault {
    /// What is violated.
    pub rule: Rule,
    /// In which role.
    pub role: usize,
    /// At which instruction, where there is one.
    pub instruction: Option<u32>,
    /// What happens there.
    pub message: String,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Rule::Structure => "malformed",
            Rule::Arena => "arena",
            Rule::UseBeforeWrite => "use before write",
            Rule::UseAfterFree => "use after free",
            Rule::Race => "race",
            Rule::UnmatchedMessage => "unmatched message",
            Rule::IncompleteGroup => "incomplete group",
            Rule::Deadlock => "deadlock",
            Rule::CrossedOrder => "crossed order",
        })
    }
}

/// A program that passed [`Program::check`]: what interpreters accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked(Program);

impl Deref for Checked {
    type Target = Program;
    fn deref(&self) -> &Program {
        &self.0
    }
}

impl Checked {
    /// The program, to be changed and checked anew.
    pub fn into_inner(self) -> Program {
        self.0
    }
}

impl Program {
    /// Refuses the program with its first fault, or vouches for it.
    pub fn check(self) -> Result<Checked, Fault> {
        self.check_structure()?;
        for role in 0..self.roles.len() {
            memory::check_role(&self, role)?;
        }
        progress::check_matching(&self)?;
        progress::check_progress(&self)?;
        Ok(Checked(self))
    }

    fn check_structure(&self) -> Result<(), Fault> {
        let fault =
            |role, instruction, message| Err(Fault { rule: Rule::Structure, role, instruction, message });
        self.check_tables().or_else(|message| fault(0, None, message))?;
        for (role, code) in self.roles.iter().enumerate() {
            for k in 0..code.instructions.len() {
                self.check_instruction(code, k).or_else(|message| fault(role, Some(k as u32), message))?;
            }
            let known = |b: &u32| (*b as usize) < code.buffers.len();
            for p in &code.parameters {
                self.check_parameter(code, p).or_else(|message| fault(role, None, message))?;
            }
            if !code.loss.iter().chain(&code.norm).all(known)
                || code.buffers.iter().any(|b| b.name as usize >= self.names.len())
            {
                return fault(role, None, "a loss, norm or name that does not exist".into());
            }
        }
        Ok(())
    }

    /// What roles share fits the mesh.
    fn check_tables(&self) -> Result<(), String> {
        let stages = self.mesh.degree(Axis::Pp);
        if self.roles.len() != stages as usize {
            return Err(format!("{} roles for {stages} stages", self.roles.len()));
        }
        if self.streams.is_empty() || self.streams.len() > 64 || self.tokens == 0 {
            return Err(format!("{} streams and {} tokens", self.streams.len(), self.tokens));
        }
        if let Some(x) = self.exchanges.iter().find(|x| x.peer == 0 || x.peer.unsigned_abs() >= stages) {
            return Err(format!("an exchange with the stage {:+} away, of {stages}", x.peer));
        }
        let strange = |members: &&Vec<u32>| {
            members.is_empty() || members.iter().any(|s| *s >= stages) || !members.is_sorted_by(|a, b| a < b)
        };
        for c in &self.collectives {
            if let Some(members) = c.stages.as_ref().filter(|m| strange(m) || !c.axes.contains(Axis::Pp)) {
                return Err(format!("a collective over {} of stages {members:?}, of {stages}", c.axes));
            }
        }
        Ok(())
    }

    fn check_instruction(&self, code: &Code, k: usize) -> Result<(), String> {
        let i = &code.instructions[k];
        let stream =
            *self.streams.get(i.stream as usize).ok_or(format!("stream {} does not exist", i.stream))?;
        if let Some(a) = code.after(k).iter().find(|a| **a as usize >= k) {
            return Err(format!("waits for instruction {a}, which is not earlier"));
        }
        if u32::from(i.micro_batch) >= self.micro_batches {
            return Err(format!("micro-batch {} of {}", i.micro_batch, self.micro_batches));
        }
        if code.reads(k).iter().chain(code.writes(k)).any(|b| *b as usize >= code.buffers.len()) {
            return Err("names a buffer that does not exist".into());
        }
        let sizes =
            |list: &[u32]| list.iter().map(|b| code.buffers[*b as usize].elements).collect::<Vec<_>>();
        let (read, written) = (sizes(code.reads(k)), sizes(code.writes(k)));
        let missing = "its action does not exist";
        let (lies, fits) = match i.action {
            Action::Compute(n) => {
                self.kernels.get(n as usize).ok_or(missing)?;
                (stream == Stream::Compute, true)
            }
            Action::Collective(n) => {
                let c = self.collectives.get(n as usize).ok_or(missing)?;
                (stream == Stream::Collective(c.axes), self.fits(c, &read, &written))
            }
            Action::Exchange(n) => {
                let x = self.exchanges.get(n as usize).ok_or(missing)?;
                let halves = read.iter().eq(&x.send) && written.iter().eq(&x.receive);
                (stream == Stream::Link(x.peer), halves)
            }
        };
        match (lies, fits) {
            (true, true) if aliased(self, code, k) => Err("takes one buffer for two operands".into()),
            (true, true) => Ok(()),
            (true, false) => Err("has operands of another size".into()),
            (false, _) => Err(format!("lies on a stream of another kind: {stream}")),
        }
    }

    fn check_parameter(&self, code: &Code, p: &Parameter) -> Result<(), String> {
        let piece =
            (p.layout.rank() == p.shape.len()).then(|| p.layout.local(&p.shape, &self.mesh).ok()).flatten();
        let elements = piece.and_then(|dims| dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)));
        // Replicas may hold a piece of it.
        let held = |over: AxisSet| {
            let pieces = u64::from(self.mesh.size(over));
            elements.filter(|n| n.is_multiple_of(pieces)).map(|n| n / pieces)
        };
        let (weight, gradient) = (held(p.storage.of_weight()), held(p.storage.of_gradient()));
        let states = p.master.iter().chain(&p.moments).map(|b| (*b, held(p.storage.over)));
        for (b, elements) in [(p.weight, weight), (p.gradient, gradient)].into_iter().chain(states) {
            let Some(buffer) = code.buffers.get(b as usize) else {
                return Err(format!("parameter {} names a buffer that does not exist", p.name));
            };
            if Some(buffer.elements) != elements {
                return Err(format!("buffer {b} does not hold a rank's piece of parameter {}", p.name));
            }
        }
        Ok(())
    }

    /// Whether a collective's operands have the sizes that its kind asks for. All-reduces, gathers and scatters take several
    /// at once; a gather or scatter in place finds a rank's piece at its own place in the whole.
    fn fits(&self, c: &Collective, read: &[u64], written: &[u64]) -> bool {
        let stages = c.stages.as_ref().map(|s| s.len() as u32);
        let within = if stages.is_some() { c.axes.without(Axis::Pp) } else { c.axes };
        let members = u128::from(self.mesh.size(within)) * u128::from(stages.unwrap_or(1));
        let sum: u128 = read.iter().map(|n| u128::from(*n)).sum();
        let several = read == written && sum == u128::from(c.elements);
        let even = read.iter().all(|n| u128::from(*n) % members.max(1) == 0);
        // Out of place, each buffer is made of, or cut into, pieces of its own.
        let made_of = |pieces: &[u64], wholes: &[u64]| {
            let times = pieces.iter().map(|n| u128::from(*n) * members);
            times.eq(wholes.iter().map(|n| u128::from(*n)))
                && wholes.iter().map(|n| u128::from(*n)).sum::<u128>() == u128::from(c.elements)
        };
        match c.kind {
            CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => several,
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter if members > 1 && several => even,
            CollectiveKind::AllGather => made_of(read, written),
            CollectiveKind::ReduceScatter => made_of(written, read),
            CollectiveKind::AllToAll => read == written && written == [c.elements],
        }
    }
}

/// Whether an instruction would write a buffer twice, or read it where it may be overwritten already: only kernels,
/// all-reduces, gathers and scatters work in place, the collectives only operand by operand.
fn aliased(program: &Program, code: &Code, k: usize) -> bool {
    let (reads, writes) = (code.reads(k), code.writes(k));
    let distinct: BTreeSet<&u32> = writes.iter().collect();
    if distinct.len() < writes.len() {
        return true;
    }
    let in_place = match code.instructions[k].action {
        Action::Compute(_) => return false,
        Action::Exchange(_) => false,
        Action::Collective(c) => match program.collectives[c as usize].kind {
            CollectiveKind::AllReduceSum | CollectiveKind::AllReduceMax => true,
            // Out of place, their two sides differ in size; of one size, they are in place and must be one buffer.
            CollectiveKind::AllGather | CollectiveKind::ReduceScatter => {
                let size = |b: &u32| code.buffers[*b as usize].elements;
                let same_size = reads.iter().map(size).eq(writes.iter().map(size));
                if same_size && reads != writes {
                    return true;
                }
                same_size
            }
            CollectiveKind::AllToAll => false,
        },
    };
    reads.iter().enumerate().any(|(n, r)| distinct.contains(r) && !(in_place && writes[n] == *r))
}
