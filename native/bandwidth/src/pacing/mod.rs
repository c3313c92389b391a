//! Sending on time, and how far that can be trusted.
//!
//! [`timing`] is the clock and the sleep, [`schedule`] the loop that sends a stream by them.  [`profile`] says how well a
//! stream kept its time and whether that was honest, [`account`] how all streams of an estimate did, and [`ladder`] finds the
//! highest rate that is honest.

pub mod account;
pub mod calibration;
pub mod frames;
pub mod ladder;
pub mod placement;
pub mod profile;
pub mod schedule;
pub mod timing;
