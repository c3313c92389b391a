//! A program that runs until it is told to end: a server, for instance.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hptime::OsClock;
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::Load;
use crate::failure::Failure;
use crate::parameters::List;
use crate::program::before_exec;

/// How long a program may take to end when it was asked to.
const GRACE: Duration = Duration::from_secs(1);

/// How often it is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    argv: List<String, 256>,
}

/// A program that was started.
#[derive(Debug)]
pub struct ProgramLoad {
    pid: Pid,
    started_ns: u64,
    ended_early: bool,
    /// When it is killed, if it has not ended by then.
    killed_at: Option<Instant>,
}

/// What a program used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramWork {
    elapsed_ns: u64,
    /// CPU time of the program and of those children that it waited for.
    cpu_ns: u64,
    /// It ended before it was told to.
    ended_early: bool,
    exit_code: Option<i32>,
    signal: Option<i32>,
}

impl ProgramLoad {
    /// Whether it has ended.  It is left to be waited for, so that its number stays its own until the group was killed.
    fn ended(&self) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.pid), flags), Ok(WaitStatus::StillAlive) | Err(Errno::EINTR))
    }

    /// Waits for its end: the status, and what it used.
    fn collect(&self) -> (i32, libc::rusage) {
        let mut status = 0;
        // SAFETY: rusage is plain integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both results are valid references.
        while unsafe { libc::wait4(self.pid.as_raw(), &raw mut status, 0, &raw mut usage) } < 0
            && Errno::last() == Errno::EINTR
        {}
        (status, usage)
    }
}

impl Load for ProgramLoad {
    const NAME: &'static str = "program";
    type Parameters = Asked;
    type Work = ProgramWork;

    /// Starts the program in a process group of its own, without input or output.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let argv = asked.argv.0;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.process_group(0);
        // SAFETY: the call is async-signal-safe and touches no memory of the parent.
        unsafe {
            command.pre_exec(|| {
                before_exec();
                Ok(())
            })
        };
        let child = command.spawn().map_err(|error| Failure::os(&format!("starting {:?}", argv[0]), &error))?;
        let pid = Pid::from_raw(child.id() as i32);
        Ok(Self { pid, started_ns: OsClock::Monotonic.now_ns(), ended_early: false, killed_at: None })
    }

    fn halt(&mut self) {
        self.ended_early = self.ended();
        let _ = killpg(self.pid, Signal::SIGTERM);
        // From here, for programs that are halted together are waited for one after another.
        self.killed_at = Some(Instant::now() + GRACE);
    }

    fn finish(self) -> ProgramWork {
        while !self.ended() && self.killed_at.is_some_and(|time| Instant::now() < time) {
            thread::sleep(LOOK);
        }
        // Whatever is left of the group.
        let _ = killpg(self.pid, Signal::SIGKILL);
        let (status, usage) = self.collect();
        ProgramWork {
            elapsed_ns: OsClock::Monotonic.now_ns().saturating_sub(self.started_ns),
            cpu_ns: time_ns(usage.ru_utime) + time_ns(usage.ru_stime),
            ended_early: self.ended_early,
            exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        }
    }
}

fn time_ns(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(argv: &[&str]) -> Result<ProgramLoad, Failure> {
        ProgramLoad::start(Asked { argv: List(argv.iter().map(|&word| word.into()).collect()) })
    }

    fn stopped(argv: &[&str]) -> ProgramWork {
        let mut load = started(argv).unwrap();
        thread::sleep(Duration::from_millis(300));
        load.halt();
        load.finish()
    }

    #[test]
    fn a_program_runs_until_it_is_stopped_and_its_time_is_counted() {
        let work = stopped(&["/bin/sh", "-c", "while :; do :; done"]);
        assert_eq!((work.ended_early, work.exit_code, work.signal), (false, None, Some(libc::SIGTERM)));
        assert!(work.cpu_ns > 0 && work.cpu_ns <= work.elapsed_ns, "{work:?}");
    }

    #[test]
    fn a_program_that_does_not_listen_is_killed() {
        let work = stopped(&["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"]);
        assert_eq!((work.ended_early, work.exit_code, work.signal), (false, None, Some(libc::SIGKILL)));
    }

    #[test]
    fn a_program_that_ended_by_itself_is_told_from_one_that_was_stopped() {
        let work = stopped(&["/bin/sh", "-c", "exit 3"]);
        assert_eq!((work.ended_early, work.exit_code, work.signal), (true, Some(3), None));
    }

    #[test]
    fn a_program_that_does_not_exist_is_refused() {
        assert!(started(&["/nowhere/to/be/found"]).is_err());
    }
}
