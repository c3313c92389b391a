//! Sending on time, and how far that can be trusted.
//!
//! [`timing`] is the clock and the sleep, [`schedule`] the loop that sends a stream by them.  [`profile`] says how well a
//! stream kept its time and whether that rate was paced, [`account`] how all streams of an estimate did, and [`sweep`] finds the
//! highest rate that is paced.

pub mod account;
pub mod calibration;
pub mod frames;
pub mod placement;
pub mod profile;
pub mod schedule;
pub mod sweep;
pub mod timing;
