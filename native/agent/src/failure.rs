//! Why a request could not be answered with a result: the crates' `failure::Failure` as the protocol has it, a code and a text.

use std::fmt;
use std::io;

use nix::errno::Errno;
use serde::Serialize;

/// The codes of `error` messages, `bad-request` for instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The controller broke the protocol; the session ends.
    Protocol,
    /// The controller speaks another version; the session ends.
    Version,
    /// A parameter is missing or outside what is accepted.
    BadRequest,
    /// This guest cannot do it.
    Unsupported,
    /// Something of the kind already runs.
    Busy,
    /// There is no such thing.
    NotFound,
    /// The controller cancelled it.
    Cancelled,
    /// It took too long.
    Timeout,
    /// The operating system refused.
    Os,
    /// The other end of a measurement vanished, fell silent or never was there.
    PeerLost,
    /// The other end of a measurement speaks another version, or is something else.
    PeerVersion,
    /// What was measured gave no answer.
    NoAnswer,
    /// A clock was set meanwhile, so that what was measured means nothing.
    ClockStep,
    /// Work came out wrong: the machine, or the agent, is broken.
    WrongResult,
    /// A defect of the agent.
    Internal,
}

/// What becomes an `error` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub code: Code,
    /// What happened, in words.
    pub message: String,
    /// The operating system's number, when it refused.
    pub errno: Option<i32>,
}

impl Failure {
    /// A failure without the operating system's number.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), errno: None }
    }

    /// A parameter is missing or outside what is accepted.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    /// This guest cannot do it.
    #[must_use]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Code::Unsupported, message)
    }

    /// The controller cancelled it.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(Code::Cancelled, "cancelled by the controller")
    }

    /// The operating system refused: what was attempted, and its error.
    #[must_use]
    pub fn os(attempt: &str, error: &io::Error) -> Self {
        Self { code: Code::Os, message: format!("{attempt}: {error}"), errno: error.raw_os_error() }
    }

    /// The operating system refused: what was attempted, and its number.
    #[must_use]
    pub fn errno(attempt: &str, errno: Errno) -> Self {
        Self::os(attempt, &errno.into())
    }
}

impl From<failure::Failure> for Failure {
    fn from(failure: failure::Failure) -> Self {
        use failure::Failure as Other;
        let message = failure.to_string();
        match failure {
            Other::Invalid(_) => Self::bad_request(message),
            Other::Unsupported(_) | Other::CannotPace(_) => Self::unsupported(message),
            Other::PeerLost(_) => Self::new(Code::PeerLost, message),
            Other::Protocol(_) => Self::new(Code::PeerVersion, message),
            Other::ClockStep { .. } => Self::new(Code::ClockStep, message),
            Other::NoAnswer(_) => Self::new(Code::NoAnswer, message),
            Other::Wrong(_) => Self::new(Code::WrongResult, message),
            Other::Os { attempt, error } => Self::os(&attempt, &error),
            Other::Cancelled => Self::cancelled(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
