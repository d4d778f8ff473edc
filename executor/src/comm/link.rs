//! A link between two threads: one lane a direction, each holding at most one posted message. The receiver
//! copies straight from the sender's buffer, so both directions of an exchange run at once. Invariant: a
//! message's buffer stays borrowed by its sender, who is inside `exchange`, from `Posted` to `Received`; once
//! `Taken` the sender waits for the copy even when the run is poisoned.

use std::sync::{Arc, Condvar, Mutex};

use super::poison::{Sleeper, locked, wait};
use super::{CommError, Link, Poison};

/// The two ends of a new link; ends are numbered 0 and 1 in messages.
pub fn link(poison: &Poison) -> (End, End) {
    let shared = Arc::new(Wire {
        poison: poison.clone(),
        lanes: Mutex::new([Lane::Free, Lane::Free]),
        moved: Condvar::new(),
    });
    let sleeper = Arc::downgrade(&shared);
    poison.register(sleeper);
    (End { side: 0, wire: shared.clone() }, End { side: 1, wire: shared })
}

/// One end of a link between two threads.
pub struct End {
    side: usize,
    wire: Arc<Wire>,
}

struct Wire {
    poison: Poison,
    /// Lane i carries what end i sends.
    lanes: Mutex<[Lane; 2]>,
    moved: Condvar,
}

/// Where the message of one direction is.
#[derive(Clone, Copy)]
enum Lane {
    /// No message.
    Free,
    /// The sender waits for a receiver.
    Posted(Message),
    /// The receiver is copying.
    Taken,
    /// The copy is done and the sender has not noticed yet.
    Received,
}

/// A sender's buffer.
#[derive(Clone, Copy)]
struct Message {
    start: *const f32,
    len: usize,
}

// SAFETY: the pointer is only read by the receiver, while the sender's shared borrow of the buffer (f32 is
// Sync) is alive: see the invariant of the file.
#[allow(unsafe_code)]
unsafe impl Send for Message {}

impl Link for End {
    fn exchange(&self, send: Option<&[f32]>, receive: Option<&mut [f32]>) -> Result<(), CommError> {
        let outcome = match send {
            Some(message) => {
                self.post(message)?;
                let received = receive.map_or(Ok(()), |into| self.take(into));
                // Also after a failed receive: the message must be withdrawn before its borrow ends.
                received.and(self.settle())
            }
            None => receive.map_or(Ok(()), |into| self.take(into)),
        };
        outcome.map_err(|error| self.wire.poison.raise(error))
    }
}

impl End {
    /// Offers a message to the peer.
    fn post(&self, message: &[f32]) -> Result<(), CommError> {
        let mut lanes = locked(&self.wire.lanes);
        self.wire.poison.check()?;
        if !matches!(lanes[self.side], Lane::Free) {
            drop(lanes);
            return Err(self.wire.poison.raise(CommError::Busy { call: "send", rank: self.side }));
        }
        lanes[self.side] = Lane::Posted(Message { start: message.as_ptr(), len: message.len() });
        self.wire.moved.notify_all();
        Ok(())
    }

    /// Waits until the posted message is received; withdraws it when the run fails before a receiver came.
    fn settle(&self) -> Result<(), CommError> {
        let mut lanes = locked(&self.wire.lanes);
        loop {
            match (lanes[self.side], self.wire.poison.check()) {
                (Lane::Received, _) => {
                    lanes[self.side] = Lane::Free;
                    return Ok(());
                }
                (Lane::Posted(_), Err(error)) => {
                    lanes[self.side] = Lane::Free;
                    return Err(error);
                }
                _ => lanes = wait(&self.wire.moved, lanes),
            }
        }
    }

    /// Waits for the peer's message and copies it.
    #[allow(unsafe_code)]
    fn take(&self, into: &mut [f32]) -> Result<(), CommError> {
        let peer = 1 - self.side;
        let mut lanes = locked(&self.wire.lanes);
        let message = loop {
            self.wire.poison.check()?;
            match lanes[peer] {
                Lane::Posted(message) => break message,
                _ => lanes = wait(&self.wire.moved, lanes),
            }
        };
        if message.len != into.len() {
            drop(lanes);
            let (expected, actual) = (message.len, into.len());
            let error = CommError::SizeMismatch { call: "receive", rank: self.side, expected, actual };
            return Err(self.wire.poison.raise(error));
        }
        lanes[peer] = Lane::Taken;
        drop(lanes);
        // SAFETY: the sender is inside `exchange` and leaves it only after `Received`, so its buffer of `len`
        // elements stays borrowed; `into` has that length and is borrowed mutably, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(message.start, into.as_mut_ptr(), into.len()) };
        locked(&self.wire.lanes)[peer] = Lane::Received;
        self.wire.moved.notify_all();
        Ok(())
    }
}

impl Sleeper for Wire {
    fn wake(&self) {
        let _held = locked(&self.lanes);
        self.moved.notify_all();
    }
}
