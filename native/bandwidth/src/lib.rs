//! Estimates of the available bandwidth of a path, from one of its ends to the other.
//!
//! Every estimator sends streams of numbered packets through a [`transport`], looks at when they left and when they
//! came, and finds the greatest rate at which the path does not yet queue them.

pub mod control;
pub mod cross_traffic;
pub mod estimators;
pub mod layer;
pub mod outcome;
pub mod pacing;
mod probing;
pub mod random;
pub mod simulated;
pub mod statistics;
mod train;
pub mod transport;
pub mod udp;

pub use probing::{Effort, Watch};

#[cfg(test)]
#[global_allocator]
static MEMORY: fuzz::Watched = fuzz::Watched;
