//! The account of received frames: per flow, which came, which came twice or late, and how long they took.

use crate::frame::Frame;
use crate::histogram::Histogram;

/// What became of one flow's frames.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Different frames that came.
    pub received: u64,
    /// Frames that had come before.
    pub duplicates: u64,
    /// Frames that came after one of the same flow that was sent later (Type-P-Reordered, RFC 4737 section 3.3).
    pub reordered: u64,
    /// Most sequence numbers that a reordered frame was behind.
    pub reordering_extent: u64,
    /// Time from sending to arrival of timed frames, duplicates not among them.
    pub latency: Histogram,
    next_expected: u64,
    seen: Vec<u64>,
}

impl Tally {
    fn new(frames: u64) -> Self {
        Self {
            received: 0,
            duplicates: 0,
            reordered: 0,
            reordering_extent: 0,
            latency: Histogram::new(),
            next_expected: 0,
            seen: vec![0; frames.div_ceil(64) as usize],
        }
    }

    /// False when the flow has no frame of this number.
    #[inline]
    fn count(&mut self, sequence: u32, latency_ns: Option<u64>) -> bool {
        let (word, bit) = (sequence as usize / 64, 1 << (sequence % 64));
        let Some(seen) = self.seen.get_mut(word) else { return false };
        if *seen & bit != 0 {
            self.duplicates += 1;
            return true;
        }
        *seen |= bit;
        self.received += 1;
        let sequence = u64::from(sequence);
        if sequence >= self.next_expected {
            self.next_expected = sequence + 1;
        } else {
            self.reordered += 1;
            self.reordering_extent = self.reordering_extent.max(self.next_expected - sequence);
        }
        if let Some(latency_ns) = latency_ns {
            self.latency.record(latency_ns);
        }
        true
    }
}

/// Judges and counts every frame that a receiver takes from its interface.
#[derive(Clone, Debug)]
pub struct Analyser {
    session: u32,
    length: usize,
    flows: Vec<Tally>,
    foreign: u64,
    corrupted: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
}

impl Analyser {
    /// For frames of this session and length (less the check sequence), of which each flow sends at most so many.
    #[must_use]
    pub fn new(session: u32, length: usize, frames_per_flow: &[u64]) -> Self {
        let flows = frames_per_flow.iter().map(|&frames| Tally::new(frames)).collect();
        Self { session, length, flows, foreign: 0, corrupted: 0, first_ns: None, last_ns: None }
    }

    /// Counts one received frame.  One that is said to come before it was sent took no time at all: clocks of kernel and
    /// program may differ by that little.
    #[inline]
    pub fn observe(&mut self, bytes: &[u8], arrival_ns: u64) {
        match Frame::parse(bytes, self.session, self.length) {
            Frame::Test { flow, sequence, time_ns } => {
                let latency_ns = (time_ns != 0).then(|| arrival_ns.saturating_sub(time_ns));
                let known =
                    self.flows.get_mut(usize::from(flow)).is_some_and(|tally| tally.count(sequence, latency_ns));
                if known {
                    self.first_ns.get_or_insert(arrival_ns);
                    self.last_ns = Some(arrival_ns);
                } else {
                    self.corrupted += 1;
                }
            }
            Frame::Corrupted => self.corrupted += 1,
            Frame::Foreign => self.foreign += 1,
        }
    }

    /// Counts frames that the port itself saw to be none of the session's.
    pub fn count_foreign(&mut self, frames: u64) {
        self.foreign += frames;
    }

    /// Each flow's account.
    #[must_use]
    pub fn flows(&self) -> &[Tally] {
        &self.flows
    }

    /// Frames of others: neighbour discovery, a bridge's own.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Frames of this session with a wrong length or checksum, or of no flow or number that was sent.
    #[must_use]
    pub fn corrupted(&self) -> u64 {
        self.corrupted
    }

    /// When the first and the last frame came.
    #[must_use]
    pub fn arrivals_ns(&self) -> Option<(u64, u64)> {
        self.first_ns.zip(self.last_ns)
    }

    /// Latency of all flows together.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        for flow in &self.flows {
            all.add(&flow.latency);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Flow, Template, fill};

    fn frame(flow: u16, sequence: u32, time_ns: u64) -> Vec<u8> {
        let ends = Flow {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            source: Ipv4Addr::new(10, 0, 0, 1),
            destination: Ipv4Addr::new(10, 1, 0, 1),
        };
        let mut bytes = vec![0; 100];
        fill(&mut bytes);
        Template::new(&ends, 5, flow, 100).write(&mut bytes, sequence, time_ns);
        bytes
    }

    /// Sequence numbers in the order of their arrival.
    fn arrived(sequences: &[u32]) -> Tally {
        let mut analyser = Analyser::new(5, 100, &[64]);
        for &sequence in sequences {
            analyser.observe(&frame(0, sequence, 1), 2);
        }
        analyser.flows()[0].clone()
    }

    #[test]
    fn order_is_judged_as_in_rfc_4737() {
        let figures = |tally: Tally| (tally.received, tally.duplicates, tally.reordered, tally.reordering_extent);
        assert_eq!(figures(arrived(&[0, 1, 2, 3])), (4, 0, 0, 0));
        // One that overtakes makes those that it overtook late, not itself.
        assert_eq!(figures(arrived(&[0, 3, 1, 2, 4])), (5, 0, 2, 3));
        // A gap is loss, not reordering.
        assert_eq!(figures(arrived(&[0, 5, 6])), (3, 0, 0, 0));
        // The copy counts as such, however late.
        assert_eq!(figures(arrived(&[0, 1, 0, 2, 2])), (3, 2, 0, 0));
    }

    #[test]
    fn only_timed_frames_have_a_latency() {
        let mut analyser = Analyser::new(5, 100, &[8, 8]);
        analyser.observe(&frame(0, 0, 0), 100);
        analyser.observe(&frame(1, 0, 70), 100);
        analyser.observe(&frame(1, 1, 170), 160);
        assert_eq!(analyser.flows()[0].latency.len(), 0);
        assert_eq!(analyser.latency().extremes(), Some((0, 30)));
        assert_eq!(analyser.arrivals_ns(), Some((100, 160)));
    }

    #[test]
    fn frames_of_nobody_are_told_from_harmed_ones() {
        let mut analyser = Analyser::new(5, 100, &[64]);
        analyser.observe(&frame(1, 0, 1), 2); // no such flow
        analyser.observe(&frame(0, 64, 1), 2); // no such number
        let mut harmed = frame(0, 0, 1);
        harmed[99] ^= 1;
        analyser.observe(&harmed, 2);
        analyser.observe(&[0; 100], 2);
        analyser.observe(&[], 2);
        assert_eq!((analyser.corrupted(), analyser.foreign()), (3, 2));
        assert_eq!(analyser.flows()[0].received, 0);
        assert_eq!(analyser.arrivals_ns(), None);
    }

    proptest! {
        #[test]
        fn every_frame_is_counted_once(sequences in proptest::collection::vec(0u32..64, 0..200)) {
            let tally = arrived(&sequences);
            let different: std::collections::BTreeSet<_> = sequences.iter().collect();
            prop_assert_eq!(tally.received, different.len() as u64);
            prop_assert_eq!(tally.received + tally.duplicates, sequences.len() as u64);
            prop_assert!(tally.reordered <= tally.received.saturating_sub(1));
        }
    }
}
