//! The clock's state as words for publication; the first eight are all that a reading needs.

use crate::discipline::{Line, Phase, State};
use crate::estimate::Estimate;
use crate::scale::Scale;
use crate::status::Fallback;

const HOT: usize = 8;
const COLD: usize = 10;
/// Words of a state.
pub(crate) const WORDS: usize = HOT + COLD + 2 * Estimate::WORDS;

/// Positions of the words that readings need.
pub(crate) mod word {
    pub(crate) const BASE_TICKS: usize = 0;
    pub(crate) const SPAN: usize = 1;
    pub(crate) const MONOTONIC_NS: usize = 2;
    pub(crate) const MONOTONIC_SCALE: usize = 3;
    pub(crate) const RAW_NS: usize = 4;
    pub(crate) const RAW_SCALE: usize = 5;
    pub(crate) const REALTIME_OFFSET: usize = 6;
    pub(crate) const DIFFERENCE_SCALE: usize = 7;
    /// Not one of them: it tells who answers when the lines do not.
    pub(crate) const PHASE: usize = super::HOT;
}

impl Phase {
    const REFUSED: u64 = 16;

    const fn to_word(self) -> u64 {
        match self {
            Self::Unstarted => 0,
            Self::WarmingUp => 1,
            Self::Running => 2,
            Self::Refused(reason) => Self::REFUSED + reason as u64,
        }
    }

    /// Whether a published phase is [`Phase::Refused`].
    pub(crate) const fn refused_in(word: u64) -> bool {
        word > Self::REFUSED
    }

    fn from_word(word: u64) -> Self {
        match word {
            1 => Self::WarmingUp,
            2 => Self::Running,
            word => {
                Fallback::from_number(word.saturating_sub(Self::REFUSED) as u32).map_or(Self::Unstarted, Self::Refused)
            }
        }
    }
}

impl State {
    /// The published form.
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let hot_and_cold: [u64; HOT + COLD] = [
            self.base_ticks,
            self.span,
            self.monotonic.ns,
            self.monotonic.scale.multiplier(),
            self.raw.ns,
            self.raw.scale.multiplier(),
            self.realtime_offset_ns as u64,
            self.difference.multiplier(),
            self.phase.to_word(),
            u64::from(self.closed),
            self.interval_ns,
            self.offset_ns as u64,
            self.slew.to_bits(),
            self.wander.to_bits(),
            self.measurements,
            self.alarms,
            self.quiet,
            self.departure.to_bits(),
        ];
        let mut words = [0; WORDS];
        let (own, estimates) = words.split_at_mut(HOT + COLD);
        own.copy_from_slice(&hot_and_cold);
        let (monotonic, raw) = estimates.split_at_mut(Estimate::WORDS);
        monotonic.copy_from_slice(&self.monotonic_estimate.to_words());
        raw.copy_from_slice(&self.raw_estimate.to_words());
        words
    }

    /// From the published form.
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Self {
        let estimate = |index: usize| {
            let start = HOT + COLD + index * Estimate::WORDS;
            Estimate::from_words(core::array::from_fn(|offset| words[start + offset]))
        };
        let line = |ns, scale| Line { ns, scale: Scale::from_multiplier(scale) };
        Self {
            base_ticks: words[word::BASE_TICKS],
            span: words[word::SPAN],
            monotonic: line(words[word::MONOTONIC_NS], words[word::MONOTONIC_SCALE]),
            raw: line(words[word::RAW_NS], words[word::RAW_SCALE]),
            realtime_offset_ns: words[word::REALTIME_OFFSET] as i64,
            difference: Scale::from_multiplier(words[word::DIFFERENCE_SCALE]),
            phase: Phase::from_word(words[word::PHASE]),
            closed: words[HOT + 1] != 0,
            interval_ns: words[HOT + 2],
            offset_ns: words[HOT + 3] as i64,
            slew: f64::from_bits(words[HOT + 4]),
            wander: f64::from_bits(words[HOT + 5]),
            measurements: words[HOT + 6],
            alarms: words[HOT + 7],
            quiet: words[HOT + 8],
            departure: f64::from_bits(words[HOT + 9]),
            monotonic_estimate: estimate(0),
            raw_estimate: estimate(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back() {
        let words: [u64; WORDS] = core::array::from_fn(|index| 1000 + index as u64);
        let with_phase = |phase: u64| {
            let mut words = words;
            (words[HOT], words[HOT + 1]) = (phase, 1);
            words
        };
        for phase in [0, 1, 2, 17, 23] {
            let state = State::from_words(&with_phase(phase));
            assert_eq!(state.to_words(), with_phase(phase));
            assert_eq!(Phase::refused_in(phase), matches!(state.phase, Phase::Refused(_)));
        }
        assert_eq!(State::from_words(&[0; WORDS]).phase, Phase::Unstarted);
    }
}
