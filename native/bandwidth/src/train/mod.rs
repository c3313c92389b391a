//! What a train of packets tells: how it was really sent, how it came, and whether that is congestion: how much the delay may
//! grow over a train that the path carries.

pub(crate) mod arrivals;
pub(crate) mod pacing;

use arrivals::Passage;

/// What a queue that is exactly full does to the delay over a train, as a multiple of how far it strays by itself: it is
/// a random walk that cannot fall below zero, and half of all such trains gain more than 0.6745, the median of a normal
/// value's size.  A little more, because two figures of a train are looked at and either may be above by chance; found on
/// simulated paths.  With less, a path with bursty traffic would look full long before it is.
const GAIN_AT_CAPACITY: f64 = 0.75;

/// How far that is trusted: the queue is not quite empty when a train begins, and how it strays is itself only estimated.
const MODEL_DOUBT: f64 = 0.25;

/// A threshold for the growth of the delay by time, without unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Threshold {
    /// More than this is congestion.
    pub(crate) growth: f64,
    /// What a path that is exactly full shows in half of the trains.
    at_capacity: f64,
}

impl Threshold {
    /// The growth of a path that is exactly full, but not less than `least`.
    pub(crate) fn of(passage: &Passage, least: f64) -> Self {
        let at_capacity = GAIN_AT_CAPACITY * passage.wander;
        Self { growth: at_capacity.max(least), at_capacity }
    }

    /// How much growth a train that was found carried may yet hide.
    pub(crate) fn leniency(&self) -> f64 {
        self.growth - self.at_capacity + MODEL_DOUBT * self.at_capacity
    }

    /// How much growth a train that was found congested may owe to chance.
    pub(crate) fn strictness(&self) -> f64 {
        MODEL_DOUBT * self.at_capacity
    }
}

/// A rate that was judged, and how far the truth may be on its other side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Judged {
    /// The rate, in bit/s of IP packets.
    pub(crate) rate_bps: f64,
    /// Growth of the delay that the verdict may have missed or made up, without unit.
    pub(crate) doubt: f64,
    /// Packets in the trains: one more or less in so many cannot be told.
    pub(crate) packets: u32,
}

impl Judged {
    /// By how much the truth may be on the other side, in bit/s: a growth of g means g·C too much (Jain, Dovrolis 2002).
    pub(crate) fn doubt_bps(&self, capacity_bps: f64) -> f64 {
        self.doubt * capacity_bps.max(self.rate_bps) + self.rate_bps / f64::from(self.packets.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Slope;

    fn passage(wander: f64) -> Passage {
        Passage { rate_ratio: 1.0, delay: Slope { value: 0.0, standard_error: 0.0 }, wander }
    }

    #[test]
    fn a_calm_path_has_the_least_threshold_and_a_restless_one_its_own() {
        let calm = Threshold::of(&passage(0.0), 5e-4);
        assert_eq!((calm.growth, calm.leniency(), calm.strictness()), (5e-4, 5e-4, 0.0));
        let restless = Threshold::of(&passage(0.04), 5e-4);
        assert!((restless.growth - 0.03).abs() < 1e-9);
        assert!((restless.leniency() - restless.strictness()).abs() < 1e-12);
    }

    #[test]
    fn doubt_is_a_share_of_the_capacity_and_one_packet() {
        let judged = Judged { rate_bps: 200e6, doubt: 0.005, packets: 50 };
        assert!((judged.doubt_bps(1e9) - 9e6).abs() < 1.0);
    }
}
