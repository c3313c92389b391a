//! hptime's clock and sleeps, one of each for the whole process.

use std::sync::LazyLock;

use hptime::{Clock, Fallback, OsClock, Rule, Sleeper};

/// The clock.
pub static CLOCK: Clock = Clock::new();

/// hptime's own rule.  What it learns is of the load that it learnt it beside: each trial begins by [`anew`].
pub static ADAPTIVE: Sleeper = Sleeper::new(&CLOCK);

/// The rule of the timing paper's library, with the tick of the kernel that this agent runs on.
pub static HIGHPERTIMER: LazyLock<Sleeper<'static>> = LazyLock::new(|| Sleeper::new(&CLOCK).by(Rule::highpertimer()));

/// Sleeps from which the guard rests on what was seen (hptime's README).
const ENOUGH: u32 = 1000;

/// Length of each: longer than the guard that is assumed, or nothing would be seen.
const LEARNING_NS: i64 = 200_000;

/// Longest time for them.
const LONGEST_LEARNING_NS: u64 = 300_000_000;

/// hptime's own rule, which has forgotten what it learnt beside another load.
pub fn anew() -> &'static Sleeper<'static> {
    CLOCK.settle();
    ADAPTIVE.forget();
    &ADAPTIVE
}

/// Has hptime learn beside the load that runs.
pub fn learn() {
    let until_ns = OsClock::Monotonic.now_ns() + LONGEST_LEARNING_NS;
    let sleeps = (0..ENOUGH).map(|_| ADAPTIVE.sleep_for(LEARNING_NS));
    sleeps.take_while(|_| OsClock::Monotonic.now_ns() < until_ns).for_each(drop);
}

/// Calibrates the clock, which takes 20 ms the first time; why it answers from the system's clock instead, if it does.
pub fn fallback_reason() -> Option<Fallback> {
    CLOCK.settle();
    CLOCK.fallback_reason()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_beside_one_load_is_forgotten_before_the_next() {
        let assumed_ns = Sleeper::new(&CLOCK).guard_ns();
        // A thousand sleeps shorten the guard, or two late ones lengthen it.
        for _ in 0..20 {
            learn();
            if ADAPTIVE.guard_ns() != assumed_ns {
                break;
            }
        }
        assert_ne!(ADAPTIVE.guard_ns(), assumed_ns);
        assert_eq!(anew().guard_ns(), assumed_ns);
    }
}
