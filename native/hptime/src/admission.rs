//! Whether the time stamp counter can be trusted.

use crate::refusal::Refusal;

/// Checks this machine.
pub(crate) fn check() -> Result<(), Refusal> {
    Ok(())
}
