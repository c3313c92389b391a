//! Live frames: an XDP program that the kernel runs on pages of its own makes each frame and redirects it to the interface
//! (`BPF_PROG_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).
//!
//! One system call sends a whole trial.  The program keeps the time itself; a second thread watches it and ends the call
//! by a signal.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use failure::{Failure, checked};

use crate::bpf::generator::Generator;
use crate::bpf::system;
use crate::features;
use crate::frame;
use crate::schedule::{FRACTION, Pace};
use crate::transmission::{Stream, Transmission, Transmitter, Watch};

/// How often the program is looked at.
const LOOK: Duration = Duration::from_micros(500);

/// Runs of the program between two times that frames leave and the processor may do something else.
///
/// With one, every frame leaves when it is made.  With more, those made first wait: worth it only at rates that one at a
/// time would not reach.
const FAST_BATCH: u32 = 32;

/// Gap below which frames leave in batches.
const FAST_GAP_NS: u64 = 400;

/// Sends live frames.
pub struct LiveTransmitter {
    generator: Generator,
    pattern: Vec<u8>,
    batch: u32,
}

impl LiveTransmitter {
    /// Loads the program for a stream that leaves through this interface.
    pub fn open(interface: u32, stream: &Stream) -> Result<Self, Failure> {
        if features::of_interface(interface)?.is_some_and(|features| features & features::TRANSMITS_REDIRECTED == 0) {
            return Err(Failure::Unsupported(
                "the sending interface takes no redirected frames; of a virtual pair, generic receive offload must be on \
                 at the other end (ethtool -K OTHER gro on)"
                    .into(),
            ));
        }
        let mut pattern = vec![0; stream.length];
        frame::fill(&mut pattern);
        let transmitter = Self { generator: Generator::load(interface, stream)?, pattern, batch: batch(stream.pace) };
        // A run that drops its only frame says whether the kernel has live frames at all.
        transmitter.generator.stop();
        system::run_live(transmitter.generator.program.as_fd(), &transmitter.pattern, 1, 1)
            .map_err(|error| Failure::os("asking the kernel for live frames", error))?;
        transmitter.generator.prepare(stream);
        Ok(transmitter)
    }
}

fn batch(pace: Pace) -> u32 {
    if pace.gap >> FRACTION < FAST_GAP_NS { FAST_BATCH } else { 1 }
}

impl Transmitter for LiveTransmitter {
    fn transmit(&mut self, stream: &Stream, watch: &Arc<Watch>) -> Result<Transmission, Failure> {
        handle_wake_ups();
        let returned = AtomicBool::new(false);
        // SAFETY: asks for the caller's own number.
        let thread = unsafe { libc::gettid() };
        let generator = &self.generator;
        thread::scope(|scope| {
            let watching = scope.spawn(|| watch_over(generator, watch, thread, &returned));
            let outcome = loop {
                match system::run_live(generator.program.as_fd(), &self.pattern, u32::MAX, self.batch) {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                        break Err(Failure::os("running the program that makes frames", error));
                    }
                    _ if generator.done() => break Ok(()),
                    _ => {}
                }
            };
            returned.store(true, Ordering::Release);
            watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            outcome
        })?;
        watch.set_sent(generator.sent());
        Ok(generator.account(stream.templates.len()))
    }
}

/// Tells others how far the program is, stops it when they ask for it, and ends the call that runs it when it is done.
fn watch_over(generator: &Generator, watch: &Watch, thread: i32, returned: &AtomicBool) -> Result<(), Failure> {
    leave_processor()?;
    while !returned.load(Ordering::Acquire) {
        thread::sleep(LOOK);
        watch.set_sent(generator.sent());
        if watch.stopped() {
            generator.stop();
        }
        if generator.done() {
            // Again and again, in case that the first comes before the call.
            // SAFETY: signals a thread of this process, which waits for this one before it ends.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, wake_up()) };
        }
    }
    Ok(())
}

/// The signal that ends the call.
fn wake_up() -> i32 {
    libc::SIGRTMIN() + 7
}

/// Gives the signal a handler that does nothing: it is only to interrupt a system call.
fn handle_wake_ups() {
    extern "C" fn nothing(_: i32) {}
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a handler that does nothing may run anywhere; an empty mask and no flags are zero.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as libc::sighandler_t;
            libc::sigaction(wake_up(), &raw const action, std::ptr::null_mut());
        }
    });
}

/// Lets the calling thread run where the process may: its parent is bound to a processor that will have no time.
fn leave_processor() -> Result<(), Failure> {
    // SAFETY: a set of processors is plain bits, for which zero is a value; both calls get one of its size.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let process = libc::getpid();
        let answer = libc::sched_getaffinity(process, size_of::<libc::cpu_set_t>(), &raw mut set);
        answer.min(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set))
    };
    checked(answer, "letting a thread run on every processor").map(drop)
}
