//! Why a request could not be answered with a result.

use std::fmt;
use std::io;

use nix::errno::Errno;

/// The codes of `error` messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Code {
    /// The word on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Version => "version",
            Self::BadRequest => "bad-request",
            Self::Unsupported => "unsupported",
            Self::Busy => "busy",
            Self::NotFound => "not-found",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Os => "os",
            Self::PeerLost => "peer-lost",
            Self::PeerVersion => "peer-version",
            Self::NoAnswer => "no-answer",
            Self::ClockStep => "clock-step",
            Self::WrongResult => "wrong-result",
            Self::Internal => "internal",
        }
    }
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

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code.as_str(), self.message)
    }
}
