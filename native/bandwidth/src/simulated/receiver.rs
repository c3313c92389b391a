//! The receiving machine: when it notices packets, and what its clock shows then.

use crate::random::Random;
use crate::transport::{Received, Stamp};

/// How packets are gathered before the machine looks at them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Batching {
    /// Each packet interrupts.
    None,
    /// The first packet starts a timer, and an interrupt then brings all that have come: what network cards do.
    FromFirst {
        /// How long the timer runs, in nanoseconds.
        period_ns: f64,
    },
    /// The machine looks at regular times, whatever has come: what a polling back end or a slow guest does.
    Regular {
        /// From one look to the next, in nanoseconds.
        period_ns: f64,
    },
}

/// The receiving machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receiver {
    /// How packets are gathered.
    pub batching: Batching,
    /// Time from one packet of a batch to the next as it is worked off, in nanoseconds.
    pub batch_step_ns: f64,
    /// So many packets of a batch are handed over in one piece, with one time (UDP GRO); 1 for none.
    pub segments: u32,
    /// Standard deviation of the stamps, in nanoseconds.
    pub noise_ns: f64,
    /// Stamps are multiples of this.
    pub resolution_ns: u32,
    /// How far the clock is off, in nanoseconds.
    pub offset_ns: i64,
    /// How fast it runs beyond the truth, in parts per million.
    pub drift_ppm: f64,
    /// Who stamps.
    pub source: Stamp,
}

impl Default for Receiver {
    /// Sees every packet at once, by a clock that is right to the nanosecond but for an offset.
    fn default() -> Self {
        Self {
            batching: Batching::None,
            batch_step_ns: 0.0,
            segments: 1,
            noise_ns: 0.0,
            resolution_ns: 1,
            offset_ns: -7_777_777_777,
            drift_ppm: 0.0,
            source: Stamp::Kernel,
        }
    }
}

impl Receiver {
    /// Stamps packets that arrive at true times, which must be in order.
    pub(super) fn stamp(&self, arrivals: &[(u32, f64)], random: &mut Random) -> Vec<Received> {
        let mut received: Vec<Received> = Vec::with_capacity(arrivals.len());
        let mut seen_ns = f64::NEG_INFINITY;
        let mut look_ns = f64::NEG_INFINITY;
        let mut together = 0;
        for &(sequence, arrives_ns) in arrivals {
            if arrives_ns > look_ns {
                look_ns = self.next_look(arrives_ns);
                together = 0;
            }
            let coalesced = together % self.segments.max(1) != 0;
            if !coalesced {
                seen_ns = look_ns.max(seen_ns + self.batch_step_ns);
            }
            let stamp_ns = self.clock_ns(seen_ns + random.normal(self.noise_ns));
            let at_ns = match received.last() {
                Some(before) if coalesced => before.at_ns,
                // The stamps of one queue never run backwards.
                Some(before) => stamp_ns.max(before.at_ns),
                None => stamp_ns,
            };
            received.push(Received { sequence, at_ns, stamp: self.source, coalesced });
            together += 1;
        }
        received
    }

    fn next_look(&self, arrives_ns: f64) -> f64 {
        match self.batching {
            Batching::None => arrives_ns,
            Batching::FromFirst { period_ns } => arrives_ns + period_ns,
            Batching::Regular { period_ns } => (arrives_ns / period_ns).ceil() * period_ns,
        }
    }

    fn clock_ns(&self, true_ns: f64) -> i64 {
        let shown = true_ns * (1.0 + self.drift_ppm * 1e-6) + self.offset_ns as f64;
        let step = f64::from(self.resolution_ns.max(1));
        ((shown / step).floor() * step) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(receiver: &Receiver) -> Vec<i64> {
        let arrivals: Vec<_> = (0..100).map(|i| (i, f64::from(i) * 10_000.0)).collect();
        receiver.stamp(&arrivals, &mut Random::new(1)).iter().map(|r| r.at_ns - receiver.offset_ns).collect()
    }

    #[test]
    fn a_timer_from_the_first_packet_brings_batches() {
        let batching = Batching::FromFirst { period_ns: 45_000.0 };
        let seen = stamps(&Receiver { batching, batch_step_ns: 300.0, ..Receiver::default() });
        assert_eq!(seen[..6], [45_000, 45_300, 45_600, 45_900, 46_200, 95_000]);
    }

    #[test]
    fn pieces_share_a_time() {
        let batching = Batching::Regular { period_ns: 100_000.0 };
        let receiver = Receiver { batching, batch_step_ns: 300.0, segments: 4, ..Receiver::default() };
        assert_eq!(stamps(&receiver)[1..7], [100_000, 100_000, 100_000, 100_000, 100_300, 100_300]);
    }

    #[test]
    fn a_coarse_clock_shows_multiples() {
        let seen = stamps(&Receiver { resolution_ns: 1000, offset_ns: 0, noise_ns: 100.0, ..Receiver::default() });
        assert!(seen.iter().all(|at_ns| at_ns % 1000 == 0));
        assert!(seen.is_sorted());
    }
}
