//! The checker: a program that passes is safe to interpret. Structure first, then memory per role, then matching of
//! messages and groups, then progress. Everything is symbolic per role, so its cost does not depend on the world size.

use super::{Action, Program, Stream, memory, progress};
use crate::Axis;
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
        let whole =
            |message: String| Err(Fault { rule: Rule::Structure, role: 0, instruction: None, message });
        if self.roles.len() != self.mesh.degree(Axis::Pp) as usize {
            return whole(format!("{} roles for {} stages", self.roles.len(), self.mesh.degree(Axis::Pp)));
        }
        if self.streams.is_empty() || self.streams.len() > 64 || self.tokens == 0 {
            return whole(format!("{} streams and {} tokens", self.streams.len(), self.tokens));
        }
        for (role, code) in self.roles.iter().enumerate() {
            let fault = |k: usize, message: String| {
                Err(Fault { rule: Rule::Structure, role, instruction: Some(k as u32), message })
            };
            let known = |b: &u32| (*b as usize) < code.buffers.len();
            for (k, i) in code.instructions.iter().enumerate() {
                if i.stream as usize >= self.streams.len() {
                    return fault(k, format!("stream {} does not exist", i.stream));
                }
                if let Some(a) = code.after(k).iter().find(|a| **a as usize >= k) {
                    return fault(k, format!("waits for instruction {a}, which is not earlier"));
                }
                if !code.reads(k).iter().chain(code.writes(k)).all(known) {
                    return fault(k, "names a buffer that does not exist".into());
                }
                let elements =
                    |list: &[u32]| list.iter().map(|b| code.buffers[*b as usize].elements).sum::<u64>();
                let (read, written) = (elements(code.reads(k)), elements(code.writes(k)));
                let fits = match (i.action, self.streams[i.stream as usize]) {
                    (Action::Compute(n), Stream::Compute) => (n as usize) < self.kernels.len(),
                    (Action::Collective(n), Stream::Collective(axes)) => self
                        .collectives
                        .get(n as usize)
                        .is_some_and(|c| c.axes == axes && read.max(written) == c.elements),
                    (Action::Exchange(n), Stream::Link(offset)) => {
                        self.exchanges.get(n as usize).is_some_and(|e| {
                            e.peer == offset
                                && read == e.send.unwrap_or(0)
                                && written == e.receive.unwrap_or(0)
                        })
                    }
                    _ => false,
                };
                if !fits {
                    return fault(k, "its action does not exist, lies on a stream of another kind, or has operands of another size".into());
                }
            }
            for p in &code.parameters {
                let buffers =
                    [p.weight, p.gradient].into_iter().chain(p.master).chain(p.moments.iter().copied());
                if !buffers.collect::<Vec<_>>().iter().all(known) {
                    return whole(format!("parameter {} names a buffer that does not exist", p.name));
                }
            }
            if !code.loss.iter().chain(&code.norm).all(known)
                || code.buffers.iter().any(|b| b.name as usize >= self.names.len())
            {
                return whole("a loss, norm or name that does not exist".into());
            }
        }
        Ok(())
    }
}
