//! Running a program for the controller.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde::Serialize;
use serde_bytes::ByteBuf;

use crate::cancellation::Cancellation;
use crate::channel::message::requests::Run;
use crate::failure::Failure;

/// Most bytes kept of each output, so that both fit into a frame.
const LARGEST_OUTPUT: u64 = 2_000_000;

/// Longest time-out: a day.
const LONGEST_MS: u64 = 86_400_000;

/// How long descendants of an ended program may hold its outputs open.
const GRACE: Duration = Duration::from_millis(200);

/// What became of a program.
#[derive(Debug, PartialEq, Serialize)]
pub struct Ended {
    exit_code: Option<i32>,
    signal: Option<i32>,
    stdout: ByteBuf,
    stderr: ByteBuf,
    truncated: bool,
    timed_out: bool,
}

/// One output of the program, as far as it is kept.
struct Kept<Pipe> {
    pipe: Option<Pipe>,
    bytes: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl<Pipe: Read + AsFd> Kept<Pipe> {
    fn new(pipe: Option<Pipe>, limit: u64) -> Result<Self, Failure> {
        if let Some(pipe) = &pipe {
            fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
                .map_err(|errno| Failure::errno("making a pipe non-blocking", errno))?;
        }
        Ok(Self { pipe, bytes: Vec::new(), limit: limit as usize, truncated: false })
    }

    /// Takes what is there; beyond the limit it is read and dropped, so that the program is not held up.
    fn take(&mut self) {
        let Some(pipe) = &mut self.pipe else { return };
        let mut block = [0; 16_384];
        loop {
            match pipe.read(&mut block) {
                Ok(0) => break,
                Ok(count) => {
                    let kept = count.min(self.limit - self.bytes.len());
                    self.bytes.extend_from_slice(&block[..kept]);
                    self.truncated |= kept < count;
                    if count < block.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.pipe = None;
    }
}

/// Runs the program in a process group of its own, and returns when it and its outputs have ended.
///
/// At a time-out or when cancelled, the whole group is killed.  Descendants that outlive the program and hold its
/// outputs are killed after a short grace.
pub fn run(request: &Run, cancellation: &Cancellation) -> Result<Ended, Failure> {
    let Some((program, arguments)) = request.argv.0.split_first() else {
        return Err(Failure::bad_request("argv is empty; accepted: a program and its arguments"));
    };
    check("timeout_ms", request.timeout_ms, 1, LONGEST_MS)?;
    check("output_limit", request.output_limit, 0, LARGEST_OUTPUT)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(&request.env.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0);
    // SAFETY: the calls are async-signal-safe and touch no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            before_exec();
            Ok(())
        })
    };
    let mut child = command.spawn().map_err(|error| Failure::os(&format!("starting {program:?}"), &error))?;
    let group = Pid::from_raw(child.id() as i32);
    let watched = watch(&mut child, request, cancellation);
    // Whatever is left of the group, also when watching failed.
    let _ = killpg(group, Signal::SIGKILL);
    let status = child.wait().map_err(|error| Failure::os(&format!("waiting for {program:?}"), &error))?;
    let watched = watched?;
    if watched.cancelled {
        return Err(Failure::cancelled());
    }
    Ok(watched.into_ended(status))
}

struct Watched {
    stdout: Kept<std::process::ChildStdout>,
    stderr: Kept<std::process::ChildStderr>,
    timed_out: bool,
    cancelled: bool,
}

impl Watched {
    fn into_ended(self, status: ExitStatus) -> Ended {
        Ended {
            exit_code: status.code(),
            signal: status.signal(),
            truncated: self.stdout.truncated || self.stderr.truncated,
            stdout: ByteBuf::from(self.stdout.bytes),
            stderr: ByteBuf::from(self.stderr.bytes),
            timed_out: self.timed_out,
        }
    }
}

/// Collects the outputs until the program has ended and both are closed, or until it must be killed.
fn watch(child: &mut Child, request: &Run, cancellation: &Cancellation) -> Result<Watched, Failure> {
    let mut watched = Watched {
        stdout: Kept::new(child.stdout.take(), request.output_limit)?,
        stderr: Kept::new(child.stderr.take(), request.output_limit)?,
        timed_out: false,
        cancelled: false,
    };
    let exit = exit_event(Pid::from_raw(child.id() as i32))?;
    let started = Instant::now();
    let mut deadline = started + Duration::from_millis(request.timeout_ms);
    let mut ended = false;
    while !ended || watched.stdout.pipe.is_some() || watched.stderr.pipe.is_some() {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            watched.timed_out = !ended;
            break;
        }
        let ready = {
            let mut polled = vec![PollFd::new(cancellation.descriptor(), PollFlags::POLLIN)];
            if !ended {
                polled.push(PollFd::new(exit.as_fd(), PollFlags::POLLIN));
            }
            polled.extend(watched.stdout.pipe.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
            polled.extend(watched.stderr.pipe.iter().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
            // One millisecond more than remains, so that rounding down does not make it spin.
            let wait = PollTimeout::try_from(remaining + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            match poll(&mut polled, wait) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(Failure::errno("waiting for a program", errno)),
            }
            !ended && polled[1].any().unwrap_or(true)
        };
        if cancellation.requested() {
            watched.cancelled = true;
            break;
        }
        watched.stdout.take();
        watched.stderr.take();
        if ready {
            ended = true;
            deadline = deadline.min(Instant::now() + GRACE);
        }
    }
    Ok(watched)
}

/// Becomes readable when the process has ended, and leaves it to be waited for.
///
/// A thread waits, because sandboxes lack `pidfd_open`.
fn exit_event(pid: Pid) -> Result<Arc<EventFd>, Failure> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let event = Arc::new(EventFd::from_flags(flags).map_err(|errno| Failure::errno("eventfd", errno))?);
    let signalled = Arc::clone(&event);
    let builder = thread::Builder::new().name("program-exit".into());
    let waiter = builder.spawn(move || {
        // Left as a zombie, its number cannot be given to another process before the group was killed.
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(Errno::EINTR) {}
        // The counter cannot overflow by its one write.
        let _ = signalled.write(1);
    });
    waiter.map_err(|error| Failure::os("starting a thread", &error))?;
    Ok(event)
}

/// In the child: die with the agent, and have the signal handling of a fresh process.
pub(crate) fn before_exec() {
    // SAFETY: both calls are async-signal-safe and involve no memory.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        // Where a sandbox lacks it, the kill of the process group at the end of the session remains.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
}

fn check(field: &str, value: u64, least: u64, most: u64) -> Result<(), Failure> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Failure::bad_request(format!("{field} is {value}; accepted: an integer from {least} to {most}")))
}
