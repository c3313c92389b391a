//! Estimates of the available bandwidth of a path, from one of its ends to the other.
//!
//! Every estimator sends streams of numbered packets through a [`transport`], looks at when they left and when they
//! came, and finds the greatest rate at which the path does not yet queue them.
//!
//! Every rate is of **IP packets**: 8·L/T, with L the length of the IP packet with its headers, as both published estimators
//! count.  A packet of 1500 B occupies 1538 B of an Ethernet wire, so a link of 1 Gbit/s carries at most 975.3 Mbit/s of
//! such packets, and far less of short ones.

pub mod control;
pub mod cross_traffic;
pub mod estimators;
pub mod outcome;
pub mod pacing;
mod probing;
pub mod simulated;
pub mod statistics;
mod train;
pub mod transport;
pub mod udp;

pub use packets::random;
pub use probing::{Effort, Watch};

#[cfg(test)]
#[global_allocator]
static MEMORY: fuzz::Watched = fuzz::Watched;
