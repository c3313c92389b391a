//! From a rate that the path carries to the highest that it does.

use failure::Failure;

use crate::estimators::kite2::Settings;
use crate::estimators::kite2::verdict::{Judgement, judge};
use crate::outcome::Instant;
use crate::probing::Probing;
use crate::train::threshold::Judged;

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

/// Where the searches stand.
pub(super) struct Search<'s> {
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
    pub(super) fn new(settings: &'s Settings, hint_bps: Option<f64>) -> Self {
        Self { settings, hint_bps, last_bps: None, impossible_bps: f64::INFINITY }
    }

    /// Ascends until a rate is congested, then halves the bracket until it is narrow enough.
    pub(super) fn run(&mut self, probing: &mut Probing<'_>) -> Result<Instant, Failure> {
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
