//! A link of a known rate, delay and loss on the path of a trial.

use packets::emulator::line::Shape;
use packets::emulator::{Emulator, Passed, Settings, Work as Emulated};
use serde::{Deserialize, Serialize};

use super::Load;
use super::threads::Worker;
use crate::distribution::Summary;
use crate::failure::Failure;
use crate::parameters::{Bps, Cpu, Fifo, Int, Real, Seed, Text, placement};
use crate::precise;

/// Longest delay: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Largest queue.
const MOST_BYTES: u64 = 1 << 32;

/// Longest name of an interface.
const LONGEST_NAME: usize = 15;

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    from: Text<LONGEST_NAME>,
    to: Text<LONGEST_NAME>,
    rate_bps: Option<Bps>,
    delay_ns: Int<0, LONGEST_NS>,
    loss: Real<0, 1>,
    queue_bytes: Int<1, MOST_BYTES>,
    both: bool,
    cpu: Option<Cpu>,
    fifo: Option<Fifo>,
    seed: Seed,
}

/// A link that frames pass.
#[derive(Debug)]
pub struct LinkEmulator(Worker<Emulated>);

/// What a link did.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct LinkEmulatorWork {
    /// How frames were taken from the first interface.
    port: Option<&'static str>,
    #[serde(flatten)]
    there: Passed,
    back: Option<Passed>,
    lateness: Option<Lateness>,
    elapsed_ns: u64,
    cpu_ns: u64,
    /// Why it ended before it was told to; nothing is known of what it had done then.
    error: Option<String>,
}

/// How late frames were let go.
#[derive(Debug, PartialEq, Serialize)]
struct Lateness {
    p50_ns: u64,
    p99_ns: u64,
    #[serde(flatten)]
    distribution: Summary,
}

impl Load for LinkEmulator {
    const NAME: &'static str = "link_emulator";
    type Parameters = Asked;
    type Work = LinkEmulatorWork;

    /// Opens the interfaces; frames pass when this returns.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let settings = Settings {
            port: None,
            from: asked.from.0,
            to: asked.to.0,
            shape: Shape {
                rate_bps: asked.rate_bps.map(|rate| rate.0),
                delay_ns: asked.delay_ns.0,
                loss: asked.loss.0,
                queue_bytes: asked.queue_bytes.0,
            },
            both: asked.both,
            seed: asked.seed.0,
        };
        let placement = placement(asked.cpu, asked.fifo);
        let emulator = Emulator::open(&settings, precise::anew())?;
        Worker::start("link-emulator", placement, move |stop| emulator.run(stop)).map(Self)
    }

    fn halt(&mut self) {
        self.0.stop();
    }

    fn finish(self) -> LinkEmulatorWork {
        match self.0.join() {
            Ok(work) => work.into(),
            Err(error) => LinkEmulatorWork { error: Some(error), ..LinkEmulatorWork::default() },
        }
    }
}

impl From<Emulated> for LinkEmulatorWork {
    fn from(work: Emulated) -> Self {
        let quantile = |share| work.lateness.quantile(share).unwrap_or_default();
        let (p50_ns, p99_ns) = (quantile(0.5), quantile(0.99));
        Self {
            port: Some(work.port.name()),
            there: work.there,
            back: work.back,
            lateness: Summary::of(&work.lateness, "ns").map(|distribution| Lateness { p50_ns, p99_ns, distribution }),
            elapsed_ns: work.elapsed_ns,
            cpu_ns: work.cpu_ns,
            error: None,
        }
    }
}
