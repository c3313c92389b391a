//! `LD_PRELOAD=libhptime_preload.so PROGRAM`: the program's clock reads and sleeps are served by hptime.
//!
//! Served are `clock_gettime` (`CLOCK_MONOTONIC` and `CLOCK_REALTIME`), `gettimeofday`, `time`, `nanosleep`,
//! `clock_nanosleep`, `usleep`, `sleep`, and on x86-64 their `syscall()` forms.  Everything else, and everything unusual
//! (other clocks, invalid times, a sleep of zero, which is a yield), goes to the function that would have been called
//! without the shim, so that its errors are libc's own.
//!
//! What holds:
//! - Reads are async-signal-safe and take no lock.  Calls that arrive before the shim's constructor are system calls.
//! - The monotonic clock does not go back, and follows the kernel's within hptime's error bar.  A step of the real-time
//!   clock is seen when hptime next takes its anchors, a second later at most.
//! - A sleep is the real `clock_nanosleep` (a cancellation point) until the guard time, then a spin during which
//!   signals are held back and looked for, so that a handler ends the sleep with `EINTR` and the remaining time.
//!   Two windows of some hundred nanoseconds remain, at both ends of the spin, in which a handler's run goes unnoticed
//!   and the sleep ends at its deadline.
//! - A child of `fork` is served, and counts from zero.
//!
//! It cannot reach static executables, set-user-ID programs, Go programs, and code that calls the vDSO or the kernel by itself.
//!
//! Environment: `HPTIME_DISABLE=1`; `HPTIME_RULE=adaptive|highpertimer|os`; `HPTIME_STATS=PATH` or a descriptor's number,
//! to which one line of JSON is appended at exit; `HPTIME_VERBOSE=1` says on standard error why nothing is served.

pub mod counters;
pub mod entry;
pub mod kernel;
pub mod lifecycle;
pub mod real;
pub mod report;
pub mod settings;
pub mod signals;
pub mod sleep;
pub mod timekeeper;
