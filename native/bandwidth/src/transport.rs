//! What every estimator asks of the path: send this stream, and say when its packets left and when they came.
//!
//! Real transports stamp real packets; [`crate::simulated`] computes the same of a path whose truth is known.

use failure::Failure;
use serde::Serialize;

/// Picoseconds in a nanosecond.
const PS_PER_NS: u64 = 1000;

/// When a packet's turn is reckoned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// From the stream's start, whatever became of the packets before: a late packet delays no other.
    Absolute,
    /// From the moment at which the packet before was really sent, as Yaz did: lateness adds up.
    AfterPrevious,
}

/// A train of packets to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// How many packets; they are numbered from 0.
    pub packets: u32,
    /// Length of each IP packet with its headers, in bytes.
    pub packet_bytes: u32,
    /// Mean time from one packet to the next, in picoseconds.
    pub gap_ps: u64,
    /// So many packets leave together, back to back, when the first of them is due; 1 for even spacing.
    pub burst: u32,
    /// From where a packet's turn is reckoned.
    pub spacing: Spacing,
}

impl Stream {
    /// An evenly spaced train with absolute deadlines, at a rate in bit/s of IP packets.
    #[must_use]
    pub fn at_rate(packets: u32, packet_bytes: u32, rate_bps: f64) -> Self {
        let gap_ps = (f64::from(packet_bytes) * 8e12 / rate_bps).round() as u64;
        Self { packets, packet_bytes, gap_ps, burst: 1, spacing: Spacing::Absolute }
    }

    /// The same in bursts of so many packets.
    #[must_use]
    pub fn in_bursts_of(mut self, burst: u32) -> Self {
        self.burst = burst.max(1);
        self
    }

    /// When a packet is due, in nanoseconds after the first: with its burst.
    #[inline]
    #[must_use]
    pub fn due_ns(&self, packet: u32) -> u64 {
        let first_of_burst = u64::from(packet - packet % self.burst);
        first_of_burst * self.gap_ps / PS_PER_NS
    }

    /// The rate in bit/s of IP packets; infinite without gaps.
    #[must_use]
    pub fn rate_bps(&self) -> f64 {
        f64::from(self.packet_bytes) * 8e12 / self.gap_ps as f64
    }

    /// From the first packet to the end of the last one's turn, in nanoseconds.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        u64::from(self.packets) * self.gap_ps / PS_PER_NS
    }

    /// What the stream sends, in bytes of IP packets.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.packets) * u64::from(self.packet_bytes)
    }
}

/// What the sender saw of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Sent {
    /// When it was due, by the sender's clock, in nanoseconds since an arbitrary moment.
    pub planned_ns: i64,
    /// When it was handed to the operating system: stamped just before, once for packets that are handed over together.
    pub actual_ns: i64,
    /// False if the sending host itself refused the packet (a full queue), so that its absence says nothing of the path.
    pub left: bool,
}

/// Who stamped a packet when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stamp {
    /// The network interface.
    Hardware,
    /// The kernel, when the driver handed it over.
    Kernel,
    /// The receiving program, after it had read it.
    Program,
}

/// What the receiver saw of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Received {
    /// Its number.
    pub sequence: u32,
    /// When it came, by the receiver's clock, in nanoseconds since a moment that has nothing to do with the sender's.
    pub at_ns: i64,
    /// Who says so.
    pub stamp: Stamp,
    /// It was handed over in one piece with the packet before (UDP GRO), so that the time is not its own.
    pub coalesced: bool,
}

/// What became of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What was asked for.
    pub stream: Stream,
    /// By number: `sent[i]` is packet i.  Shorter than asked for only if sending was given up.
    pub sent: Vec<Sent>,
    /// In the order in which they came, each once.
    pub received: Vec<Received>,
    /// Packets that came more than once.
    pub duplicates: u32,
    /// Foreign packets, or of no session, that came meanwhile and were ignored.
    pub foreign_packets: u64,
    /// The least time that the receiver's stamps can tell apart, in nanoseconds.
    pub resolution_ns: u32,
}

impl Sent {
    /// How long after it was due it was handed over, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn lateness_ns(&self) -> u64 {
        self.actual_ns.saturating_sub(self.planned_ns).max(0) as u64
    }
}

impl Observation {
    /// Packets that left this host and never came.
    #[must_use]
    pub fn lost(&self) -> u32 {
        let left = self.sent.iter().filter(|sent| sent.left).count();
        left.saturating_sub(self.received.len()) as u32
    }

    /// Packets that this host refused to send.
    #[must_use]
    pub fn refused(&self) -> u32 {
        self.sent.iter().filter(|sent| !sent.left).count() as u32
    }

    /// Packets that came after one that was sent later (RFC 4737, type-P-reordered).
    #[must_use]
    pub fn reordered(&self) -> u32 {
        let mut next = 0;
        let mut late = 0;
        for received in &self.received {
            if received.sequence >= next {
                next = received.sequence + 1;
            } else {
                late += 1;
            }
        }
        late
    }

    /// What was sent, in bytes of IP packets.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.sent.len() as u64 - u64::from(self.refused())) * u64::from(self.stream.packet_bytes)
    }
}

/// What a transport can do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// The shortest IP packet: its headers and the probe's own.
    pub shortest_bytes: u32,
    /// The longest IP packet that the path takes in one piece.
    pub longest_bytes: u32,
    /// The most packets in one stream.
    pub most_packets: u32,
    /// The most packets in one burst.
    pub most_burst: u32,
    /// What handing over a burst costs the sender, however few its packets, in nanoseconds.
    pub burst_cost_ns: u64,
    /// What each packet of a burst costs besides, in nanoseconds: no rate with a shorter gap is paced.
    pub packet_cost_ns: u64,
    /// The highest rate that the host is known to pace, in bit/s of IP packets; `None` if nobody has measured it.
    pub max_paced_bps: Option<f64>,
}

/// A path from here to another machine, with somebody at its end who stamps what comes.
pub trait Transport {
    /// What it can do.
    fn limits(&self) -> Limits;

    /// The sender's clock, in nanoseconds since an arbitrary moment; the one of [`Sent::actual_ns`].
    fn now_ns(&mut self) -> i64;

    /// Waits between streams.  [`Failure::Cancelled`] if somebody asks for an end meanwhile.
    fn rest(&mut self, duration_ns: u64) -> Result<(), Failure>;

    /// Sends a stream, waits for the last stragglers, and gives back what both ends saw.
    ///
    /// What the path does to packets is never an error: a stream of which nothing comes is an observation.
    ///
    /// # Errors
    /// [`Failure::Invalid`] or [`Failure::Unsupported`] for a stream beyond the limits, [`Failure::PeerLost`] when
    /// the other end no longer answers, [`Failure::ClockStep`] if a clock jumped, [`Failure::Cancelled`].
    fn send(&mut self, stream: &Stream) -> Result<Observation, Failure>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_due_with_their_burst_and_without_drift() {
        let even = Stream::at_rate(1000, 1500, 975e6);
        assert_eq!(even.gap_ps, 12_307_692);
        assert_eq!((even.due_ns(0), even.due_ns(1), even.due_ns(999)), (0, 12_307, 12_295_384));
        let bursts = even.in_bursts_of(8);
        assert_eq!((bursts.due_ns(7), bursts.due_ns(8), bursts.due_ns(15)), (0, 98_461, 98_461));
        assert!((even.rate_bps() - 975e6).abs() < 100.0);
        assert_eq!(even.bytes(), 1_500_000);
    }

    #[test]
    fn loss_refusal_and_reordering_are_told_apart() {
        let sent = |left| Sent { planned_ns: 0, actual_ns: 0, left };
        let came = |sequence| Received { sequence, at_ns: 0, stamp: Stamp::Kernel, coalesced: false };
        let observation = Observation {
            stream: Stream::at_rate(5, 1500, 1e9),
            sent: vec![sent(true), sent(true), sent(false), sent(true), sent(true)],
            received: vec![came(0), came(4), came(1)],
            duplicates: 0,
            foreign_packets: 0,
            resolution_ns: 1,
        };
        assert_eq!((observation.lost(), observation.refused(), observation.reordered()), (1, 1, 1));
        assert_eq!(observation.bytes(), 6000);
    }
}
