//! hptime's clock and sleeps, one of each for the whole process: what they learn serves every trial.

use hptime::{Clock, Fallback, Rule, Sleeper};

/// Timer interrupts a second of the kernels that guests boot (`CONFIG_HZ` of Debian's); `HighPerTimer` sleeps until one of
/// their periods before the deadline.
const KERNEL_HZ: u32 = 250;

/// The clock.
pub static CLOCK: Clock = Clock::new();

/// hptime's own rule.
pub static ADAPTIVE: Sleeper = Sleeper::new(&CLOCK);

/// The rule of the timing paper's library.
pub static HIGHPERTIMER: Sleeper = Sleeper::new(&CLOCK).by(Rule::HighPerTimer { hz: KERNEL_HZ });

/// Calibrates the clock, which takes 20 ms the first time; why it answers from the system's clock instead, if it does.
pub fn fallback_reason() -> Option<Fallback> {
    CLOCK.settle();
    CLOCK.fallback_reason()
}
