//! The counter's period against one clock, from pairs of brackets.

use crate::calibration::Bracket;

/// The period of the counter on one clock's scale, and what it rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// Nanoseconds a tick.
    pub(crate) period_ns: f64,
    /// Bound of the relative error.
    pub(crate) error: f64,
    /// The far end of the base line.
    anchor: Bracket,
    /// The next far end, once the base line has grown to its limit.
    successor: Bracket,
    /// The latest bracket.
    pub(crate) last: Bracket,
}

/// What a new bracket said of an estimate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// It agreed.
    Agrees,
    /// The rate since the last bracket departs by this relative amount, more than the brackets' widths can explain.
    Departs(f64),
    /// Counter or clock stood still or went back.
    Broken,
}

/// Period and bound of its relative error between two brackets; `None` when either clock did not advance.
fn between(first: Bracket, second: Bracket) -> Option<(f64, f64)> {
    let ticks = second.ticks.wrapping_sub(first.ticks) as i64;
    let ns = second.clock_ns.checked_sub(first.clock_ns)?;
    (ticks > 0 && ns > 0).then(|| {
        let half_widths = first.width as f64 / 2.0 + second.width as f64 / 2.0;
        (ns as f64 / ticks as f64, half_widths / ticks as f64)
    })
}

impl Estimate {
    /// Only an anchor yet; the period is unknown (zero).
    pub(crate) const fn anchored(anchor: Bracket) -> Self {
        Self { period_ns: 0.0, error: 0.0, anchor, successor: anchor, last: anchor }
    }

    /// From the anchor to `now`; `None` when either clock did not advance.
    pub(crate) fn first(self, now: Bracket) -> Option<Self> {
        let (period_ns, error) = between(self.anchor, now)?;
        Some(Self { period_ns, error, successor: now, last: now, ..self })
    }

    /// Takes a new bracket in.
    ///
    /// The base line grows up to `base_line_ns`, then its far end moves up by halves, so that a clock that wanders slowly is
    /// followed.  A departure beyond `tolerance` starts a new base line at the last bracket.
    pub(crate) fn next(self, now: Bracket, base_line_ns: u64, tolerance: f64) -> (Self, Judgement) {
        let Some((local, local_error)) = between(self.last, now) else {
            return (self, Judgement::Broken);
        };
        let departure = local / self.period_ns - 1.0;
        if departure.abs() > local_error + self.error + tolerance {
            let fresh = Self { period_ns: local, error: local_error, anchor: self.last, successor: now, last: now };
            return (fresh, Judgement::Departs(departure));
        }
        let mut next = Self { last: now, ..self };
        if let Some((period_ns, error)) = between(self.anchor, now) {
            // A bracket that was torn wide by a preemption must not spoil what tighter ones have found.
            if error <= self.error {
                (next.period_ns, next.error) = (period_ns, error);
            }
        }
        if now.clock_ns - self.anchor.clock_ns >= base_line_ns {
            next.anchor = self.successor;
            next.successor = now;
            // The half base line that follows is known half as well.
            next.error = between(next.anchor, now).map_or(next.error, |(_, error)| error.max(next.error));
        } else if now.clock_ns - self.anchor.clock_ns < base_line_ns / 2 {
            next.successor = now;
        }
        (next, Judgement::Agrees)
    }

    /// The clock at `ticks`, a moment near the last bracket.
    pub(crate) fn clock_at(self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.last.ticks) as i64;
        self.last.clock_ns.saturating_add_signed((since as f64 * self.period_ns).round() as i64)
    }

    /// Half the last bracket's width: how far the clock can have been from its middle.
    pub(crate) fn uncertainty_ns(self) -> f64 {
        self.last.width as f64 / 2.0 * self.period_ns
    }

    /// Words of the published form.
    pub(crate) const WORDS: usize = 11;

    /// The published form.
    pub(crate) fn to_words(self) -> [u64; Self::WORDS] {
        let Self { anchor: a, successor: s, last: l, .. } = self;
        [
            self.period_ns.to_bits(),
            self.error.to_bits(),
            a.ticks,
            a.width,
            a.clock_ns,
            s.ticks,
            s.width,
            s.clock_ns,
            l.ticks,
            l.width,
            l.clock_ns,
        ]
    }

    /// From the published form.
    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [period, error, at, aw, ac, st, sw, sc, lt, lw, lc] = words;
        let bracket = |ticks, width, clock_ns| Bracket { ticks, width, clock_ns };
        Self {
            period_ns: f64::from_bits(period),
            error: f64::from_bits(error),
            anchor: bracket(at, aw, ac),
            successor: bracket(st, sw, sc),
            last: bracket(lt, lw, lc),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bracket(ticks: u64, clock_ns: u64) -> Bracket {
        Bracket { ticks, width: 60, clock_ns }
    }

    /// A 2 GHz counter seen every second with up to 10 ns of error to either side.
    fn seen(second: u64) -> Bracket {
        let jitter = [0, 7, -10, 3, 10, -4][second as usize % 6];
        bracket(second * 2_000_000_000, (second * 1_000_000_000).saturating_add_signed(jitter))
    }

    #[test]
    fn the_error_shrinks_as_the_base_line_grows_and_bounds_the_truth() {
        let mut estimate = Estimate::anchored(seen(0)).first(seen(1)).unwrap();
        for second in 2..100 {
            let (next, judgement) = estimate.next(seen(second), 1_000_000_000_000, 0.0);
            assert_eq!(judgement, Judgement::Agrees);
            assert!(next.error <= estimate.error);
            assert!((next.period_ns / 0.5 - 1.0).abs() <= next.error);
            estimate = next;
        }
        assert!(estimate.error < 0.4e-9, "{estimate:?}");
    }

    #[test]
    fn the_base_line_moves_up_so_that_a_slow_wander_is_followed() {
        let mut estimate = Estimate::anchored(seen(0)).first(seen(1)).unwrap();
        let mut clock = 1e9;
        for second in 2..400 {
            // One part in 10⁹ faster every second.
            clock += 1e9 * (1.0 + 1e-9 * f64::from(second));
            let now = bracket(second as u64 * 2_000_000_000, clock as u64);
            estimate = estimate.next(now, 16_000_000_000, 1e-6).0;
        }
        let latest = 0.5 * (1.0 + 1e-9 * 399.0);
        assert!((estimate.period_ns / latest - 1.0).abs() < 20e-9, "{estimate:?}");
    }

    #[test]
    fn a_departure_is_measured_and_starts_anew() {
        let estimate = Estimate::anchored(seen(0)).first(seen(1)).unwrap();
        let now = bracket(4_000_000_000, 2_000_050_000);
        let (next, judgement) = estimate.next(now, 1_000_000_000_000, 1e-6);
        let Judgement::Departs(by) = judgement else { panic!("{judgement:?}") };
        assert!((by * 1e6 - 50.0).abs() < 0.1, "{by}");
        assert!((next.period_ns * 2e9 - 1e9 - 50_000.0).abs() < 20.0);
    }

    #[test]
    fn standing_still_is_broken() {
        let estimate = Estimate::anchored(seen(0)).first(seen(1)).unwrap();
        assert_eq!(estimate.next(seen(1), 1, 0.0).1, Judgement::Broken);
        assert_eq!(estimate.next(seen(0), 1, 0.0).1, Judgement::Broken);
        assert_eq!(Estimate::anchored(seen(0)).first(seen(0)), None);
    }

    #[test]
    fn the_published_form_is_faithful() {
        let estimate = Estimate::anchored(seen(0)).first(seen(1)).unwrap().next(seen(2), 1, 0.0).0;
        assert_eq!(Estimate::from_words(estimate.to_words()), estimate);
    }
}
