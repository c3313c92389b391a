//! The agent as the first process of a virtual machine.
//!
//! The first process mounts the kernel's file systems, loads modules, goes to the root and mounts the disk that the
//! machine was given, finds the channel, and forks: the child serves
//! the channel, the first process reaps whatever dies, and when the child has ended it powers the machine off.  So a
//! defect in the agent ends the machine in order, where the death of the first process would be a kernel panic.

pub mod devices;
mod disk;
mod machine;
pub mod modules;
mod port;
mod root;

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, wait};
use nix::unistd::{ForkResult, Pid, fork};

pub use port::Port;

/// What went wrong while the machine came up; printed on its console.
#[derive(Debug, PartialEq, Eq)]
pub struct BootError(pub String);

impl fmt::Display for BootError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The settings on the kernel's command line that begin with `virtgauge.`, without that.
fn settings(command_line: &str) -> HashMap<&str, &str> {
    let settings = command_line.split_whitespace().filter_map(|word| word.strip_prefix("virtgauge.")?.split_once('='));
    settings.collect()
}

/// Runs the machine; `serve` holds the conversation over the channel.  Returns only if the machine cannot be powered off.
pub fn run(serve: impl FnOnce(Port) -> ExitCode) -> ExitCode {
    let mut disk = None;
    match boot(&mut disk) {
        Ok(port) => {
            // SAFETY: no other thread exists yet, so the child may do whatever the parent could.
            match unsafe { fork() } {
                Ok(ForkResult::Child) => std::process::exit(i32::from(serve(port) != ExitCode::SUCCESS)),
                Ok(ForkResult::Parent { child }) => {
                    drop(port);
                    reap_until_end_of(child);
                }
                Err(errno) => machine::say(&format!("cannot fork: {errno}")),
            }
        }
        Err(error) => machine::say(&error.to_string()),
    }
    machine::power_off(disk.as_deref());
    ExitCode::FAILURE
}

/// Brings the machine up; `disk` becomes the folder of its data disk as soon as that is mounted.
fn boot(disk: &mut Option<PathBuf>) -> Result<Port, BootError> {
    machine::mount_all()?;
    machine::attach_console();
    let command_line = fs::read_to_string("/proc/cmdline")
        .map_err(|error| BootError(format!("cannot read /proc/cmdline: {error}")))?;
    let settings = settings(&command_line);
    match settings.get("modules") {
        Some(&"auto") => devices::drive(modules::Modules::in_folder("/modules".as_ref())?)?,
        Some(names) => {
            modules::Modules::in_folder("/modules".as_ref())?.load(names.split(',').filter(|name| !name.is_empty()))?;
        }
        None => {}
    }
    if let Some(parts) = settings.get("root") {
        root::switch(parts)?;
    }
    if let Some(folder) = settings.get("disk") {
        *disk = Some(disk::mount(folder)?);
    }
    let channel = settings.get("channel").ok_or_else(|| {
        BootError(
            "the kernel's command line has no virtgauge.channel=virtio:NAME or virtgauge.channel=serial:DEVICE".into(),
        )
    })?;
    Port::open(channel)
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
    fn settings_are_the_words_of_the_command_line_with_our_prefix() {
        let settings =
            settings("quiet virtgauge.channel=virtio:org.virtgauge.agent x=virtgauge.y=1 virtgauge.modules=a,b\n");
        assert_eq!(settings.get("channel"), Some(&"virtio:org.virtgauge.agent"));
        assert_eq!(settings.get("modules"), Some(&"a,b"));
        assert_eq!(settings.len(), 2);
    }
}
