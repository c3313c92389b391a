//! Sleep until a moment: in the kernel as long as is safe, then awake.

mod guard;
pub(crate) mod kernel;
mod outcome;
mod sleeper;

pub use guard::Guard;
pub use outcome::{Cause, Rule, SleepError, Wake};
pub use sleeper::Sleeper;
