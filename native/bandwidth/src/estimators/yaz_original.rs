//! Yaz as it was published, with its limits (Sommers, Barford, Willinger 2006).
//!
//! A train of 50 packets is sent at a gap; if the mean gap as received differs from the mean gap as sent, half of the
//! difference is added to the gap, until they agree.
//!
//! The limits are kept, because they are what others measured with.  The first gap is 40 µs, so that 300 Mbit/s is the
//! most that it can report with 1500 B.  Gaps are whole microseconds, cut off rather than rounded, so that it reports
//! too much by up to 8·L/T².  The gap only ever grows: a train that is disturbed once moves the report down for good.  Gaps
//! are reckoned from the packet before, so that lateness adds up.

use failure::Failure;
use serde::{Deserialize, Serialize};

use crate::outcome::{Instant, Outcome, Verdict, Why};
use crate::probing::{Effort, Note, Probing, Watch};
use crate::statistics;
use crate::transport::{Observation, Spacing, Stream, Transport};

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How often to search; each search is what the original does once.
    pub effort: Effort,
    /// The first and shortest gap, in microseconds; the published 1 Gbit/s figures come from a copy in which it is shorter.
    pub first_gap_us: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { effort: Effort { most_instants: 10, ..Effort::default() }, first_gap_us: 40 }
    }
}

/// Packets in a train.
const PACKETS: u32 = 50;
/// Length of the first packets, in bytes.
pub const LONGEST_BYTES: u32 = 1500;
/// Length below which packets are not halved, in bytes.
const SHORTEST_BYTES: u32 = 200;
/// The gap from which on packet and gap are halved, in microseconds.
const LONGEST_GAP_US: u64 = 1000;
/// Differences of the rate that do not matter, in bit/s.
const RESOLUTION_BPS: f64 = 500e3;
/// More lost packets than this are congestion.
const TOLERATED_LOSS: u32 = 1;
/// A gap so many times as long as the usual one is no gap of the path: somebody stood still.  That Yaz leaves such gaps out
/// is published, its bound is not; this one is ours.
const OVERLONG: f64 = 10.0;
/// Mean rest between trains, in nanoseconds.
const MEAN_REST_NS: f64 = 50e6;

/// Estimates the available bandwidth.
pub fn estimate<'a>(
    transport: &'a mut dyn Transport,
    settings: &Settings,
    watch: &'a mut Watch<'a>,
) -> Result<Outcome, Failure> {
    if !(1..LONGEST_GAP_US as u32).contains(&settings.first_gap_us) {
        return Err(Failure::Invalid(format!("a first gap of {} µs is not in 1 … 999", settings.first_gap_us)));
    }
    let mut probing = Probing::new(transport, watch, &settings.effort)?;
    probing.search_on(|probing| search(probing, u64::from(settings.first_gap_us)))?;
    probing.finish(None)
}

/// One descent from the first gap.
fn search(probing: &mut Probing<'_>, first_gap_us: u64) -> Result<Instant, Failure> {
    let (mut gap_us, mut packet_bytes) = (first_gap_us, LONGEST_BYTES);
    loop {
        let stream = Stream {
            packets: PACKETS,
            packet_bytes,
            gap_ps: gap_us * 1_000_000,
            burst: 1,
            spacing: Spacing::AfterPrevious,
        };
        let (observation, pacing) = probing.send(&stream, MEAN_REST_NS)?;
        // A gap of nothing would be an infinite rate.
        let sent_us = pacing.gap_ns.map_or(gap_us, whole_us).max(1);
        let received_us = mean_received_ns(&observation).map(whole_us);
        let difference_us = received_us.map(|received_us| received_us.abs_diff(sent_us));
        let lost = observation.lost() > TOLERATED_LOSS;
        let differ =
            difference_us.is_none_or(|difference_us| difference_us as f64 > tolerated_us(sent_us, packet_bytes));
        let (verdict, why) = match (received_us, lost, differ) {
            (None, ..) => (Verdict::Congested, Why::Nothing),
            (_, true, _) => (Verdict::Congested, Why::Loss),
            (_, _, true) => (Verdict::Congested, Why::GapsDiffer),
            _ => (Verdict::Carried, Why::GapsAlike),
        };
        let ns = |us: u64| us as f64 * 1e3;
        let note =
            Note { send_gap_ns: Some(ns(sent_us)), receive_gap_ns: received_us.map(ns), ..Note::new(verdict, why) };
        probing.note(&observation, &pacing, note)?;
        let rate_bps = f64::from(packet_bytes) * 8e6 / sent_us as f64;
        if verdict == Verdict::Carried {
            let at_ceiling = gap_us == first_gap_us && packet_bytes == LONGEST_BYTES;
            return Ok(Instant::exactly(rate_bps, at_ceiling));
        }
        // Where nothing came there is no difference to halve; half of the gap stands in.  A loss alone moves by the least.
        gap_us = (sent_us + difference_us.unwrap_or(sent_us) / 2).max(gap_us + 1);
        if gap_us >= LONGEST_GAP_US && packet_bytes / 2 >= SHORTEST_BYTES {
            (gap_us, packet_bytes) = (gap_us / 2, packet_bytes / 2);
        }
        if f64::from(packet_bytes) * 8e6 / gap_us as f64 <= RESOLUTION_BPS {
            return Err(Failure::NoAnswer("the path carries less than the resolution of 500 kbit/s".to_owned()));
        }
    }
}

/// How much gaps may differ: θ = max(1 µs, 8·L/(R − ρ) − `g_s`), R = 8·L/`g_s`.
fn tolerated_us(sent_us: u64, packet_bytes: u32) -> f64 {
    let bits = f64::from(packet_bytes) * 8.0;
    let rate_bps = bits * 1e6 / sent_us as f64;
    (bits * 1e6 / (rate_bps - RESOLUTION_BPS) - sent_us as f64).max(1.0)
}

fn whole_us(ns: f64) -> u64 {
    (ns.max(0.0) / 1e3) as u64
}

/// The mean gap as received; a gap in which packets are missing counts as one.  `None` if fewer than two packets came.
fn mean_received_ns(observation: &Observation) -> Option<f64> {
    let mut in_order = observation.received.clone();
    in_order.sort_by_key(|received| received.sequence);
    let gaps_ns: Vec<f64> = in_order.windows(2).map(|pair| (pair[1].at_ns - pair[0].at_ns) as f64).collect();
    // In batches, most gaps are next to nothing, and the long ones are the batches.
    let usual_ns = statistics::median(&gaps_ns)?.max(observation.stream.gap_ps as f64 / 1e3);
    let kept: Vec<f64> = gaps_ns.into_iter().filter(|&gap_ns| gap_ns <= OVERLONG * usual_ns).collect();
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}
