//! What an estimate found, and every stream that it rests on.

use serde::Serialize;

use crate::random::Random;
use crate::statistics::{self, Interval};
use crate::train::Judged;
use crate::transport::Stream;

/// Why a stream was judged as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It only measured how far apart the path pulls packets.
    Dispersion,
    /// Packets came as far apart as they were sent.
    GapsAlike,
    /// Packets came farther apart than they were sent, or closer.
    GapsDiffer,
    /// Rate and delay stayed as they were.
    Steady,
    /// The packets came at a lower rate than they were sent.
    RateFell,
    /// Each packet was under way longer than the one before.
    DelayGrew,
    /// Packets were lost.
    Loss,
    /// Too few packets came to say anything: so many were lost.
    Nothing,
    /// The sender stood still meanwhile.
    SenderStalled,
    /// The sender did not keep the rate.
    SenderSlow,
    /// The sending host refused packets.
    SenderRefused,
}

/// How a stream was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The path carried its rate.
    Carried,
    /// The path did not.
    Congested,
    /// The stream was not what was asked for; it says nothing of the path.
    Discarded,
    /// It was not sent to be judged.
    Measured,
}

/// One stream, in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// When it had come back, in nanoseconds since the estimate began.
    pub at_ns: u64,
    /// Which instant estimate it belongs to, from 0; what comes before the first belongs to it.
    pub instant: u32,
    /// What was asked for.
    pub stream: Stream,
    /// The rate at which it was really sent, in bit/s of IP packets; `None` if it had no duration.
    pub sent_bps: Option<f64>,
    /// Mean gap as sent, in nanoseconds, as the estimator sees it.
    pub send_gap_ns: Option<f64>,
    /// Mean gap as received, in nanoseconds, as the estimator sees it.
    pub receive_gap_ns: Option<f64>,
    /// Received rate by sent rate.
    pub rate_ratio: Option<f64>,
    /// Growth of the one-way delay by time, without unit.
    pub delay_slope: Option<f64>,
    /// Its standard error.
    pub delay_slope_error: Option<f64>,
    /// Packets that left and did not come.
    pub lost: u32,
    /// Packets that came after a later one.
    pub reordered: u32,
    /// Packets that the sending host refused.
    pub refused: u32,
    /// How much later than usual the latest packet was sent, in nanoseconds.
    pub stall_ns: u64,
    /// The judgement.
    pub verdict: Verdict,
    /// Its reason.
    pub why: Why,
}

/// One complete search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Instant {
    /// What it reports, in bit/s of IP packets.
    pub available_bps: f64,
    /// The highest rate that the path carried.
    pub carried_bps: f64,
    /// The lowest rate that the path did not carry; the same where an estimator does not look for it.
    pub congested_bps: f64,
    /// The least that may be available: below what was carried, by as much as the verdict can miss.
    pub low_bps: f64,
    /// The most that may be available: above what was not carried, by as much as the verdict can be wrong.
    pub high_bps: f64,
    /// It ended at the highest rate that the estimator tries: the truth may be higher.
    pub at_ceiling: bool,
    /// What it cost; nothing while it is under way.
    #[serde(flatten)]
    pub cost: Cost,
}

/// What a search cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// From the end of the one before, in nanoseconds.
    pub duration_ns: u64,
    /// What was sent, in bytes of IP packets.
    pub bytes: u64,
    /// Streams sent.
    pub streams: u32,
    /// Streams among them that were not what was asked for, and were repeated.
    pub discarded: u32,
}

/// How far the median of instant estimates may be off by chance alone, as a share of it: half of its interval.
///
/// `None` without any.
pub(crate) fn spread(instants: &[Instant], confidence: f64, random: &mut Random) -> Option<f64> {
    let values: Vec<f64> = instants.iter().map(|instant| instant.available_bps).collect();
    let points: Vec<_> = values.iter().map(|&value| (value, value)).collect();
    let Interval { low, high } = statistics::interval_of_median(&points, confidence, random)?;
    Some((high - low) / 2.0 / statistics::median(&values)?)
}

/// The available bandwidth with its uncertainty, in bit/s of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median of the instant estimates.
    pub available_bps: f64,
    /// Lower end of the interval.
    pub low_bps: f64,
    /// Upper end of the interval.
    pub high_bps: f64,
    /// How often such an interval is meant to hold the truth, 0 … 1.
    pub confidence: f64,
    /// Half of the searches or more ended at the highest rate that the estimator tries: at least this is available.
    pub lower_bound: bool,
}

impl Instant {
    /// A search that ends with one rate and says nothing of how far it can be trusted.
    pub(crate) fn exactly(rate_bps: f64, at_ceiling: bool) -> Self {
        Self {
            available_bps: rate_bps,
            carried_bps: rate_bps,
            congested_bps: rate_bps,
            low_bps: rate_bps,
            high_bps: rate_bps,
            at_ceiling,
            cost: Cost::default(),
        }
    }

    /// A search that ends between a rate that the path carried, which it reports, and one that the path did not carry.
    pub(crate) fn between(carried: &Judged, congested: &Judged, capacity_bps: f64) -> Self {
        Self {
            available_bps: carried.rate_bps,
            carried_bps: carried.rate_bps,
            congested_bps: congested.rate_bps,
            low_bps: (carried.rate_bps - carried.doubt_bps(capacity_bps)).max(0.0),
            high_bps: congested.rate_bps + congested.doubt_bps(capacity_bps),
            at_ceiling: false,
            cost: Cost::default(),
        }
    }
}

impl Estimate {
    /// Reduces instant estimates to one; `None` without any.
    #[must_use]
    pub fn of(instants: &[Instant], confidence: f64, random: &mut Random) -> Option<Self> {
        let values: Vec<f64> = instants.iter().map(|instant| instant.available_bps).collect();
        let bounds: Vec<_> = instants.iter().map(|instant| (instant.low_bps, instant.high_bps)).collect();
        let Interval { low, high } = statistics::interval_of_median(&bounds, confidence, random)?;
        let ceilings = instants.iter().filter(|instant| instant.at_ceiling).count();
        Some(Self {
            available_bps: statistics::median(&values)?,
            low_bps: low,
            high_bps: high,
            confidence,
            lower_bound: 2 * ceilings >= instants.len(),
        })
    }
}

/// Everything that an estimator found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The estimate.
    pub estimate: Estimate,
    /// The searches that it is the median of.
    pub instants: Vec<Instant>,
    /// The rate at which back-to-back packets came, in bit/s of IP packets: between what is available and the capacity.
    pub capacity_hint_bps: Option<f64>,
    /// What was sent, in bytes of IP packets.
    pub bytes: u64,
    /// What was sent, in packets.
    pub packets: u64,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// Streams that were not what was asked for, and were repeated.
    pub discarded: u32,
    /// Of them, those during which the sender stood still.
    pub stalled: u32,
    /// Foreign packets that came meanwhile and were ignored.
    pub foreign_packets: u64,
    /// Every stream; empty where nobody wants to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<Step>,
}

/// How far an estimate is, for whoever waits for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Searches finished.
    pub instants_done: u32,
    /// Searches to finish.
    pub instants: u32,
    /// Streams sent.
    pub streams: u32,
    /// Bytes of IP packets sent.
    pub bytes: u64,
    /// The rate of the last stream, in bit/s of IP packets.
    pub rate_bps: f64,
    /// How it was judged.
    pub verdict: Verdict,
}
