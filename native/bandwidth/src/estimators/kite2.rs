//! Our Kite2: an estimator after what is published of the tool of that name.
//!
//! Neither source nor a full description of Kite2 is public.  What is (Kirova et al. 2018, 2019; Kachan, Siemens,
//! Shuvalov 2015): it probes at rates; it looks for the smallest sending interval after which the difference of the
//! received and the sent one is least; packets are stamped by the time stamp counter just before they are sent and by the
//! kernel when they come; sleeps are precise; the length of a train adapts to the path; many instant estimates are reduced
//! to one, which is rather too low than too high.  This estimator follows those facts; everything else is ours.

use failure::Failure;
use serde::{Deserialize, Serialize};

use crate::outcome::{Instant, Outcome, Verdict, Why};
use crate::probing::{Effort, Note, Paced, Probing, Watch, require};
use crate::statistics;
use crate::train::{Judged, Threshold, arrivals};
use crate::transport::{Limits, Observation, Spacing, Stream, Transport};

/// Trains that the capacity hint is the median of.
const HINT_TRAINS: usize = 5;

/// Packets in the first of these trains.
const FIRST_PACKETS: u32 = 64;

/// Arrivals in fewer batches than this say more of the receiver than of the path.
const LEAST_BATCHES: usize = 8;

/// Rest before each of these trains, in nanoseconds: there is no rate yet to reckon it from.
const HINT_REST_NS: f64 = 5e6;

/// Where the first search starts, as a share of the capacity hint.
const FIRST: f64 = 1.0 / 16.0;
/// How much each rate of the first search is above the one before.
const FIRST_STEP: f64 = 1.5;
/// Where later searches start, as a share of what the one before found.
const AGAIN: f64 = 0.95;
/// How much each of their rates is above the one before; the step grows as long as it leads nowhere.
const AGAIN_STEP: f64 = 1.1;

/// How much the step grows, as a power.
const IMPATIENCE: f64 = 1.5;

/// How near a rate that the host cannot pace is approached.
const NEAR_IMPOSSIBLE: f64 = 0.05;

/// Trains at one rate, at most: two alike decide.
const VOTES: usize = 3;

/// The share of the sender's time that handing packets over may take: the rest is there to be on time again.
const SEND_BUDGET: f64 = 0.8;

/// How to search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How often to search.
    pub effort: Effort,
    /// Length of the packets, in bytes.
    pub packet_bytes: u32,
    /// The lowest rate that is tried, in bit/s of IP packets.
    pub lowest_bps: f64,
    /// The highest rate that is tried.
    pub highest_bps: f64,
    /// Duration of a train while the rate is only roughly known, in nanoseconds.
    pub short_train_ns: u32,
    /// Duration of a train once it is better known.
    pub long_train_ns: u32,
    /// The fewest packets in a train, however slow.
    pub fewest_packets: u32,
    /// The most packets in a train, however fast.
    pub most_packets: u32,
    /// A train whose rate fell by more than this share is congested: ε.
    pub rate_tolerance: f64,
    /// A train whose delay grew by more than so many standard errors is congested.
    pub slope_errors: f64,
    /// Growth of the delay by time that two clocks may show between them: no less is called growth.
    pub slope_tolerance: f64,
    /// Loss of more than this share is congestion; less may be an accident.
    pub loss_tolerance: f64,
    /// The bracket of a search that has ended, as a share of the rate.
    pub resolution_share: f64,
    /// The share of the time in which trains are under way, so that probing is no load of its own.
    pub probing_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            effort: Effort::default(),
            packet_bytes: 1500,
            lowest_bps: 1e6,
            highest_bps: 100e9,
            short_train_ns: 2_000_000,
            long_train_ns: 5_000_000,
            fewest_packets: 50,
            most_packets: 2000,
            rate_tolerance: 0.01,
            slope_errors: 3.0,
            slope_tolerance: 5e-4,
            loss_tolerance: 0.01,
            resolution_share: 0.01,
            probing_share: 0.2,
        }
    }
}

/// Estimates the available bandwidth.
pub fn estimate<'a>(
    transport: &'a mut dyn Transport,
    settings: &Settings,
    watch: &'a mut Watch<'a>,
) -> Result<Outcome, Failure> {
    settings.check(&transport.limits())?;
    let mut probing = Probing::new(transport, watch, &settings.effort)?;
    let hint_bps = capacity_hint_bps(&mut probing, settings)?;
    let mut search = Search::new(settings, hint_bps);
    probing.search_on(|probing| search.run(probing))?;
    probing.finish(hint_bps)
}

impl Settings {
    fn check(&self, limits: &Limits) -> Result<(), Failure> {
        let share = |name: &str, value: f64, least: f64, most: f64| {
            require(name, (least..=most).contains(&value), format!("{least} … {most}"))
        };
        let (shortest, longest) = (limits.shortest_bytes, limits.longest_bytes);
        require("packet_bytes", (shortest..=longest).contains(&self.packet_bytes), format!("{shortest} … {longest}"))?;
        require("lowest_bps", self.lowest_bps >= 1e4 && self.lowest_bps < self.highest_bps, "1e4 … highest_bps")?;
        require("highest_bps", self.highest_bps <= 1e12, "lowest_bps … 1e12")?;
        let trains = 100_000..=1_000_000_000;
        require("short_train_ns", trains.contains(&self.short_train_ns), "1e5 … 1e9")?;
        require("long_train_ns", trains.contains(&self.long_train_ns), "1e5 … 1e9")?;
        require("fewest_packets", (20..=self.most_packets).contains(&self.fewest_packets), "20 … most_packets")?;
        let most = limits.most_packets;
        require("most_packets", self.most_packets <= most, format!("fewest_packets … {most}"))?;
        share("rate_tolerance", self.rate_tolerance, 0.0, 0.5)?;
        share("slope_errors", self.slope_errors, 0.0, 100.0)?;
        share("slope_tolerance", self.slope_tolerance, 0.0, 0.5)?;
        share("loss_tolerance", self.loss_tolerance, 0.0, 0.5)?;
        share("resolution_share", self.resolution_share, 1e-4, 0.5)?;
        share("probing_share", self.probing_share, 1e-3, 1.0)
    }

    /// The mean rest before a train of this duration.
    fn mean_rest_ns(&self, train_ns: u64) -> f64 {
        train_ns as f64 * (1.0 / self.probing_share - 1.0)
    }
}

/// A first idea of the path's capacity: the rate at which back-to-back packets come, in bit/s of IP packets; `None` if even
/// long trains came in few batches.
///
/// It lies between what is available and the capacity (Dovrolis, Ramanathan, Moore 2004: the asymptotic dispersion rate).
fn capacity_hint_bps(probing: &mut Probing<'_>, settings: &Settings) -> Result<Option<f64>, Failure> {
    let mut packets = FIRST_PACKETS.min(settings.most_packets);
    let mut found = Vec::with_capacity(HINT_TRAINS);
    while found.len() < HINT_TRAINS {
        let stream = Stream {
            packets,
            packet_bytes: settings.packet_bytes,
            gap_ps: 0,
            burst: probing.limits().most_burst.max(1),
            spacing: Spacing::Absolute,
        };
        let (observation, pacing) = probing.send(&stream, HINT_REST_NS)?;
        let dispersion_bps = arrivals::dispersion_bps(&observation, LEAST_BATCHES);
        let why = if dispersion_bps.is_some() { Why::Dispersion } else { Why::Nothing };
        probing.note(&observation, &pacing, Note::new(Verdict::Measured, why))?;
        match dispersion_bps {
            Some(bps) => found.push(bps),
            None if packets < settings.most_packets => packets = (2 * packets).min(settings.most_packets),
            None => break,
        }
    }
    Ok(statistics::median(&found))
}

/// Where the searches stand.
struct Search<'s> {
    settings: &'s Settings,
    hint_bps: Option<f64>,
    last_bps: Option<f64>,
    /// The lowest rate that the host could not pace.
    impossible_bps: f64,
}

/// What is known during one search.
#[derive(Clone, Copy, Default)]
struct Bracket {
    carried: Option<Judged>,
    congested: Option<Judged>,
}

impl<'s> Search<'s> {
    fn new(settings: &'s Settings, hint_bps: Option<f64>) -> Self {
        Self { settings, hint_bps, last_bps: None, impossible_bps: f64::INFINITY }
    }

    /// Ascends until a rate is congested, then halves the bracket until it is narrow enough.
    fn run(&mut self, probing: &mut Probing<'_>) -> Result<Instant, Failure> {
        let Settings { lowest_bps, highest_bps, short_train_ns, long_train_ns, .. } = *self.settings;
        let (start_bps, mut step, mut train_ns) = match self.last_bps {
            Some(last_bps) => (last_bps * AGAIN, AGAIN_STEP, long_train_ns),
            None => (self.hint_bps.unwrap_or(0.0) * FIRST, FIRST_STEP, short_train_ns),
        };
        let mut bracket = Bracket::default();
        let mut rate_bps = start_bps.clamp(lowest_bps, highest_bps);
        loop {
            match judge(probing, self.settings, rate_bps, train_ns, self.hint_bps)? {
                Judgement::Carried(judged) => bracket.carried = Some(judged),
                Judgement::Congested(judged) => bracket.congested = Some(judged),
                Judgement::Impossible => {
                    self.impossible_bps = self.impossible_bps.min(rate_bps);
                    // Between two rates that were judged there is no other to go on with: this one would come again.
                    if let (Some(carried), Some(_)) = (bracket.carried, bracket.congested) {
                        return Err(probing.cannot_pace(rate_bps, Some(carried.rate_bps)));
                    }
                }
            }
            if let Some(instant) = self.found(&bracket) {
                return Ok(instant);
            }
            rate_bps = match (bracket.carried, bracket.congested) {
                (Some(carried), Some(congested)) => {
                    train_ns = long_train_ns;
                    (carried.rate_bps * congested.rate_bps).sqrt()
                }
                (Some(carried), None) => self.above(probing, carried.rate_bps, step)?,
                (None, _) if rate_bps > lowest_bps => (rate_bps / step).max(lowest_bps),
                (None, Some(_)) => {
                    let lowest_mbps = lowest_bps / 1e6;
                    return Err(Failure::NoAnswer(format!("the path does not even carry {lowest_mbps} Mbit/s")));
                }
                (None, None) => return Err(probing.cannot_pace(lowest_bps, None)),
            };
            if self.last_bps.is_some() {
                step = step.powf(IMPATIENCE).min(FIRST_STEP);
            }
        }
    }

    /// The result, once the bracket is narrow enough, or the highest rate of all is carried.
    fn found(&mut self, bracket: &Bracket) -> Option<Instant> {
        let carried = bracket.carried?;
        let instant = match bracket.congested {
            None if carried.rate_bps >= self.settings.highest_bps => Instant::exactly(carried.rate_bps, true),
            None => return None,
            Some(congested) if congested.rate_bps > carried.rate_bps * (1.0 + self.settings.resolution_share) => {
                return None;
            }
            // Rather too low than too high: what was carried, not the middle.
            Some(congested) => {
                let capacity_bps = self.hint_bps.unwrap_or(congested.rate_bps);
                Instant::between(&carried, &congested, capacity_bps)
            }
        };
        self.last_bps = Some(carried.rate_bps);
        Some(instant)
    }

    /// The next rate above one that is carried, as long as none is known to be congested.
    fn above(&self, probing: &Probing<'_>, carried_bps: f64, step: f64) -> Result<f64, Failure> {
        let next_bps = (carried_bps * step).min(self.settings.highest_bps);
        if next_bps < self.impossible_bps {
            return Ok(next_bps);
        }
        if self.impossible_bps <= carried_bps * (1.0 + NEAR_IMPOSSIBLE) {
            return Err(probing.cannot_pace(self.impossible_bps, Some(carried_bps)));
        }
        Ok((carried_bps * self.impossible_bps).sqrt())
    }
}

/// How a rate was judged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Judgement {
    Carried(Judged),
    Congested(Judged),
    /// The host cannot pace it.
    Impossible,
}

/// Sends trains at a rate until two agree.
fn judge(
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
