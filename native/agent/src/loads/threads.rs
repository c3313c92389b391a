//! The threads of a load: their common start and end, and the one of a load that has no more.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};

use bandwidth::pacing::placement::Placement;

use crate::failure::Failure;

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

/// A thread that works until it is told to stop, and the word to it.
#[derive(Debug)]
pub(super) struct Worker<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<T, failure::Failure>>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts the thread, and returns when it is where it shall run.
    pub(super) fn start(
        name: &str,
        placement: Placement,
        work: impl FnOnce(&AtomicBool) -> Result<T, failure::Failure> + Send + 'static,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let (tell, placed) = mpsc::channel();
        let thread = Builder::new().name(name.into()).spawn(move || {
            placement.apply()?;
            // Whoever starts it waits for this.
            let _ = tell.send(());
            work(&told)
        });
        let thread = thread.map_err(|error| Failure::os("starting a thread", &error))?;
        if placed.recv().is_ok() {
            return Ok(Self { stop, thread });
        }
        match thread.join() {
            Ok(Err(failure)) => Err(failure.into()),
            Ok(Ok(_)) => unreachable!("it has not begun"),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Tells it to stop.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits for its end: what it did, or why it ended before it was told to.
    pub(super) fn join(self) -> Result<T, String> {
        match self.thread.join() {
            Ok(ended) => ended.map_err(|failure| failure.to_string()),
            Err(_) => Err("the thread has a defect; the agent's standard error says where".into()),
        }
    }
}
