//! What a train of packets tells: how it was really sent, how it came, and whether that is congestion.

pub(crate) mod arrivals;
pub(crate) mod pacing;
pub(crate) mod threshold;
mod wander;
