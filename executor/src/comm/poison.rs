//! The run's one failure: the first cause told wins, and telling it wakes every wait. Invariant: a wait looks
//! for the cause while it holds its own lock, and telling takes that lock after the cause is set, so no wake
//! is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::CommError;

/// A handle that all ranks and communicators of a run share.
#[derive(Clone, Default)]
pub struct Poison {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    cause: OnceLock<Arc<str>>,
    sleepers: Mutex<Vec<Weak<dyn Sleeper>>>,
}

/// Something with threads waiting inside.
pub(super) trait Sleeper: Send + Sync {
    /// Takes the lock that its waits hold, then wakes them all.
    fn wake(&self);
}

impl Poison {
    /// A run without failure so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Tells a failure. The first one is kept and wakes every wait; returns whether this was it.
    pub fn tell(&self, cause: impl Into<Arc<str>>) -> bool {
        let first = self.shared.cause.set(cause.into()).is_ok();
        if first {
            let sleepers: Vec<_> = locked(&self.shared.sleepers).iter().filter_map(Weak::upgrade).collect();
            sleepers.iter().for_each(|sleeper| sleeper.wake());
        }
        first
    }

    /// The first failure told, if any.
    pub fn cause(&self) -> Option<Arc<str>> {
        self.shared.cause.get().cloned()
    }

    /// An error once a failure has been told.
    pub fn check(&self) -> Result<(), CommError> {
        match self.cause() {
            Some(cause) => Err(CommError::Poisoned { cause }),
            None => Ok(()),
        }
    }

    /// Runs one rank's work and turns a panic in it into a failure that names `who`, and for the caller into an error of its
    /// own, so that the run can tell the rank that panicked from those it stopped. The panic hook has printed it already.
    pub fn guard<T>(&self, who: &str, work: impl FnOnce() -> T) -> Result<T, CommError> {
        // What a panicking rank leaves half-written is not looked at again: the run is over.
        catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let message = text.unwrap_or("no message");
            self.tell(format!("{who} panicked: {message}"));
            CommError::Panicked { message: message.into() }
        })
    }

    /// Makes `sleeper` hear of a failure.
    pub(super) fn register(&self, sleeper: Weak<dyn Sleeper>) {
        locked(&self.shared.sleepers).push(sleeper);
    }

    /// Tells an error of this rank and hands it back.
    pub(super) fn raise(&self, error: CommError) -> CommError {
        if !matches!(error, CommError::Poisoned { .. }) {
            self.tell(error.to_string());
        }
        error
    }
}

/// Locks a mutex whose guarded state stays whole even when a holder panics.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until the condition may have changed.
pub(super) fn wait<'a, T>(moved: &Condvar, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    moved.wait(state).unwrap_or_else(PoisonError::into_inner)
}
