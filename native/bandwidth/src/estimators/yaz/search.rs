//! From one gap to the next, until the path just carries it.

use crate::estimators::yaz::Settings;
use crate::failure::Failure;
use crate::outcome::{Instant, Verdict, Why};
use crate::probing::{Note, Paced, Probing};
use crate::train::arrivals;
use crate::train::threshold::{GAIN_AT_CAPACITY, Judged, Threshold};
use crate::transport::{Observation, Spacing, Stream};

/// From this gap on packet and gap are halved.
const LONGEST_GAP_PS: u64 = 1_000_000_000;

/// More lost packets than this are congestion.
const TOLERATED_LOSS: u32 = 1;

/// Trains at one gap, at most: two alike decide.
const VOTES: usize = 3;

/// How much the gap shrinks at most from one step to the next while nothing is congested.
const ASCENT: f64 = 1.25;

/// The same at the beginning of a search that goes on from another one's gap.
const ASCENT_AGAIN: f64 = 1.05;

/// How much faster an ascent becomes that leads nowhere, as a power.
const IMPATIENCE: f64 = 1.5;

/// How a gap was judged.
enum Judgement {
    Carried(Judged),
    /// With the mean growth of the gap, in nanoseconds.
    Congested(Judged, f64),
    Impossible,
}

/// What one train says.
struct Vote {
    note: Note,
    /// How much longer the mean gap was as received, in nanoseconds.
    growth_ns: f64,
    /// Growth of the delay by time that the verdict may have missed or made up.
    doubt: f64,
}

/// The gaps that are known during one search.
#[derive(Default)]
struct Bracket {
    carried: Option<(u64, Judged)>,
    congested: Option<(u64, Judged)>,
}

/// Where the search stands; the next one goes on from here.
pub(super) struct Search<'s> {
    settings: &'s Settings,
    packet_bytes: u32,
    gap_ps: u64,
    floor_ps: u64,
    /// The longest gap that the host could not keep.
    impossible_ps: Option<u64>,
    /// The shortest mean gap as received: no shorter one comes out of the path.
    least_gap_ns: Option<f64>,
    ascent: f64,
}

impl<'s> Search<'s> {
    pub(super) fn new(settings: &'s Settings) -> Self {
        let floor_ps = u64::from(settings.floor_gap_ns) * 1000;
        Self {
            settings,
            packet_bytes: settings.packet_bytes,
            gap_ps: floor_ps,
            floor_ps,
            impossible_ps: None,
            least_gap_ns: None,
            ascent: ASCENT,
        }
    }

    /// The highest rate at which a train came, in bit/s of IP packets; between what is available and the capacity.
    pub(super) fn highest_received_bps(&self) -> Option<f64> {
        self.least_gap_ns.map(|gap_ns| f64::from(self.packet_bytes) * 8e9 / gap_ns)
    }

    /// Moves the gap until the longest congested and the shortest carried one agree.
    pub(super) fn run(&mut self, probing: &mut Probing<'_>) -> Result<Instant, Failure> {
        let mut bracket = Bracket::default();
        loop {
            match self.judge(probing)? {
                Judgement::Carried(judged) if self.gap_ps <= self.floor_ps => return self.at_floor(probing, &judged),
                Judgement::Carried(judged) => {
                    bracket.carried = Some((self.gap_ps, judged));
                    self.gap_ps = match bracket.congested {
                        Some((congested_ps, _)) => self.gap_ps.midpoint(congested_ps),
                        None => ((self.gap_ps as f64 / self.ascent) as u64).max(self.floor_ps),
                    };
                    self.ascent = self.ascent.powf(IMPATIENCE).min(ASCENT);
                }
                Judgement::Congested(judged, growth_ns) => {
                    bracket.congested = Some((self.gap_ps, judged));
                    // T ← g_s + (g_r − g_s)/2, but not past a gap that is known to be carried.
                    let next_ps = self.gap_ps + ((growth_ns * 500.0) as u64).max(self.least_step_ps());
                    self.gap_ps = match bracket.carried {
                        Some((carried_ps, _)) if next_ps >= carried_ps => self.gap_ps.midpoint(carried_ps),
                        _ => next_ps,
                    };
                }
                Judgement::Impossible => {
                    self.impossible_ps = Some(self.gap_ps);
                    self.floor_ps = (self.gap_ps as f64 * ASCENT) as u64;
                    self.gap_ps = self.floor_ps;
                }
            }
            if let Some(instant) = self.found(&bracket) {
                return Ok(instant);
            }
            self.stay_in_range(&mut bracket)?;
        }
    }

    /// The shortest gap is carried: more cannot be found.
    fn at_floor(&self, probing: &Probing<'_>, carried: &Judged) -> Result<Instant, Failure> {
        match self.impossible_ps {
            Some(gap_ps) => Err(probing.cannot_pace(self.rate_bps(gap_ps), Some(carried.rate_bps))),
            None => Ok(Instant::exactly(carried.rate_bps, true)),
        }
    }

    /// The result, once the bracket is narrow enough.  The next search starts where this one was congested.
    fn found(&mut self, bracket: &Bracket) -> Option<Instant> {
        let ((_, carried), (congested_ps, congested)) = (bracket.carried?, bracket.congested?);
        if congested.rate_bps - carried.rate_bps > self.settings.resolution_at(carried.rate_bps) {
            return None;
        }
        self.gap_ps = congested_ps.max(self.floor_ps);
        self.ascent = ASCENT_AGAIN;
        let capacity_bps = self.highest_received_bps().unwrap_or(congested.rate_bps);
        let available_bps = carried.rate_bps.midpoint(congested.rate_bps);
        Some(Instant::between(&carried, &congested, capacity_bps, available_bps))
    }

    /// Shortens the packets where gaps grow too long.
    fn stay_in_range(&mut self, bracket: &mut Bracket) -> Result<(), Failure> {
        if self.gap_ps >= LONGEST_GAP_PS && self.packet_bytes / 2 >= self.settings.shortest_bytes {
            // Gaps of another length are not comparable.
            *bracket = Bracket::default();
            self.packet_bytes /= 2;
            self.gap_ps /= 2;
            self.floor_ps /= 2;
            self.least_gap_ns = None;
        }
        if self.rate_bps(self.gap_ps) <= self.settings.resolution_bps {
            let resolution_kbps = self.settings.resolution_bps / 1e3;
            return Err(Failure::NoAnswer(format!(
                "the path carries less than the resolution, {resolution_kbps} kbit/s"
            )));
        }
        Ok(())
    }

    fn rate_bps(&self, gap_ps: u64) -> f64 {
        f64::from(self.packet_bytes) * 8e12 / gap_ps as f64
    }

    /// Half of what the resolution is worth of the gap.
    fn least_step_ps(&self) -> u64 {
        let rate_bps = self.rate_bps(self.gap_ps);
        (self.gap_ps as f64 * self.settings.resolution_at(rate_bps) / rate_bps) as u64 / 2 + 1
    }

    /// Sends trains at the present gap until two agree.
    fn judge(&mut self, probing: &mut Probing<'_>) -> Result<Judgement, Failure> {
        let Settings { packets, mean_rest_ns, .. } = *self.settings;
        let (packet_bytes, gap_ps) = (self.packet_bytes, self.gap_ps);
        let stream = Stream { packets, packet_bytes, gap_ps, burst: 1, spacing: Spacing::Absolute };
        let (mut carried, mut congested) = (Vec::new(), Vec::new());
        while 2 * carried.len().max(congested.len()) <= VOTES {
            let Paced::Sent(observation, pacing) = probing.send_paced(&stream, f64::from(mean_rest_ns))? else {
                return Ok(Judgement::Impossible);
            };
            let vote = self.vote(&observation, pacing.gap_ns.unwrap_or(gap_ps as f64 / 1e3));
            probing.note(&observation, &pacing, vote.note)?;
            if let Some(received_ns) = vote.note.receive_gap_ns {
                self.least_gap_ns = Some(self.least_gap_ns.map_or(received_ns, |least_ns| least_ns.min(received_ns)));
            }
            if vote.note.verdict == Verdict::Carried { carried.push(vote) } else { congested.push(vote) }
        }
        let judged = |votes: &[Vote]| {
            let doubt = votes.iter().map(|vote| vote.doubt).fold(0.0, f64::max);
            Judged { rate_bps: stream.rate_bps(), doubt, packets }
        };
        if carried.len() > congested.len() {
            return Ok(Judgement::Carried(judged(&carried)));
        }
        let mean_growth_ns = congested.iter().map(|vote| vote.growth_ns.max(0.0)).sum::<f64>() / congested.len() as f64;
        Ok(Judgement::Congested(judged(&congested), mean_growth_ns))
    }

    /// Congested if the gap grew by more than the path's own traffic and noise make of it, or more than one packet is lost.
    fn vote(&self, observation: &Observation, sent_ns: f64) -> Vote {
        let Settings { growth_errors, growth_tolerance, .. } = *self.settings;
        let Some(passage) = arrivals::passage(observation, self.least_gap_ns.unwrap_or(sent_ns)) else {
            // There is no growth to halve; the gap itself stands in.
            return Vote { note: Note::new(Verdict::Congested, Why::Nothing), growth_ns: sent_ns, doubt: 0.0 };
        };
        let noise = growth_errors * passage.delay.standard_error;
        let threshold = Threshold::of(&passage, GAIN_AT_CAPACITY, noise.max(growth_tolerance));
        let received_ns = sent_ns / passage.rate_ratio;
        let growth_ns = received_ns - sent_ns;
        let (verdict, why, doubt) = if observation.lost() > TOLERATED_LOSS {
            (Verdict::Congested, Why::Loss, threshold.strictness())
        } else if growth_ns > threshold.growth * sent_ns {
            (Verdict::Congested, Why::GapsDiffer, threshold.strictness())
        } else {
            (Verdict::Carried, Why::GapsAlike, threshold.leniency())
        };
        let note = Note { receive_gap_ns: Some(received_ns), ..Note::new(verdict, why) };
        Vote { note, growth_ns, doubt }
    }
}
