//! Sending streams for an estimator: rests between them, discarded ones, what they cost, and who is told of it.

use std::fmt::Display;
use std::ops::ControlFlow;

use failure::{Failure, PacingLimit};
use serde::{Deserialize, Serialize};

use crate::outcome::{self, Cost, Estimate, Instant, Outcome, Progress, Step, Verdict, Why};
use crate::random::Random;
use crate::train::pacing::Pacing;
use crate::transport::{Limits, Observation, Stream, Transport};

/// So many streams in a row that the host sent too slowly, or refused, show that it cannot send them.
const PATIENCE: u32 = 8;

/// So many in a row when stalls are among them: an interrupted stream says less of the rate than of the moment.
const PATIENCE_WITH_STALLS: u32 = 32;

/// How often an estimator searches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Effort {
    /// Complete searches at least; fewer than 10 make a poor interval.
    pub fewest_instants: u32,
    /// Complete searches at most.
    pub most_instants: u32,
    /// Searches end when chance moves their median by no more than this share of it.
    pub precision_share: f64,
    /// Confidence of the interval.
    pub confidence: f64,
    /// Streams after which the estimate is given up.
    pub most_streams: u32,
    /// Seed of the rests and of the bootstrap.
    pub seed: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            fewest_instants: 10,
            most_instants: 30,
            precision_share: 0.02,
            confidence: 0.95,
            most_streams: 10_000,
            seed: 1,
        }
    }
}

impl Effort {
    fn check(&self) -> Result<(), Failure> {
        let refuse = |reason: String| Err(Failure::Invalid(reason));
        if !(1..=self.most_instants).contains(&self.fewest_instants) || self.most_instants > 10_000 {
            return refuse("1 ≤ fewest_instants ≤ most_instants ≤ 10000 does not hold".to_owned());
        }
        if !(0.5..1.0).contains(&self.confidence) {
            return refuse(format!("a confidence of {} is not in 0.5 … 1, without the 1", self.confidence));
        }
        if !(0.0..1.0).contains(&self.precision_share) {
            return refuse(format!("a precision_share of {} is not in 0 … 1, without the 1", self.precision_share));
        }
        Ok(())
    }
}

/// Refuses a setting that is not within its range.
pub(crate) fn require(name: &str, within: bool, range: impl Display) -> Result<(), Failure> {
    if within { Ok(()) } else { Err(Failure::Invalid(format!("{name} is not in {range}"))) }
}

/// Rates that differ by no more than this share are the same, with gaps of whole picoseconds.
const SAME_RATE: f64 = 1e-5;

/// Is told of each stream; ends the estimate with [`Failure::Cancelled`] by breaking.
pub type Watch<'w> = dyn FnMut(&Progress) -> ControlFlow<()> + 'w;

/// What became of a stream that had to be sent as asked for.
pub(crate) enum Paced {
    /// It was.
    Sent(Observation, Pacing),
    /// The host cannot send such streams.
    Impossible,
}

/// What an estimator learned of a stream, for the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) verdict: Verdict,
    pub(crate) why: Why,
    pub(crate) send_gap_ns: Option<f64>,
    pub(crate) receive_gap_ns: Option<f64>,
    pub(crate) rate_ratio: Option<f64>,
    pub(crate) delay_slope: Option<f64>,
    pub(crate) delay_slope_error: Option<f64>,
}

impl Note {
    pub(crate) fn new(verdict: Verdict, why: Why) -> Self {
        Self {
            verdict,
            why,
            send_gap_ns: None,
            receive_gap_ns: None,
            rate_ratio: None,
            delay_slope: None,
            delay_slope_error: None,
        }
    }
}

/// An estimate under way.
pub(crate) struct Probing<'a> {
    pub(crate) random: Random,
    transport: &'a mut dyn Transport,
    watch: &'a mut Watch<'a>,
    began_ns: i64,
    effort: Effort,
    instants: Vec<Instant>,
    trace: Vec<Step>,
    bytes: u64,
    packets: u64,
    foreign_packets: u64,
    /// Time, bytes and streams when the search before had ended.
    accounted: (u64, u64, usize),
}

impl<'a> Probing<'a> {
    pub(crate) fn new(
        transport: &'a mut dyn Transport,
        watch: &'a mut Watch<'a>,
        effort: &Effort,
    ) -> Result<Self, Failure> {
        effort.check()?;
        let began_ns = transport.now_ns();
        Ok(Self {
            random: Random::new(effort.seed),
            transport,
            watch,
            began_ns,
            effort: *effort,
            instants: Vec::new(),
            trace: Vec::new(),
            bytes: 0,
            packets: 0,
            foreign_packets: 0,
            accounted: (0, 0, 0),
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        self.transport.limits()
    }

    /// Sends a stream after an exponential rest of this mean, however it is sent.
    pub(crate) fn send(&mut self, stream: &Stream, mean_rest_ns: f64) -> Result<(Observation, Pacing), Failure> {
        if self.trace.len() >= self.effort.most_streams as usize {
            return Err(Failure::NoAnswer(format!(
                "{} streams gave {} of {} instant estimates: the path answers differently each time; \
                 allow more streams, or fewer instants",
                self.effort.most_streams,
                self.instants.len(),
                self.effort.fewest_instants
            )));
        }
        let rest_ns = self.random.exponential(mean_rest_ns);
        self.transport.rest(rest_ns as u64)?;
        let observation = self.transport.send(stream)?;
        self.bytes += observation.bytes();
        self.packets += observation.sent.len() as u64 - u64::from(observation.refused());
        self.foreign_packets += observation.foreign_packets;
        let pacing = Pacing::of(&observation);
        Ok((observation, pacing))
    }

    /// The same, but repeated until the host sends the stream as asked for.
    pub(crate) fn send_paced(&mut self, stream: &Stream, mean_rest_ns: f64) -> Result<Paced, Failure> {
        if self.transport.limits().max_paced_bps.is_some_and(|max_paced_bps| stream.rate_bps() > max_paced_bps) {
            return Ok(Paced::Impossible);
        }
        let (mut stalled, mut unable) = (0, 0);
        while unable < PATIENCE && stalled + unable < PATIENCE_WITH_STALLS {
            let (observation, pacing) = self.send(stream, mean_rest_ns)?;
            let Some(fault) = pacing.fault else { return Ok(Paced::Sent(observation, pacing)) };
            self.note(&observation, &pacing, Note::new(Verdict::Discarded, fault))?;
            *(if fault == Why::SenderStalled { &mut stalled } else { &mut unable }) += 1;
        }
        Ok(Paced::Impossible)
    }

    /// Adds a stream to the trace, and tells whoever waits.
    pub(crate) fn note(&mut self, observation: &Observation, pacing: &Pacing, note: Note) -> Result<(), Failure> {
        let stream = observation.stream;
        let at_ns = self.elapsed_ns();
        self.trace.push(Step {
            at_ns,
            instant: self.instants.len() as u32,
            stream,
            sent_bps: pacing.sent_bps(stream.packet_bytes),
            send_gap_ns: note.send_gap_ns.or(pacing.gap_ns),
            receive_gap_ns: note.receive_gap_ns,
            rate_ratio: note.rate_ratio,
            delay_slope: note.delay_slope,
            delay_slope_error: note.delay_slope_error,
            lost: observation.lost(),
            reordered: observation.reordered(),
            refused: observation.refused(),
            stall_ns: pacing.stall_ns.max(0.0) as u64,
            verdict: note.verdict,
            why: note.why,
        });
        let progress = Progress {
            instants_done: self.instants.len() as u32,
            instants: self.effort.fewest_instants.max(self.instants.len() as u32),
            streams: self.trace.len() as u32,
            bytes: self.bytes,
            rate_bps: stream.rate_bps(),
            verdict: note.verdict,
        };
        match (self.watch)(&progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Failure::Cancelled),
        }
    }

    /// Searches again and again, as long as that is worth its packets.
    pub(crate) fn search_on(
        &mut self,
        mut search: impl FnMut(&mut Self) -> Result<Instant, Failure>,
    ) -> Result<(), Failure> {
        while self.goes_on() {
            let instant = search(self)?;
            self.found(instant);
        }
        Ok(())
    }

    /// Whether another search is worth its packets.
    fn goes_on(&mut self) -> bool {
        let found = self.instants.len() as u32;
        let Effort { fewest_instants, most_instants, precision_share, confidence, .. } = self.effort;
        found < fewest_instants
            || found < most_instants
                && outcome::spread(&self.instants, confidence, &mut self.random)
                    .is_none_or(|spread| spread > precision_share)
    }

    /// A search has ended.
    fn found(&mut self, instant: Instant) {
        let now = (self.elapsed_ns(), self.bytes, self.trace.len());
        let (began_ns, bytes, streams) = std::mem::replace(&mut self.accounted, now);
        let own = &self.trace[streams..];
        let cost = Cost {
            duration_ns: now.0.saturating_sub(began_ns),
            bytes: now.1 - bytes,
            streams: own.len() as u32,
            discarded: discarded(own).count() as u32,
        };
        self.instants.push(Instant { cost, ..instant });
    }

    /// The error for a rate that the host cannot pace, with what was learned of both its limits.
    ///
    /// What was measured beforehand counts as long as it does not contradict what has just been seen.
    pub(crate) fn cannot_pace(&self, asked_bps: f64, carried_bps: Option<f64>) -> Failure {
        let below = |bps: &f64| *bps < asked_bps * (1.0 - SAME_RATE);
        let paced = self.trace.iter().filter(|step| matches!(step.verdict, Verdict::Carried | Verdict::Congested));
        let seen_bps = paced.map(|step| step.stream.rate_bps()).filter(below).fold(0.0, f64::max);
        let known_bps = self.transport.limits().max_paced_bps;
        let max_paced_bps = known_bps.filter(below).unwrap_or(0.0).max(seen_bps);
        let undisturbed_bps = known_bps.filter(|bps| !below(bps));
        Failure::CannotPace(PacingLimit { asked_bps, max_paced_bps, undisturbed_bps, carried_bps })
    }

    /// Reduces the searches to the outcome.
    pub(crate) fn finish(mut self, capacity_hint_bps: Option<f64>) -> Result<Outcome, Failure> {
        let estimate = Estimate::of(&self.instants, self.effort.confidence, &mut self.random)
            .ok_or_else(|| Failure::NoAnswer("no search was asked for".to_owned()))?;
        let duration_ns = self.elapsed_ns();
        let stalled = discarded(&self.trace).filter(|step| step.why == Why::SenderStalled).count() as u32;
        Ok(Outcome {
            estimate,
            capacity_hint_bps,
            bytes: self.bytes,
            packets: self.packets,
            duration_ns,
            discarded: discarded(&self.trace).count() as u32,
            stalled,
            foreign_packets: self.foreign_packets,
            instants: self.instants,
            trace: self.trace,
        })
    }

    fn elapsed_ns(&mut self) -> u64 {
        self.transport.now_ns().saturating_sub(self.began_ns).max(0) as u64
    }
}

/// Streams that were not what was asked for.
fn discarded(steps: &[Step]) -> impl Iterator<Item = &Step> {
    steps.iter().filter(|step| step.verdict == Verdict::Discarded)
}
