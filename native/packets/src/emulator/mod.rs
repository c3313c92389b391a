//! A link of a known rate, delay, loss and queue between two interfaces, where the kernel has none: every frame that comes
//! to one is sent through the other when it is due.
//!
//! [`line`] is the rule, [`way`] carries it out.  How far its times can be trusted is counted: of each frame, how long
//! after it was due it was handed over.

pub mod line;
mod way;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use failure::Failure;
use hptime::{OsClock, Sleeper};

use crate::histogram::Histogram;
use crate::interface;
use crate::port::Kind;

use line::Shape;
use way::Way;

pub use way::Passed;

/// How long nobody looks for frames where all are delayed by more than twice this: the kernel has stamped them.
const REST: Duration = Duration::from_micros(200);

/// A link with a shorter delay is never at rest: what comes is soon due.
const RESTFUL_DELAY_NS: u64 = 2 * REST.as_nanos() as u64;

/// Before a frame is due, it is waited for by hptime, and no longer looked for others.
const APPROACH_NS: u64 = 300_000;

/// What is emulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How frames are taken: by `AF_XDP` or `AF_PACKET`, or the fastest that works.
    pub port: Option<Kind>,
    /// Interface from which frames are taken.
    pub from: String,
    /// Interface through which they leave.
    pub to: String,
    /// What happens to them on the way.
    pub shape: Shape,
    /// Frames go the other way, too, delayed as much, without any other limit.
    pub both: bool,
    /// Decides which frames are lost.
    pub seed: u64,
}

/// A link whose interfaces are open.
pub struct Emulator {
    there: Way,
    back: Option<Way>,
    rests: bool,
    sleeper: &'static Sleeper<'static>,
}

/// What a link did.
#[derive(Clone, Debug)]
pub struct Work {
    /// How frames were taken from the first interface.
    pub port: Kind,
    /// What became of the frames on the way there.
    pub there: Passed,
    /// And on the way back; `None` where none went.
    pub back: Option<Passed>,
    /// How long after it was due each frame was handed over, of both ways.
    pub lateness: Histogram,
    /// How long it was there.
    pub elapsed_ns: u64,
    /// CPU time of its thread.
    pub cpu_ns: u64,
}

impl Emulator {
    /// Opens the interfaces.  The network stack must not forward between them, and their peers must leave nothing to a network
    /// card (`ethtool -K`).
    ///
    /// # Errors
    /// [`Failure::Unsupported`] in the machine's own network namespace, and where an interface is not there.
    pub fn open(settings: &Settings, sleeper: &'static Sleeper<'static>) -> Result<Self, Failure> {
        interface::require_own_namespace()?;
        let (from, to) = (interface::index_of(&settings.from)?, interface::index_of(&settings.to)?);
        let shape = settings.shape;
        let there = Way::open(settings.port, from, to, shape, settings.seed, sleeper)?;
        let unlimited = Shape { rate_bps: None, loss: 0.0, ..shape };
        let back = || Way::open(settings.port, to, from, unlimited, settings.seed, sleeper);
        let back = if settings.both { Some(back()?) } else { None };
        Ok(Self { there, back, rests: shape.delay_ns >= RESTFUL_DELAY_NS, sleeper })
    }

    /// Lets frames pass until `stop` is set.
    pub fn run(self, stop: &AtomicBool) -> Result<Work, Failure> {
        let Self { mut there, mut back, rests, sleeper } = self;
        let port = there.port();
        let mut lateness = Histogram::new();
        let (start_ns, cpu_start_ns) = (OsClock::Monotonic.now_ns(), OsClock::ThreadCpu.now_ns());
        while !stop.load(Ordering::Relaxed) {
            let (mut more, mut next_ns) = (false, None);
            for way in std::iter::once(&mut there).chain(&mut back) {
                more |= way.take();
                next_ns = way.let_go(&mut lateness)?.into_iter().chain(next_ns).min();
            }
            if !more && rests {
                rest(next_ns, sleeper);
            }
        }
        Ok(Work {
            port,
            there: there.passed()?,
            back: back.map(Way::passed).transpose()?,
            lateness,
            elapsed_ns: OsClock::Monotonic.now_ns() - start_ns,
            cpu_ns: OsClock::ThreadCpu.now_ns() - cpu_start_ns,
        })
    }
}

/// Waits for the next frame that is due, precisely, or for a while.
fn rest(next_ns: Option<u64>, sleeper: &Sleeper<'_>) {
    match next_ns {
        Some(next_ns) if next_ns <= OsClock::Monotonic.now_ns() + APPROACH_NS => {
            // When it ends early, the loop waits on.
            let _ = sleeper.sleep_until(next_ns as i64);
        }
        _ => thread::sleep(REST),
    }
}
