//! A link of a known rate, delay and loss on the path of a trial.

use packets::emulator::line::Shape;
use packets::emulator::{Emulator, Passed, Settings, Work as Emulated};
use packets::port::Choice;
use serde::Serialize;

use super::worker::Worker;
use super::{Load, Work};
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::precise;
use crate::probes::bandwidth::placement;
use crate::probes::distribution::Summary;

/// Longest delay: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Largest queue.
const MOST_BYTES: u64 = 1 << 32;

/// Longest name of an interface.
const LONGEST_NAME: usize = 15;

/// A link that frames pass.
#[derive(Debug)]
pub struct LinkEmulator(Worker<Emulated>);

/// What a link did.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct LinkEmulatorWork {
    /// How frames were taken from the first interface.
    port: Option<&'static str>,
    #[serde(flatten)]
    there: PassedOnWire,
    back: Option<PassedOnWire>,
    lateness: Option<Lateness>,
    elapsed_ns: u64,
    cpu_ns: u64,
    /// Why it ended before it was told to; nothing is known of what it had done then.
    error: Option<String>,
}

/// What became of the frames of one direction.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct PassedOnWire {
    forwarded: u64,
    bytes: u64,
    dropped_queue: u64,
    dropped_loss: u64,
    dropped_offloaded: u64,
    missed: u64,
    refused: u64,
    abandoned: u64,
}

/// How late frames were let go.
#[derive(Debug, PartialEq, Serialize)]
struct Lateness {
    p50_ns: u64,
    p99_ns: u64,
    #[serde(flatten)]
    distribution: Summary,
}

impl From<Passed> for PassedOnWire {
    fn from(passed: Passed) -> Self {
        let Passed { forwarded, bytes, dropped_queue, dropped_loss, dropped_offloaded, missed, refused, abandoned } =
            passed;
        Self { forwarded, bytes, dropped_queue, dropped_loss, dropped_offloaded, missed, refused, abandoned }
    }
}

impl LinkEmulator {
    /// Opens the interfaces; frames pass when this returns.
    pub fn start(parameters: &Parameters) -> Result<Self, Failure> {
        let settings = Settings {
            port: Choice::Auto,
            from: parameters.text("from", LONGEST_NAME)?.to_owned(),
            to: parameters.text("to", LONGEST_NAME)?.to_owned(),
            shape: Shape {
                rate_bps: parameters.optional_real("rate_bps", 1e3..=1e12)?,
                delay_ns: parameters.unsigned("delay_ns", 0..=LONGEST_NS)?,
                loss: parameters.real("loss", 0.0..=1.0)?,
                queue_bytes: parameters.unsigned("queue_bytes", 1..=MOST_BYTES)?,
            },
            both: parameters.truth("both")?,
            seed: parameters.unsigned("seed", 0..=u64::MAX)?,
        };
        let placement = placement(parameters)?;
        precise::CLOCK.settle();
        let emulator = Emulator::open(&settings, &precise::ADAPTIVE)?;
        Worker::start("link-emulator", placement, move |stop| Ok(emulator.run(stop)?)).map(Self)
    }
}

impl Load for LinkEmulator {
    fn halt(&mut self) {
        self.0.stop();
    }

    fn finish(self: Box<Self>) -> Work {
        Work::LinkEmulator(Box::new(match self.0.join() {
            Ok(work) => LinkEmulatorWork::from(work),
            Err(error) => LinkEmulatorWork { error: Some(error), ..LinkEmulatorWork::default() },
        }))
    }
}

impl From<Emulated> for LinkEmulatorWork {
    fn from(work: Emulated) -> Self {
        let quantile = |share| work.lateness.quantile(share).unwrap_or_default();
        let (p50_ns, p99_ns) = (quantile(0.5), quantile(0.99));
        Self {
            port: Some(work.port.name()),
            there: work.there.into(),
            back: work.back.map(Into::into),
            lateness: Summary::of(&work.lateness, "ns").map(|distribution| Lateness { p50_ns, p99_ns, distribution }),
            elapsed_ns: work.elapsed_ns,
            cpu_ns: work.cpu_ns,
            error: None,
        }
    }
}
