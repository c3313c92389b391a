//! A path whose available bandwidth is known exactly, to test estimators on.
//!
//! Packets of the probe and of the cross traffic pass through hops, each a queue of its own; the sender may stall, the
//! receiver may see packets late and in batches, and neither clock need be right.  The same seed gives the same
//! packets.  Between streams the cross traffic goes on, so that a stream meets the queues that it would meet.

mod hop;
mod receiver;
mod sender;

pub use hop::{CrossTraffic, Hop};
pub use receiver::{Batching, Receiver};
pub use sender::{Sender, Stalls};

use failure::Failure;

use crate::random::Random;
use crate::transport::{Limits, Observation, Stream, Transport};
use hop::Queue;

/// The path and both its ends.
#[derive(Clone, Debug)]
pub struct Path {
    /// The hops, in the order of travel; at least one.
    pub hops: Vec<Hop>,
    /// Share of the probes that vanish on the way for no reason of load.
    pub loss: f64,
    /// Share of the probes that take a detour.
    pub reordering: f64,
    /// How much longer the detour takes, in nanoseconds.
    pub detour_ns: f64,
    /// The machine that sends.
    pub sender: Sender,
    /// The machine that receives.
    pub receiver: Receiver,
    /// What the transport admits.
    pub limits: Limits,
}

impl Path {
    /// One hop between perfect machines.
    #[must_use]
    pub fn of(hop: Hop) -> Self {
        Self::through(vec![hop])
    }

    /// Several hops between perfect machines.
    #[must_use]
    pub fn through(hops: Vec<Hop>) -> Self {
        Self {
            hops,
            loss: 0.0,
            reordering: 0.0,
            detour_ns: 0.0,
            sender: Sender::default(),
            receiver: Receiver::default(),
            limits: Limits {
                shortest_bytes: 64,
                longest_bytes: 1500,
                most_packets: 10_000,
                most_burst: 64,
                burst_cost_ns: 0,
                packet_cost_ns: 0,
                max_paced_bps: None,
            },
        }
    }

    /// The truth: the rate in bit/s of IP packets of a length that is left over at the tightest hop, in the long run.
    #[must_use]
    pub fn available_bps(&self, packet_bytes: u32) -> f64 {
        self.hops.iter().map(|hop| hop.available_bps(packet_bytes)).fold(f64::INFINITY, f64::min)
    }
}

/// A transport over a simulated path.
#[derive(Clone, Debug)]
pub struct SimulatedPath {
    path: Path,
    queues: Vec<Queue>,
    sending: Random,
    travelling: Random,
    receiving: Random,
    /// True time, in nanoseconds.
    now_ns: f64,
    streams_left: Option<u32>,
}

/// The path is left alone for so long before the first stream, so that its queues are as they mostly are.
const WARM_UP_NS: f64 = 50e6;

impl SimulatedPath {
    /// The path with this seed.
    ///
    /// # Panics
    /// Without hops, or with a hop whose cross traffic alone overloads it: the truth would depend on when one looks.
    #[must_use]
    pub fn new(path: Path, seed: u64) -> Self {
        assert!(!path.hops.is_empty(), "a path has at least one hop");
        let mut random = Random::new(seed);
        let queues = path.hops.iter().map(|hop| Queue::new(hop, random.split())).collect();
        let (sending, travelling, receiving) = (random.split(), random.split(), random.split());
        Self { path, queues, sending, travelling, receiving, now_ns: WARM_UP_NS, streams_left: None }
    }

    /// The same path, but its far end vanishes after so many streams.
    #[must_use]
    pub fn vanishing_after(mut self, streams: u32) -> Self {
        self.streams_left = Some(streams);
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the packets of a stream travel; gives back who arrives when, in true nanoseconds, in order of arrival.
    fn travel(&mut self, departures: &[(u32, f64)], packet_bytes: u32) -> Vec<(u32, f64)> {
        let mut packets = departures.to_vec();
        for queue in &mut self.queues {
            packets = packets
                .into_iter()
                .filter_map(|(sequence, at_ns)| Some((sequence, queue.pass(at_ns, packet_bytes)?)))
                .collect();
        }
        packets.retain_mut(|(_, at_ns)| {
            if self.travelling.happens(self.path.reordering) {
                *at_ns += self.path.detour_ns;
            }
            !self.travelling.happens(self.path.loss)
        });
        packets.sort_by(|a, b| a.1.total_cmp(&b.1));
        packets
    }
}

impl Transport for SimulatedPath {
    fn limits(&self) -> Limits {
        self.path.limits
    }

    fn now_ns(&mut self) -> i64 {
        self.path.sender.clock_ns(self.now_ns)
    }

    fn rest(&mut self, duration_ns: u64) -> Result<(), Failure> {
        self.now_ns += duration_ns as f64;
        Ok(())
    }

    fn send(&mut self, stream: &Stream) -> Result<Observation, Failure> {
        let limits = &self.path.limits;
        let bytes = limits.shortest_bytes..=limits.longest_bytes;
        if !bytes.contains(&stream.packet_bytes) || stream.packets > limits.most_packets {
            return Err(Failure::Invalid(format!("a stream of {} × {} B", stream.packets, stream.packet_bytes)));
        }
        if let Some(left) = &mut self.streams_left {
            *left = left
                .checked_sub(1)
                .ok_or_else(|| Failure::PeerLost("the listener does not answer any more".to_owned()))?;
        }
        let departures = self.path.sender.send(stream, self.now_ns, &mut self.sending);
        let last_ns = departures.last().map_or(self.now_ns, |departure| departure.leaves_ns);
        let left = departures.iter().filter(|departure| departure.sent.left);
        let leaving: Vec<_> = left.map(|departure| (departure.sequence, departure.leaves_ns)).collect();
        let arrivals = self.travel(&leaving, stream.packet_bytes);
        let received = self.path.receiver.stamp(&arrivals, &mut self.receiving);
        self.now_ns = arrivals.last().map_or(last_ns, |&(_, at_ns)| at_ns.max(last_ns));
        Ok(Observation {
            stream: *stream,
            sent: departures.into_iter().map(|departure| departure.sent).collect(),
            received,
            duplicates: 0,
            foreign_packets: 0,
            resolution_ns: self.path.receiver.resolution_ns,
        })
    }
}
