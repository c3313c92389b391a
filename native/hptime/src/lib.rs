//! Calibrated access to the processor's time stamp counter.
//!
//! [`tsc`] reads the counter, [`capability`] says what the machine promises of it, [`calibration`] measures its
//! frequency against the kernel's undisciplined clock, and [`os_clock`] reads the kernel's clocks.

mod arch;
pub mod calibration;
pub mod capability;
pub mod os_clock;

/// Reads of the time stamp counter.
pub mod tsc {
    pub use crate::arch::{read, read_ordered_end, read_ordered_start, read_serialized};
}

pub use calibration::{Frequency, TickScale};
pub use capability::Capability;
pub use os_clock::OsClock;
