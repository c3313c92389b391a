//! What the commands have in common: their words, their output and their end.

mod arguments;
pub(crate) mod estimate;
pub(crate) mod listen;
pub(crate) mod pacing_sweep;
pub(crate) mod sending;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use failure::Failure;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Error {
    /// Its words are wrong.
    Usage(String),
    /// It was not possible; with what else programs are told.
    Failure(Failure, Map<String, Value>),
    /// Nobody reads the output any more.
    Unheard,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure, Map::new())
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::Usage(message)
    }
}

impl From<io::Error> for Error {
    fn from(_: io::Error) -> Self {
        Self::Unheard
    }
}

/// The exit code of a command whose words are wrong.
pub(crate) const WRONG_USAGE: u8 = 2;

/// Writes one line.
pub(crate) fn say(event: &impl Serialize) -> Result<(), Error> {
    let line = serde_json::to_string(event).map_err(|error| Error::Usage(error.to_string()))?;
    let mut output = io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}

/// Says why a command failed: to programs on the output, to people on the error output.
pub(crate) fn end(result: Result<(), Error>, usage: &str) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Usage(message)) => {
            eprintln!("bandwidth: {message}\n\n{usage}");
            ExitCode::from(WRONG_USAGE)
        }
        Err(Error::Failure(failure, mut event)) => {
            eprintln!("bandwidth: {failure}");
            event.insert("event".into(), json!("error"));
            event.insert("kind".into(), json!(kind_of(&failure)));
            event.insert("message".into(), json!(failure.to_string()));
            if let Failure::CannotPace(limit) = &failure {
                event.extend(json!(limit).as_object().cloned().unwrap_or_default());
            }
            // Nobody may be left to read it.
            let _ = say(&event);
            ExitCode::FAILURE
        }
        Err(Error::Unheard) => ExitCode::FAILURE,
    }
}

fn kind_of(failure: &Failure) -> &'static str {
    match failure {
        Failure::Invalid(_) => "invalid",
        Failure::Unsupported(_) => "unsupported",
        Failure::CannotPace(_) => "cannot_pace",
        Failure::PeerLost(_) => "peer_lost",
        Failure::Protocol(_) => "protocol",
        Failure::ClockStep { .. } => "clock_step",
        Failure::NoAnswer(_) => "no_answer",
        Failure::Os { .. } => "os",
        Failure::Wrong(_) => "wrong_result",
        Failure::Cancelled => "cancelled",
    }
}

/// A flag that is set when the program is told to end (SIGINT, SIGTERM, SIGHUP).
pub(crate) fn told_to_end() -> Arc<AtomicBool> {
    static TOLD: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    extern "C" fn tell(_: i32) {
        if let Some(told) = TOLD.get() {
            told.store(true, Ordering::Relaxed);
        }
    }
    let told = TOLD.get_or_init(Arc::default);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores into an atomic; an empty mask and no flags are zero.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = tell as extern "C" fn(i32) as libc::sighandler_t;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
    Arc::clone(told)
}
