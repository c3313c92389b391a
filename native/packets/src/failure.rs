//! Why frames could not be sent or received.

use std::fmt;
use std::io;

/// What stands in the way of a trial.
#[derive(Debug)]
pub enum Failure {
    /// This machine, namespace or interface cannot do it; says why and what would help.
    Unsupported(String),
    /// The operating system refused.
    Os {
        /// What was attempted.
        attempt: String,
        /// Its answer.
        error: io::Error,
    },
    /// Somebody asked for an end.
    Cancelled,
}

impl Failure {
    /// What was attempted, and the answer of the last system call.
    pub(crate) fn last(attempt: impl Into<String>) -> Self {
        Self::Os { attempt: attempt.into(), error: io::Error::last_os_error() }
    }

    /// What was attempted, and the answer.
    pub(crate) fn os(attempt: impl Into<String>, error: io::Error) -> Self {
        Self::Os { attempt: attempt.into(), error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(reason) => formatter.write_str(reason),
            Self::Os { attempt, error } => write!(formatter, "{attempt}: {error}"),
            Self::Cancelled => formatter.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Failure {}

/// Turns the answer of a system call, negative when it failed, into a result.
pub(crate) fn checked<T: PartialOrd + Default>(answer: T, attempt: &str) -> Result<T, Failure> {
    if answer < T::default() { Err(Failure::last(attempt)) } else { Ok(answer) }
}
