//! Calling the controller over TLS, where a guest cannot be reached from outside.
//!
//! A controller takes one call for each guest that it launches.  So the process that a person has started only
//! supervises: it starts itself anew for every call, waits for that to end, and calls again, until the identity expires
//! or nobody has answered for too long.  Each guest is thus a fresh process, as on every other platform.

mod caller;
mod connection;
mod credentials;

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

pub use caller::call;
pub use credentials::Credentials;

use crate::failure::Failure;
use crate::program;

/// How long to go on calling a controller that has answered before, where nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The exit code of a call that never became a conversation.
pub const NO_CONVERSATION: u8 = 5;

const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dial {
    /// Of the controller; an address and no name, because a static program cannot look names up everywhere.
    pub controller: SocketAddr,
    /// The file with the identity.
    pub identity: PathBuf,
    /// How long to go on after the last conversation.
    pub patience: Duration,
}

/// Calls until there is no reason to any more; returns why, or what is wrong with the identity.
pub fn supervise(dial: &Dial) -> Result<String, Failure> {
    let mut pause = SHORTEST_PAUSE;
    let mut failed_before = false;
    let mut heard: Option<Instant> = None;
    loop {
        // Read anew each time: an identity that expires or is replaced meanwhile is noticed.
        if Credentials::read(&dial.identity)?.expired() {
            return Ok("the identity has expired".into());
        }
        let status =
            attempt(dial, failed_before).map_err(|error| Failure::os("cannot start a process for the call", &error))?;
        // A conversation that ended well, by a fault of the controller, or with the way to it; all else backs off.
        if matches!(status.code(), Some(0 | 3 | 4)) {
            heard = Some(Instant::now());
            failed_before = false;
            pause = SHORTEST_PAUSE;
            thread::sleep(pause);
        } else {
            if heard.is_some_and(|last| last.elapsed() >= dial.patience) {
                return Ok(format!("no controller has answered for {} s", dial.patience.as_secs()));
            }
            failed_before = true;
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// One call in a process of its own, which ends with this one.  Of failures in a row only the first is told.
fn attempt(dial: &Dial, failed_before: bool) -> io::Result<ExitStatus> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--dial").arg(dial.controller.to_string()).arg("--identity").arg(&dial.identity);
    command.args(["--attempt", if failed_before { "again" } else { "new" }]);
    // SAFETY: the calls are async-signal-safe and touch no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            program::before_exec();
            Ok(())
        })
    };
    command.status()
}

/// The exit code of a call that never became a conversation; its reason is told unless it is one of several in a row.
#[must_use]
pub fn no_conversation(why: &Failure, again: bool) -> ExitCode {
    if !again {
        eprintln!("virtgauge-agent: {why}; calling again until it answers");
    }
    ExitCode::from(NO_CONVERSATION)
}
