//! A load that is one thread, which works until it is told to stop.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};

use bandwidth::pacing::placement::Placement;

use crate::failure::Failure;

/// The thread, and the word to it.
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
