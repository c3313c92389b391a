//! Signals during the spin: held back, looked for, and let through when one is there.
//!
//! A handler that runs in the middle of a spin leaves no trace that the spin could see.

use crate::kernel;

/// A set as the kernel has it: signal N is bit N−1.
type SignalSet = u64;

const SIZE: usize = size_of::<SignalSet>();

const fn set_of(signals: &[i32]) -> SignalSet {
    let mut set = 0;
    let mut index = 0;
    while index < signals.len() {
        set |= 1 << (signals[index] - 1);
        index += 1;
    }
    set
}

/// libc's own signals for cancellation and set-user-ID, which it never lets anyone block, and those that tell of a defect.
const LET_THROUGH: SignalSet =
    set_of(&[32, 33, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS]);

/// Signals held back in this thread.  It has no destructor: a cancellation may pass through its frame.
#[derive(Clone, Copy, Debug)]
pub struct HeldBack {
    before: SignalSet,
}

impl HeldBack {
    /// Begins to hold signals back.
    #[must_use]
    pub fn begin() -> Self {
        let mut before: SignalSet = 0;
        change_mask(&!LET_THROUGH, Some(&mut before));
        Self { before }
    }

    /// The signals that are held back and wait, without those that the program itself blocks.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let mut pending: SignalSet = 0;
        // SAFETY: writes one set.
        unsafe { kernel::call(libc::SYS_rt_sigpending, [&raw mut pending as usize, SIZE]) };
        pending & !self.before
    }

    /// Lets everything through: handlers run before this returns.
    pub fn end(&self) {
        change_mask(&self.before, None);
    }
}

fn change_mask(to: &SignalSet, before: Option<&mut SignalSet>) {
    let before = before.map_or(0, |set| core::ptr::from_mut(set) as usize);
    // SAFETY: both sets are valid or null.
    unsafe {
        let arguments = [libc::SIG_SETMASK as usize, core::ptr::from_ref(to) as usize, before, SIZE];
        kernel::call(libc::SYS_rt_sigprocmask, arguments);
    }
}

/// Whether one of these signals has a handler, and so ends a sleep; others are discarded, stop the process, or end it.
#[must_use]
pub fn any_handled(signals: u64) -> bool {
    (1..=64).any(|signal| signals & (1 << (signal - 1)) != 0 && is_handled(signal))
}

fn is_handled(signal: i32) -> bool {
    // The kernel's structure begins with the handler and is no longer than this on any architecture.
    let mut action = [0usize; 8];
    // SAFETY: writes one structure.
    let result =
        unsafe { kernel::call(libc::SYS_rt_sigaction, [signal as usize, 0, action.as_mut_ptr() as usize, SIZE]) };
    result == 0 && action[0] != libc::SIG_DFL && action[0] != libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static RUNS: AtomicU32 = AtomicU32::new(0);

    extern "C" fn handler(_: i32) {
        RUNS.fetch_add(1, Ordering::Relaxed);
    }

    fn send_to_this_thread(signal: i32) {
        // SAFETY: a signal to ourselves.
        unsafe { assert_eq!(libc::pthread_kill(libc::pthread_self(), signal), 0) };
    }

    #[test]
    fn a_signal_waits_while_it_is_held_back_and_its_handler_runs_at_the_end() {
        // SAFETY: the handler does nothing but count.
        unsafe { libc::signal(libc::SIGUSR1, handler as extern "C" fn(i32) as usize) };
        let held = HeldBack::begin();
        assert_eq!(held.waiting(), 0);
        send_to_this_thread(libc::SIGUSR1);
        let waiting = held.waiting();
        assert_eq!(waiting, 1 << (libc::SIGUSR1 - 1));
        assert!(any_handled(waiting));
        assert_eq!(RUNS.load(Ordering::Relaxed), 0);
        held.end();
        assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_signal_that_the_program_ignores_ends_no_sleep() {
        let held = HeldBack::begin();
        send_to_this_thread(libc::SIGWINCH);
        let waiting = held.waiting();
        assert_eq!(waiting, 1 << (libc::SIGWINCH - 1));
        assert!(!any_handled(waiting));
        held.end();
        assert_eq!(held.waiting(), 0);
    }
}
