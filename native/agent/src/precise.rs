//! hptime's clock and sleeps, one of each for the whole process.

use std::sync::LazyLock;

use hptime::{Clock, Fallback, Rule, Sleeper};

/// The clock.
pub static CLOCK: Clock = Clock::new();

/// hptime's own rule.  What it learns is of the load that it learnt it beside: each trial begins by [`Sleeper::forget`].
pub static ADAPTIVE: Sleeper = Sleeper::new(&CLOCK);

/// The rule of the timing paper's library, with the tick of the kernel that this agent runs on.
pub static HIGHPERTIMER: LazyLock<Sleeper<'static>> = LazyLock::new(|| Sleeper::new(&CLOCK).by(Rule::highpertimer()));

/// Calibrates the clock, which takes 20 ms the first time; why it answers from the system's clock instead, if it does.
pub fn fallback_reason() -> Option<Fallback> {
    CLOCK.settle();
    CLOCK.fallback_reason()
}
