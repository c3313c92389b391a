//! How all streams of an estimate kept their time, whatever their rates.

use packets::histogram::Histogram;
use serde::Serialize;

use crate::transport::{Sent, Stream};

/// Gaps and lateness of all bursts; a packet that is sent by itself is a burst of one.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Time from a burst to the next of its stream, in thousandths of what was planned.
    pub gaps: Histogram,
    /// From each burst's deadline to its handover, in nanoseconds.
    pub lateness: Histogram,
}

impl Account {
    /// Adds a stream.  One without gaps was to be sent as fast as possible, and says nothing.
    pub fn add(&mut self, stream: &Stream, sent: &[Sent]) {
        let planned_ps = u128::from(stream.burst) * u128::from(stream.gap_ps);
        if planned_ps == 0 {
            return;
        }
        let mut previous_ns = None;
        for burst in bursts(stream, sent) {
            self.lateness.record(burst.lateness_ns());
            if let Some(previous_ns) = previous_ns.replace(burst.actual_ns) {
                let gap_ns = burst.actual_ns.saturating_sub(previous_ns).max(0) as u128;
                self.gaps.record(u64::try_from(gap_ns * 1_000_000 / planned_ps).unwrap_or(u64::MAX));
            }
        }
    }
}

/// The first packet of each burst, whose times are those of all.
pub(super) fn bursts<'s>(stream: &Stream, sent: &'s [Sent]) -> impl Iterator<Item = &'s Sent> + use<'s> {
    sent.iter().step_by(stream.burst.max(1) as usize)
}

/// A histogram as programs read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counted {
    /// What the values are: `ns`, or `permille`.
    pub unit: &'static str,
    /// Middles of the bins that hold something, ascending.
    pub values: Vec<u64>,
    /// How many each holds.
    pub counts: Vec<u64>,
    /// The least value, exact.
    pub min: u64,
    /// The greatest value, exact.
    pub max: u64,
    /// Exact mean.
    pub mean: f64,
    /// How many there are.
    pub n: u64,
}

impl Counted {
    /// `None` of an empty histogram.
    #[must_use]
    pub fn of(histogram: &Histogram, unit: &'static str) -> Option<Self> {
        let ((min, max), mean) = histogram.extremes().zip(histogram.mean())?;
        let (values, counts) = histogram.bins().unzip();
        Some(Self { unit, values, counts, min, max, mean, n: histogram.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(stream: &Stream, lateness_ns: &[i64]) -> Vec<Sent> {
        let planned = (0..stream.packets).map(|packet| 5_000 + stream.due_ns(packet) as i64);
        let late = lateness_ns.iter().flat_map(|&late_ns| (0..stream.burst).map(move |_| late_ns));
        planned
            .zip(late)
            .map(|(planned_ns, late)| Sent { planned_ns, actual_ns: planned_ns + late, left: true })
            .collect()
    }

    #[test]
    fn gaps_are_told_as_a_share_of_the_planned_ones_and_add_up_over_rates() {
        let mut account = Account::default();
        // 12 µs and 120 µs between packets; each time the second of three is a tenth of the gap late.
        for (rate_bps, late_ns) in [(1e9, 1_200), (1e8, 12_000)] {
            let stream = Stream::at_rate(3, 1500, rate_bps);
            account.add(&stream, &sent(&stream, &[0, late_ns, 0]));
        }
        assert_eq!(account.gaps.bins().collect::<Vec<_>>(), [(900, 2), (1100, 2)]);
        assert_eq!((account.lateness.len(), account.lateness.extremes()), (6, Some((0, 12_000))));
    }

    #[test]
    fn a_burst_counts_once_and_a_stream_without_gaps_not_at_all() {
        let mut account = Account::default();
        let stream = Stream::at_rate(12, 1500, 1e9).in_bursts_of(4);
        account.add(&stream, &sent(&stream, &[0, 0, 4_800]));
        assert_eq!(account.gaps.bins().collect::<Vec<_>>(), [(1000, 1), (1100, 1)]);
        let flat_out = Stream { gap_ps: 0, ..stream };
        account.add(&flat_out, &sent(&flat_out, &[0, 100, 200]));
        assert_eq!((account.gaps.len(), account.lateness.len()), (2, 3));
        let counted = Counted::of(&account.lateness, "ns").unwrap();
        assert_eq!((counted.values, counted.counts, counted.n, counted.max), (vec![0, 4800], vec![2, 1], 3, 4800));
        assert_eq!(Counted::of(&Histogram::new(), "ns"), None);
    }
}
