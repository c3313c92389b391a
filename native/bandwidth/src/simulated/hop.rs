//! One hop: a capacity, a queue, and what others send through it.

use crate::random::Random;

/// What Ethernet adds to an IP packet on the wire: preamble 8, header 14, check sequence 4, interframe gap 12 bytes
/// (IEEE 802.3).
const ETHERNET_BYTES: u32 = 38;

/// What others send through a hop.  Rates count packets as the hop's capacity counts them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CrossTraffic {
    /// Nothing.
    None,
    /// A fluid: no packets, so that nothing is random.  What the theory of probe rates assumes.
    Fluid {
        /// Its rate, in bit/s.
        rate_bps: f64,
    },
    /// A packet in every equal interval.
    Constant {
        /// Mean rate, in bit/s.
        rate_bps: f64,
        /// Length of each packet as the hop counts it, in bytes.
        packet_bytes: u32,
    },
    /// Packets at random, independent of one another.
    Poisson {
        /// Mean rate, in bit/s.
        rate_bps: f64,
        /// Length of each packet as the hop counts it, in bytes.
        packet_bytes: u32,
    },
}

impl CrossTraffic {
    /// The mean rate, in bit/s.
    #[must_use]
    pub fn offered_bps(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Fluid { rate_bps } | Self::Constant { rate_bps, .. } | Self::Poisson { rate_bps, .. } => rate_bps,
        }
    }

    /// What of it is a fluid, in bit/s.
    pub(super) fn fluid_bps(&self) -> f64 {
        if let Self::Fluid { rate_bps } = *self { rate_bps } else { 0.0 }
    }

    /// The time from one packet to the next, in nanoseconds, and the packet's length in bytes; `None` without packets.
    pub(super) fn next_packet(&self, random: &mut Random) -> Option<(f64, u32)> {
        let mean_ns = |rate_bps: f64, packet_bytes: u32| f64::from(packet_bytes) * 8e9 / rate_bps;
        match *self {
            Self::Constant { rate_bps, packet_bytes } if rate_bps > 0.0 => {
                Some((mean_ns(rate_bps, packet_bytes), packet_bytes))
            }
            Self::Poisson { rate_bps, packet_bytes } if rate_bps > 0.0 => {
                Some((random.exponential(mean_ns(rate_bps, packet_bytes)), packet_bytes))
            }
            _ => None,
        }
    }
}

/// What a hop is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    /// What it carries, in bit/s.
    pub capacity_bps: f64,
    /// What it counts for a packet beside its IP bytes.
    pub overhead_bytes: u32,
    /// What it passes without delay after a pause, in bytes: a token bucket's depth; 0 for a wire.
    pub bucket_bytes: f64,
    /// What it holds at most, in bytes; a packet that finds no room is dropped.
    pub queue_bytes: f64,
    /// How long a packet travels after it, in nanoseconds.
    pub delay_ns: f64,
    /// What others send.
    pub cross: CrossTraffic,
}

impl Hop {
    /// An Ethernet link of a capacity with a long queue, without others.
    #[must_use]
    pub fn ethernet(capacity_bps: f64) -> Self {
        Self {
            capacity_bps,
            overhead_bytes: ETHERNET_BYTES,
            bucket_bytes: 0.0,
            queue_bytes: 4e6,
            delay_ns: 50e3,
            cross: CrossTraffic::None,
        }
    }

    /// The same with others' traffic.
    #[must_use]
    pub fn with(mut self, cross: CrossTraffic) -> Self {
        self.cross = cross;
        self
    }

    /// The rate of IP packets of one length that others leave over, in bit/s.
    pub(super) fn available_bps(&self, packet_bytes: u32) -> f64 {
        let left_bps = self.capacity_bps - self.cross.offered_bps();
        left_bps * f64::from(packet_bytes) / f64::from(packet_bytes + self.overhead_bytes)
    }
}

/// A hop at work.
///
/// What waits is kept as work, in bytes (Lindley 1952): it drains with the capacity and grows with each packet.  Below
/// zero, it is the filling of the token bucket.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    hop: Hop,
    random: Random,
    work_bytes: f64,
    at_ns: f64,
    next_cross: Option<(f64, u32)>,
}

impl Queue {
    pub(super) fn new(hop: &Hop, mut random: Random) -> Self {
        assert!(hop.cross.offered_bps() < hop.capacity_bps, "cross traffic leaves nothing of the hop");
        // The first packet comes at a random moment of its interval, so that seeds differ in phase too.
        let next_cross = hop.cross.next_packet(&mut random).map(|(gap_ns, bytes)| (gap_ns * random.uniform(), bytes));
        Self { hop: *hop, random, work_bytes: -hop.bucket_bytes, at_ns: 0.0, next_cross }
    }

    /// A probe of so many IP bytes comes; when it reaches the next hop, in true nanoseconds, or nothing if it is dropped.
    ///
    /// Probes must come in order of time.
    pub(super) fn pass(&mut self, at_ns: f64, packet_bytes: u32) -> Option<f64> {
        while let Some((cross_ns, bytes)) = self.next_cross.filter(|&(cross_ns, _)| cross_ns <= at_ns) {
            self.drain_until(cross_ns);
            self.admit(bytes);
            self.next_cross =
                self.hop.cross.next_packet(&mut self.random).map(|(gap_ns, bytes)| (cross_ns + gap_ns, bytes));
        }
        self.drain_until(at_ns);
        if !self.admit(packet_bytes + self.hop.overhead_bytes) {
            return None;
        }
        let waiting_ns = self.work_bytes.max(0.0) * 8e9 / self.hop.capacity_bps;
        Some(at_ns + waiting_ns + self.hop.delay_ns)
    }

    fn drain_until(&mut self, at_ns: f64) {
        let bytes_per_ns = (self.hop.capacity_bps - self.hop.cross.fluid_bps()) / 8e9;
        self.work_bytes = (self.work_bytes - (at_ns - self.at_ns) * bytes_per_ns).max(-self.hop.bucket_bytes);
        self.at_ns = at_ns;
    }

    fn admit(&mut self, bytes: u32) -> bool {
        let fits = self.work_bytes + f64::from(bytes) <= self.hop.queue_bytes;
        if fits {
            self.work_bytes += f64::from(bytes);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a constant stream of IP packets; gives the rate at which they come out, in bit/s of IP packets.
    fn output_bps(hop: &Hop, input_bps: f64, packets: u32) -> f64 {
        let mut queue = Queue::new(hop, Random::new(3));
        let gap_ns = 1500.0 * 8e9 / input_bps;
        let out: Vec<f64> = (0..packets).filter_map(|i| queue.pass(1e6 + f64::from(i) * gap_ns, 1500)).collect();
        (out.len() - 1) as f64 * 1500.0 * 8e9 / (out[out.len() - 1] - out[0])
    }

    #[test]
    fn full_packets_fill_975_3_mbit_of_a_gigabit() {
        assert!((Hop::ethernet(1e9).available_bps(1500) - 975_292_587.8).abs() < 1.0);
    }

    #[test]
    fn a_fluid_answers_as_the_theory_says() {
        let hop = Hop { overhead_bytes: 0, ..Hop::ethernet(1e9) }.with(CrossTraffic::Fluid { rate_bps: 500e6 });
        assert!((output_bps(&hop, 400e6, 500) - 400e6).abs() < 1.0);
        // R·C/(R + X) above what is available, but for the first packet's own turn.
        let above = output_bps(&hop, 800e6, 2000);
        assert!((above / (800e6 * 1e9 / 1300e6) - 1.0).abs() < 1e-3, "{above}");
    }

    #[test]
    fn packets_answer_as_the_fluid_does_in_the_long_run() {
        for cross in [
            CrossTraffic::Constant { rate_bps: 500e6, packet_bytes: 1538 },
            CrossTraffic::Poisson { rate_bps: 500e6, packet_bytes: 1538 },
        ] {
            let hop = Hop { overhead_bytes: 0, ..Hop::ethernet(1e9) }.with(cross);
            let above = output_bps(&Hop { queue_bytes: 1e12, ..hop }, 800e6, 40_000);
            assert!((above / (800e6 * 1e9 / 1300e6) - 1.0).abs() < 0.01, "{cross:?} {above}");
        }
    }

    #[test]
    fn a_full_queue_drops() {
        let hop = Hop { queue_bytes: 15_380.0, ..Hop::ethernet(100e6) };
        let mut queue = Queue::new(&hop, Random::new(1));
        let passed = (0..20).filter(|_| queue.pass(0.0, 1500).is_some()).count();
        assert_eq!(passed, 10);
    }

    #[test]
    fn a_token_bucket_lets_its_depth_pass_at_once() {
        let hop = Hop { bucket_bytes: 15_380.0, delay_ns: 0.0, ..Hop::ethernet(100e6) };
        let mut queue = Queue::new(&hop, Random::new(1));
        let out: Vec<f64> = (0..12).filter_map(|_| queue.pass(1e9, 1500)).collect();
        assert!(out[..10].iter().all(|at_ns| (at_ns - 1e9).abs() < 1.0), "{out:?}");
        assert!((out[11] - 1e9 - 2.0 * 1538.0 * 80.0).abs() < 1.0, "{out:?}");
    }
}
