//! How well a stream kept its time, and whether that was paced.
//!
//! A rate was paced if
//! - the achieved rate is within [`RATE_TOLERANCE`] of the one asked for, and
//! - at most [`LATE_SHARE`] of the bursts left later than their deadlines by more than [`bound_ns`].
//!
//! A single packet is a burst of one.  Lateness counts and not only the gap, because packets that follow a stall without
//! gaps leave at a rate that nobody asked for.

use packets::histogram::Histogram;
use serde::Serialize;

use crate::pacing::account;
use crate::pacing::schedule::Transmission;
use crate::transport::Observation;

/// How far the achieved rate may be from the one asked for.
pub const RATE_TOLERANCE: f64 = 0.01;

/// So many of the bursts may be late.
pub const LATE_SHARE: f64 = 0.01;

/// Least bound: below it, reading a clock and calling the kernel are themselves uneven.
const LEAST_BOUND_NS: u64 = 2_000;

/// Greatest bound: a burst that is later has been kept from the processor.
const GREATEST_BOUND_NS: u64 = 50_000;

/// A point of the CCDF that is less than this part below the one before is left out.
const CCDF_STEP: f64 = 0.9;

/// A burst that leaves so long after its deadline is late: half the time between bursts, and 2 to 50 µs.
#[must_use]
pub fn bound_ns(interval_ns: u64) -> u64 {
    (interval_ns / 2).clamp(LEAST_BOUND_NS, GREATEST_BOUND_NS)
}

/// A distribution of times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How many.
    pub n: u64,
    /// Exact mean.
    pub mean_ns: f64,
    /// Half are no longer.
    pub p50_ns: u64,
    /// 99 of 100 are no longer.
    pub p99_ns: u64,
    /// 999 of 1000 are no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Complementary distribution: times, ascending, and the share of all that is longer.
    pub ccdf: Vec<(u64, f64)>,
}

impl Times {
    /// Of a histogram with 3 significant digits; `None` of an empty one.
    #[must_use]
    pub fn of(histogram: &Histogram) -> Option<Self> {
        let n = histogram.len();
        let quantile = |share| histogram.quantile(share);
        let mut ccdf: Vec<(u64, f64)> = Vec::new();
        let (mut counted, mut kept_share) = (0, f64::INFINITY);
        for (value_ns, count) in histogram.bins() {
            counted += count;
            let share = (n - counted) as f64 / n as f64;
            if share <= kept_share * CCDF_STEP {
                ccdf.push((value_ns, share));
                kept_share = share;
            }
        }
        Some(Self {
            n,
            mean_ns: histogram.mean()?,
            p50_ns: quantile(0.5)?,
            p99_ns: quantile(0.99)?,
            p999_ns: quantile(0.999)?,
            max_ns: histogram.extremes()?.1,
            ccdf,
        })
    }
}

/// How well a stream kept its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// Rate asked for, in bit/s of IP packets; `None` for as fast as possible.
    pub asked_bps: Option<f64>,
    /// Rate from the first burst to the last.
    pub achieved_bps: f64,
    /// Packets in each burst.
    pub burst: u32,
    /// Bursts sent.
    pub bursts: u64,
    /// Packets that the host itself refused.
    pub refused: u64,
    /// A burst that leaves so long after its deadline is late.
    pub bound_ns: u64,
    /// Share of the bursts that were late; `None` for as fast as possible.
    pub late_share: Option<f64>,
    /// Time between successive bursts.
    pub gaps: Option<Times>,
    /// From each burst's deadline to its handover; `None` for as fast as possible.
    pub lateness: Option<Times>,
    /// Share of the time spent in handing packets over; `None` where nobody measured it.
    pub busy_share: Option<f64>,
    /// CPU time of the sending thread, in shares of one processor; waiting awake is CPU time.  `None` where nobody measured it.
    pub cpu_share: Option<f64>,
    /// Packets that came, of all that left; `None` where nobody received.
    pub received_share: Option<f64>,
    /// Whether the rate was paced.
    pub paced: bool,
}

/// What a profile is made of.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Rate asked for; `None` for as fast as possible.
    pub asked_bps: Option<f64>,
    /// Rate achieved.
    pub achieved_bps: f64,
    /// Packets in each burst.
    pub burst: u32,
    /// Time between bursts that was asked for.
    pub interval_ns: u64,
    /// Bursts sent.
    pub bursts: u64,
    /// Packets refused.
    pub refused: u64,
    /// Time between successive bursts.
    pub gaps: Histogram,
    /// From deadline to handover.
    pub lateness: Histogram,
    /// Share of the time spent in handing packets over.
    pub busy_share: Option<f64>,
    /// CPU time in shares of one processor.
    pub cpu_share: f64,
    /// All was sent that was asked for.
    pub complete: bool,
}

#[cfg(test)]
impl Measured {
    /// Of one burst that left so long after its deadline, at a rate that was reached.
    pub(crate) fn of_one(asked_bps: Option<f64>, achieved_bps: f64, burst: u32, lateness_ns: u64) -> Self {
        let mut lateness = Histogram::new();
        lateness.record(lateness_ns);
        Self {
            asked_bps,
            achieved_bps,
            burst,
            interval_ns: 10_000,
            bursts: 1,
            refused: 0,
            gaps: Histogram::new(),
            lateness,
            busy_share: None,
            cpu_share: 1.0,
            complete: true,
        }
    }
}

impl Profile {
    /// Of a transmission from user space.
    #[must_use]
    pub fn of(transmission: &Transmission) -> Self {
        let stream = &transmission.stream;
        let sent = &transmission.sent;
        let (mut gaps, mut lateness) = (Histogram::new(), Histogram::new());
        let bursts: Vec<_> = account::bursts(stream, sent).collect();
        for burst in &bursts {
            lateness.record(burst.lateness_ns());
        }
        for pair in bursts.windows(2) {
            gaps.record(pair[1].actual_ns.saturating_sub(pair[0].actual_ns).max(0) as u64);
        }
        let spread_ns = bursts.last().map_or(0, |last| last.actual_ns - bursts[0].actual_ns);
        // Those of the last burst leave when the time that is looked at has passed.
        let within = bursts.len().saturating_sub(1) * stream.burst as usize;
        let left = sent[..within.min(sent.len())].iter().filter(|sent| sent.left).count();
        let bits = left as f64 * f64::from(stream.packet_bytes) * 8.0;
        let elapsed_ns = transmission.elapsed_ns.max(1) as f64;
        Self::from_measured(&Measured {
            asked_bps: (stream.gap_ps > 0).then(|| stream.rate_bps()),
            achieved_bps: if spread_ns > 0 { bits / spread_ns as f64 * 1e9 } else { 0.0 },
            burst: stream.burst,
            interval_ns: u64::from(stream.burst) * stream.gap_ps / 1000,
            bursts: bursts.len() as u64,
            refused: sent.iter().filter(|sent| !sent.left).count() as u64,
            gaps,
            lateness,
            busy_share: Some(transmission.busy_ns as f64 / elapsed_ns),
            cpu_share: transmission.cpu_ns as f64 / elapsed_ns,
            complete: sent.len() == stream.packets as usize,
        })
    }

    /// Of a stream that came back to an estimator, who is told when its packets left and not what that cost.
    #[must_use]
    pub fn of_observation(observation: &Observation) -> Self {
        let sent = &observation.sent;
        let spread_ns = sent.first().zip(sent.last()).map_or(0, |(first, last)| last.actual_ns - first.actual_ns);
        let mut profile = Self::of(&Transmission {
            stream: observation.stream,
            sent: sent.clone(),
            busy_ns: 0,
            elapsed_ns: spread_ns.max(0) as u64,
            cpu_ns: 0,
        });
        (profile.busy_share, profile.cpu_share) = (None, None);
        profile
    }

    /// Judges what was measured.
    #[must_use]
    pub fn from_measured(measured: &Measured) -> Self {
        let bound_ns = bound_ns(measured.interval_ns);
        let late: u64 =
            measured.lateness.bins().filter(|&(lateness_ns, _)| lateness_ns > bound_ns).map(|(_, count)| count).sum();
        let late_share = late as f64 / measured.lateness.len().max(1) as f64;
        let rate_kept =
            measured.asked_bps.is_some_and(|asked| (measured.achieved_bps / asked - 1.0).abs() <= RATE_TOLERANCE);
        Self {
            asked_bps: measured.asked_bps,
            achieved_bps: measured.achieved_bps,
            burst: measured.burst,
            bursts: measured.bursts,
            refused: measured.refused,
            bound_ns,
            late_share: measured.asked_bps.map(|_| late_share),
            gaps: Times::of(&measured.gaps),
            lateness: measured.asked_bps.and_then(|_| Times::of(&measured.lateness)),
            busy_share: measured.busy_share,
            cpu_share: Some(measured.cpu_share),
            received_share: None,
            paced: rate_kept && late_share <= LATE_SHARE && measured.complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Sent, Stream};

    /// A transmission in which some bursts leave late, by the burst's number.
    fn transmission(stream: Stream, lateness_ns: impl Fn(u32) -> i64) -> Transmission {
        let sent = (0..stream.packets).map(|packet| {
            let planned_ns = 1_000_000 + stream.due_ns(packet) as i64;
            Sent { planned_ns, actual_ns: planned_ns + lateness_ns(packet / stream.burst), left: true }
        });
        Transmission { stream, sent: sent.collect(), busy_ns: 250, elapsed_ns: 1000, cpu_ns: 500 }
    }

    #[test]
    fn a_stream_that_kept_its_time_is_paced_and_its_figures_are_exact() {
        // 12 µs from packet to packet.
        let profile = Profile::of(&transmission(Stream::at_rate(1000, 1500, 1e9), |_| 300));
        assert!(profile.paced);
        assert_eq!((profile.bound_ns, profile.late_share, profile.bursts), (6_000, Some(0.0), 1000));
        assert!((profile.achieved_bps / 1e9 - 1.0).abs() < 1e-9);
        assert_eq!((profile.busy_share, profile.cpu_share), (Some(0.25), Some(0.5)));
        let gaps = profile.gaps.unwrap();
        assert_eq!((gaps.n, gaps.max_ns, gaps.ccdf.last()), (999, 12_000, Some(&(12_000, 0.0))));
    }

    #[test]
    fn more_than_one_late_burst_in_a_hundred_is_not_paced() {
        let stream = Stream::at_rate(1000, 1500, 1e9);
        for (late, paced) in [(10, true), (11, false)] {
            let profile =
                Profile::of(&transmission(
                    stream,
                    |burst| if burst % 90 == 5 && burst < 90 * late { 7_000 } else { 0 },
                ));
            assert_eq!((profile.late_share, profile.paced), (Some(f64::from(late) / 1000.0), paced));
        }
    }

    #[test]
    fn of_bursts_it_is_their_deadlines_that_count() {
        // 44 packets each 52.8 µs: what is 20 µs late is within half of that.
        let stream = Stream::at_rate(4400, 1500, 10e9).in_bursts_of(44);
        let profile = Profile::of(&transmission(stream, |_| 20_000));
        assert_eq!((profile.bursts, profile.bound_ns, profile.paced), (100, 26_400, true));
        assert!((profile.achieved_bps / 1e10 - 1.0).abs() < 1e-3, "{}", profile.achieved_bps);
        assert!(!Profile::of(&transmission(stream, |burst| i64::from(burst % 2) * 30_000)).paced);
    }

    #[test]
    fn a_rate_that_is_not_reached_is_not_paced_however_even() {
        // Each packet leaves 2 % of its gap later than the one before: within the bound, for some hundred packets.
        let profile = Profile::of(&transmission(Stream::at_rate(20, 1500, 1e9), |burst| i64::from(burst) * 240));
        assert_eq!(profile.late_share, Some(0.0));
        assert!(!profile.paced && profile.achieved_bps < 0.985e9, "{}", profile.achieved_bps);
    }

    #[test]
    fn a_stream_that_was_given_up_or_refused_is_not_paced() {
        let mut given_up = transmission(Stream::at_rate(1000, 1500, 1e9), |_| 0);
        given_up.sent.truncate(900);
        assert!(!Profile::of(&given_up).paced);
        let mut refused = transmission(Stream::at_rate(1000, 1500, 1e9), |_| 0);
        refused.sent.iter_mut().step_by(20).for_each(|sent| sent.left = false);
        let profile = Profile::of(&refused);
        assert_eq!((profile.refused, profile.paced), (50, false));
    }

    #[test]
    fn as_fast_as_possible_has_no_deadlines() {
        let mut flat_out =
            transmission(Stream { gap_ps: 0, ..Stream::at_rate(100, 1500, 1e9) }, |burst| i64::from(burst) * 600);
        let profile = Profile::of(&flat_out);
        assert_eq!((profile.asked_bps, profile.late_share, &profile.lateness), (None, None, &None));
        assert!((profile.achieved_bps / 20e9 - 1.0).abs() < 1e-9);
        flat_out.sent.clear();
        let empty = Profile::of(&flat_out);
        assert_eq!((empty.bursts, empty.gaps), (0, None));
    }

    #[test]
    fn the_ccdf_falls_to_zero_and_says_what_the_histogram_says() {
        let mut histogram = Histogram::new();
        (1..=100_000u64).for_each(|value| histogram.record(value));
        let times = Times::of(&histogram).unwrap();
        assert!(times.ccdf.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1));
        assert!(times.ccdf.len() < 150 && times.ccdf.last().unwrap().1 == 0.0);
        for &(value_ns, share) in &times.ccdf {
            assert!((share - (1.0 - value_ns as f64 / 1e5)).abs() < 2e-3, "{value_ns} {share}");
        }
        assert!(times.p99_ns.abs_diff(99_000) < 100);
    }
}
