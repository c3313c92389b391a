#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! [`Clock`] is the clock and [`Sleeper`] the sleep.  Below them, [`tsc`] reads the counter, [`capability`] says what
//! the machine promises of it, [`calibration`] measures its frequency once, and [`os_clock`] reads the kernel's clocks.

mod admission;
mod arch;
pub mod calibration;
pub mod capability;
mod clock;
mod difference;
mod discipline;
mod estimate;
pub mod os_clock;
mod processors;
mod publication;
mod scale;
mod sleep;
mod source;
mod state_words;
mod status;

/// Reads of the time stamp counter.
pub mod tsc {
    pub use crate::arch::{read, read_after_loads, read_ordered_end, read_ordered_start, read_serialized};
}

pub use calibration::{Frequency, TickScale};
pub use capability::Capability;
pub use clock::{Clock, clock};
pub use difference::{DifferenceClock, Moment};
pub use os_clock::OsClock;
pub use scale::Scale;
pub use sleep::{Cause, Guard, Rule, SleepError, Sleeper, Wake};
pub use source::{Machine, Source};
pub use status::{DriftAlarm, ErrorBar, Fallback, Status};
