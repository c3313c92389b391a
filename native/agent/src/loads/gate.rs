//! The common start and end of a load's threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Holds the threads back until all of them exist and run.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct GateState {
    arrived: usize,
    open: bool,
}

impl Gate {
    /// Waits until the gate is opened.
    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.open).unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns when so many wait.
    pub(crate) fn wait_for(&self, count: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| state.arrived < count).unwrap_or_else(PoisonError::into_inner));
    }

    /// Opens when so many wait.
    pub(crate) fn open_after(&self, count: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state =
            self.changed.wait_while(state, |state| state.arrived < count).unwrap_or_else(PoisonError::into_inner);
        state.open = true;
        self.changed.notify_all();
    }

    /// Ends the load; threads that still wait are let go.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.open_after(0);
    }

    /// Whether the load shall end.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
