//! Why a measurement came to nothing: the one type of failure of the crates that measure.
//!
//! A variant is what callers tell apart; its text, which [`fmt::Display`] gives as it is, tells a person what happened,
//! where, and what to do.  Programs that answer other programs have the same as a code and a text, in a `failure.rs` of
//! their own: the agent, which translates this type, and sensorstore.  What only people are told is plain text: the
//! flush laboratory's refusals, and wrong words of a command line.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;

use serde::Serialize;

/// What stands in the way.
#[derive(Debug)]
pub enum Failure {
    /// A setting is out of its range; says which, and the range.
    Invalid(String),
    /// This machine, path or peer cannot do it; says why and what would help.
    Unsupported(String),
    /// The sending host cannot keep the gaps of a rate that the estimate needs.
    CannotPace(PacingLimit),
    /// The other end vanished, fell silent or never was there.
    PeerLost(String),
    /// The other end said something that this one does not understand, or speaks another version.
    Protocol(String),
    /// A clock jumped while a stream was under way, so that its times mean nothing.
    ClockStep {
        /// Which clock.
        clock: &'static str,
        /// How far, in nanoseconds.
        step_ns: i64,
    },
    /// Work came out wrong: says what was expected and what was found.
    Wrong(String),
    /// The path never gave two answers alike, or answered nothing: says which.
    NoAnswer(String),
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

/// Up to where a host's pacing can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PacingLimit {
    /// The rate that was needed, in bit/s of IP packets.
    pub asked_bps: f64,
    /// The highest rate below it that the host was seen to pace, in bit/s of IP packets; 0 if none was.
    pub max_paced_bps: f64,
    /// What the host paced beforehand, where that is the needed rate or more: this path costs it more, or it was kept from it.
    pub undisturbed_bps: Option<f64>,
    /// The highest rate that it paced and that the path carried, so that at least this much is available;
    /// `None` if there was none or nobody looked.
    pub carried_bps: Option<f64>,
}

impl fmt::Display for PacingLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mega = |bps: f64| bps / 1e6;
        write!(
            formatter,
            "this host cannot pace {:.1} Mbit/s; the highest rate that it keeps is {:.1} Mbit/s",
            mega(self.asked_bps),
            mega(self.max_paced_bps)
        )?;
        if let Some(carried) = self.carried_bps {
            write!(formatter, ", and the path carries at least {:.1} Mbit/s", mega(carried))?;
        }
        if let Some(undisturbed) = self.undisturbed_bps {
            write!(
                formatter,
                "; shortly before, it kept {:.1} Mbit/s on its own loopback: sending costs more on this path, or something \
                 keeps the sender from its processor; take other load off this machine, or send from a processor of its \
                 own (--cpu) and before all others (--fifo)",
                mega(undisturbed)
            )?;
        }
        Ok(())
    }
}

impl Failure {
    /// What was attempted, and the answer of the last system call.
    #[must_use]
    pub fn last(attempt: impl Into<String>) -> Self {
        Self::Os { attempt: attempt.into(), error: io::Error::last_os_error() }
    }

    /// What was attempted, and the answer.
    #[must_use]
    pub fn os(attempt: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::Os { attempt: attempt.into(), error: error.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason)
            | Self::Unsupported(reason)
            | Self::PeerLost(reason)
            | Self::Protocol(reason)
            | Self::NoAnswer(reason) => formatter.write_str(reason),
            Self::Wrong(how) => write!(formatter, "wrong result: {how}"),
            Self::CannotPace(limit) => limit.fmt(formatter),
            Self::ClockStep { clock, step_ns } => {
                write!(formatter, "{clock} stepped by {:.3} ms during a stream; try again", *step_ns as f64 / 1e6)
            }
            Self::Os { attempt, error } => write!(formatter, "{attempt}: {error}"),
            Self::Cancelled => formatter.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Failure {}

/// Turns the answer of a system call, negative when it failed, into a result.
pub fn checked<T: PartialOrd + Default>(answer: T, attempt: &str) -> Result<T, Failure> {
    if answer < T::default() { Err(Failure::last(attempt)) } else { Ok(answer) }
}
