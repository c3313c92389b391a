//! Whether a path carries a rate.

use failure::Failure;

use crate::estimators::kite2::Settings;
use crate::outcome::{Verdict, Why};
use crate::probing::{Note, Paced, Probing};
use crate::train::arrivals;
use crate::train::threshold::{Judged, Threshold};
use crate::transport::{Limits, Observation, Stream};

/// Trains at one rate, at most: two alike decide.
const VOTES: usize = 3;

/// The share of the sender's time that handing packets over may take: the rest is there to be on time again.
const SEND_BUDGET: f64 = 0.8;

/// How a rate was judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Judgement {
    Carried(Judged),
    Congested(Judged),
    /// The host cannot pace it.
    Impossible,
}

/// Sends trains at a rate until two agree.
pub(super) fn judge(
    probing: &mut Probing<'_>,
    settings: &Settings,
    rate_bps: f64,
    train_ns: u32,
    hint_bps: Option<f64>,
) -> Result<Judgement, Failure> {
    let packets = train_packets(settings, rate_bps, train_ns);
    let even = Stream::at_rate(packets, settings.packet_bytes, rate_bps);
    let Some(burst) = burst(&even, &probing.limits()) else { return Ok(Judgement::Impossible) };
    let stream = even.in_bursts_of(burst);
    // Nothing comes out of the path closer together than at its capacity.
    let least_gap_ns = f64::from(settings.packet_bytes) * 8e9 / hint_bps.unwrap_or(rate_bps).max(rate_bps);
    let (mut carried, mut congested) = (Vec::new(), Vec::new());
    while 2 * carried.len().max(congested.len()) <= VOTES {
        let rest_ns = settings.mean_rest_ns(stream.duration_ns());
        let Paced::Sent(observation, pacing) = probing.send_paced(&stream, rest_ns)? else {
            return Ok(Judgement::Impossible);
        };
        let (note, doubt) = vote(settings, &observation, least_gap_ns);
        probing.note(&observation, &pacing, note)?;
        if note.verdict == Verdict::Carried { carried.push(doubt) } else { congested.push(doubt) }
    }
    let judged = |doubts: &[f64]| Judged { rate_bps, doubt: doubts.iter().copied().fold(0.0, f64::max), packets };
    Ok(if carried.len() > congested.len() {
        Judgement::Carried(judged(&carried))
    } else {
        Judgement::Congested(judged(&congested))
    })
}

/// N = clamp(D·R/8L, fewest, most).
fn train_packets(settings: &Settings, rate_bps: f64, train_ns: u32) -> u32 {
    let packets = f64::from(train_ns) * rate_bps / (8e9 * f64::from(settings.packet_bytes));
    (packets.round() as u32).clamp(settings.fewest_packets, settings.most_packets)
}

/// The smallest burst that leaves the sender time to be punctual; `None` if no burst does.
fn burst(even: &Stream, limits: &Limits) -> Option<u32> {
    let gap_ns = even.gap_ps as f64 / 1e3;
    let spare_ns = gap_ns * SEND_BUDGET - limits.packet_cost_ns as f64;
    if spare_ns <= 0.0 {
        return None;
    }
    let burst = (limits.burst_cost_ns as f64 / spare_ns).ceil().max(1.0) as u32;
    // A train of few bursts has no slope.
    let most = limits.most_burst.min(even.packets / 10);
    (burst <= most).then_some(burst)
}

/// Congested if rate ratio < 1 − ε, or slope > 3 standard errors, or loss; with how much growth of the delay may be
/// missed or made up by it.
///
/// Neither ε nor the slope is held below what the path's own traffic makes of a train at capacity.
fn vote(settings: &Settings, observation: &Observation, least_gap_ns: f64) -> (Note, f64) {
    let lost_share = f64::from(observation.lost()) / observation.sent.len().max(1) as f64;
    let Some(passage) = arrivals::passage(observation, least_gap_ns) else {
        return (Note::new(Verdict::Congested, Why::Nothing), 0.0);
    };
    let (ratio, slope) = (passage.rate_ratio, passage.delay);
    let for_rate = Threshold::of(&passage, settings.rate_tolerance);
    let significant = settings.slope_errors * slope.standard_error;
    let for_slope = Threshold::of(&passage, significant.max(settings.slope_tolerance));
    let why = if lost_share > settings.loss_tolerance {
        Why::Loss
    } else if ratio < 1.0 - for_rate.growth {
        Why::RateFell
    } else if slope.value > for_slope.growth {
        Why::DelayGrew
    } else {
        Why::Steady
    };
    let (verdict, doubt) = match why {
        // The stricter of the two rules decides what is missed.
        Why::Steady => (Verdict::Carried, for_rate.leniency().min(for_slope.leniency())),
        _ => (Verdict::Congested, for_slope.strictness()),
    };
    let note = Note {
        rate_ratio: Some(ratio),
        delay_slope: Some(slope.value),
        delay_slope_error: Some(slope.standard_error),
        ..Note::new(verdict, why)
    };
    (note, doubt)
}
