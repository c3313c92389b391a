//! Asking something that runs to stop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Set once, seen by a loop that looks at it and by a `poll` that waits for it.
#[derive(Debug)]
pub struct Cancellation {
    requested: Arc<AtomicBool>,
    event: EventFd,
}

impl Cancellation {
    /// Not yet requested.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self { requested: Arc::default(), event })
    }

    /// Asks to stop; repeating it changes nothing.
    pub fn request(&self) {
        if !self.requested.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow by its one write.
            let _ = self.event.write(1);
        }
    }

    /// Whether it was asked to stop.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// What is set when it is asked to stop, for loops of other crates.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Becomes readable when it is asked to stop.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
