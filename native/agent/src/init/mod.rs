//! The agent as the first process of a virtual machine.
//!
//! The first process mounts the kernel's file systems, loads modules, goes to the root and mounts the disks that the
//! machine was given, finds the channel, and forks: the child serves
//! the channel, the first process reaps whatever dies, and when the child has ended it powers the machine off.  So a
//! defect in the agent ends the machine in order, where the death of the first process would be a kernel panic.

pub mod devices;
mod machine;
pub mod modules;
mod port;
mod root;

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{ForkResult, Pid, fork};

pub use port::Port;

use crate::dial::{Dial, PATIENCE};
use crate::failure::Failure;

/// Where an image has the identity with which its agent calls.
const IDENTITY: &str = "/identity.pem";

const COMMAND_LINE: &str = "/proc/cmdline";

static RUNS: AtomicBool = AtomicBool::new(false);

/// How the agent of this machine and the controller come together.
#[derive(Debug)]
pub enum Way {
    /// Over a device of the machine.
    Port(Port),
    /// The agent calls.
    Dial(Dial),
}

/// The settings on the kernel's command line that begin with `virtgauge.`, without that.
fn settings(command_line: &str) -> HashMap<&str, &str> {
    let settings = command_line.split_whitespace().filter_map(|word| word.strip_prefix("virtgauge.")?.split_once('='));
    settings.collect()
}

/// Whether the monitor notices a restart, but not that the machine was powered off (Firecracker).
fn ends_by_restart(command_line: &str) -> bool {
    settings(command_line).get("end") == Some(&"restart")
}

/// Whether this process, or the one that it was forked from, is the first of a virtual machine.
#[must_use]
pub fn runs_the_machine() -> bool {
    RUNS.load(Ordering::Relaxed)
}

/// Runs the machine; `serve` holds the conversation, or several.  Returns only if the machine cannot be powered off.
pub fn run(serve: impl FnOnce(Way) -> ExitCode) -> ExitCode {
    let mut disks = Vec::new();
    RUNS.store(true, Ordering::Relaxed);
    match boot(&mut disks) {
        Ok(way) => {
            // SAFETY: no other thread exists yet, so the child may do whatever the parent could.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => std::process::exit(i32::from(serve(way) != ExitCode::SUCCESS)),
                Ok(ForkResult::Parent { child }) => {
                    drop(way);
                    reap_until_end_of(child);
                }
                Err(errno) => machine::say(&format!("cannot fork: {errno}")),
            }
        }
        Err(error) => machine::say(&error.to_string()),
    }
    machine::power_off(&disks, ends_by_restart(&fs::read_to_string(COMMAND_LINE).unwrap_or_default()));
    ExitCode::FAILURE
}

/// Brings the machine up; the folder of each of its data disks is added to `disks` as soon as that is mounted.
fn boot(disks: &mut Vec<PathBuf>) -> Result<Way, Failure> {
    machine::mount_all()?;
    machine::attach_console();
    let command_line = fs::read_to_string(COMMAND_LINE)
        .map_err(|error| Failure::os(&format!("cannot read {COMMAND_LINE}"), &error))?;
    let settings = settings(&command_line);
    match settings.get("modules") {
        Some(&"auto") => devices::drive(modules::Modules::in_folder("/modules".as_ref())?)?,
        Some(names) => {
            modules::Modules::in_folder("/modules".as_ref())?.load(names.split(',').filter(|name| !name.is_empty()))?;
        }
        None => {}
    }
    if let Some(parts) = settings.get("root") {
        root::switch(parts, settings.get("exports").copied())?;
    }
    if let Some(folders) = settings.get("disks") {
        machine::mount_disks(folders, disks)?;
    }
    let channel = settings.get("channel").ok_or_else(|| {
        Failure::bad_request(
            "the kernel's command line has no virtgauge.channel=virtio:NAME, serial:DEVICE or dial:ADDRESS:PORT",
        )
    })?;
    if let Some(controller) = channel.strip_prefix("dial:") {
        let call = call(controller, settings.get("patience").copied())?;
        port::set_address(&settings)?;
        return Ok(Way::Dial(call));
    }
    Port::open(channel).map(Way::Port)
}

/// The call of a controller with the image's identity.
fn call(controller: &str, patience: Option<&str>) -> Result<Dial, Failure> {
    let accepted = "dial:ADDRESS:PORT, an IP address and a port";
    let controller = controller
        .parse()
        .map_err(|_| Failure::bad_request(format!("virtgauge.channel is dial:{controller}; accepted: {accepted}")))?;
    if !Path::new(IDENTITY).exists() {
        return Err(Failure::bad_request(format!("the image has no identity in {IDENTITY} to call {controller} with")));
    }
    Ok(Dial { controller, identity: IDENTITY.into(), patience: patience_of(patience)? })
}

/// How long nobody may answer after a guest before the machine powers off.
fn patience_of(seconds: Option<&str>) -> Result<Duration, Failure> {
    let Some(seconds) = seconds else { return Ok(PATIENCE) };
    let number = seconds.parse().map_err(|_| {
        Failure::bad_request(format!("virtgauge.patience is {seconds}; accepted: a whole number of seconds"))
    })?;
    Ok(Duration::from_secs(number))
}

/// Waits for every process that dies; orphans become children of the first process.
fn reap_until_end_of(child: Pid) {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => {
                if code != 0 {
                    machine::say("the agent ended with an error; see above");
                }
                return;
            }
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                machine::say(&format!("the agent was ended by {signal}"));
                return;
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_needs_an_address_and_an_identity() {
        let message = call("controller:7443", None).unwrap_err().message;
        assert!(message.contains("dial:ADDRESS:PORT"), "{message}");
        let message = call("192.0.2.1:7443", None).unwrap_err().message;
        assert!(message.contains("no identity"), "{message}");
    }

    #[test]
    fn patience_is_a_number_of_seconds() {
        assert_eq!(patience_of(None).unwrap(), PATIENCE);
        assert_eq!(patience_of(Some("3600")).unwrap(), Duration::from_secs(3600));
        let message = patience_of(Some("an hour")).unwrap_err().message;
        assert!(message.contains("virtgauge.patience is an hour"), "{message}");
    }

    #[test]
    fn settings_are_the_words_of_the_command_line_with_our_prefix() {
        let settings =
            settings("quiet virtgauge.channel=virtio:org.virtgauge.agent x=virtgauge.y=1 virtgauge.modules=a,b\n");
        assert_eq!(settings.get("channel"), Some(&"virtio:org.virtgauge.agent"));
        assert_eq!(settings.get("modules"), Some(&"a,b"));
        assert_eq!(settings.len(), 2);
    }

    #[test]
    fn a_machine_is_restarted_at_its_end_only_where_it_is_told_so() {
        assert!(ends_by_restart("quiet virtgauge.end=restart\n"));
        assert!(!ends_by_restart("quiet reboot=k virtgauge.end=power-off"));
        assert!(!ends_by_restart(""));
    }
}
