//! The end of a path that stamps what an estimator of bandwidth sends.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bandwidth::control::listener::{Event, Listener, Settings};
use bandwidth::pacing::placement::Placement;
use bandwidth::udp::receiving::Stamps;
use hptime::OsClock;
use serde::Serialize;

use super::worker::Worker;
use super::{Load, Work};
use crate::failure::Failure;
use crate::parameters::Parameters;

/// Longest text of a parameter.
const LONGEST_TEXT: usize = 64;

/// A listener that runs.
#[derive(Debug)]
pub struct BandwidthListener {
    worker: Worker<()>,
    counts: Arc<Mutex<Counts>>,
    started_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    sessions: u64,
    streams: u64,
    /// Probes received.
    packets: u64,
    /// Packets ignored: of strangers, of no session, of one that is over.
    strangers: u64,
    /// Probes that this machine's kernel dropped because they were not read in time.
    overflowed: u64,
    /// Connections that were not let in.
    refused: u64,
}

/// What a listener did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerWork {
    #[serde(flatten)]
    counts: Counts,
    elapsed_ns: u64,
    /// Why it ended before it was told to.
    error: Option<String>,
}

impl BandwidthListener {
    /// Opens the port; it listens when this returns.
    pub fn start(parameters: &Parameters) -> Result<Self, Failure> {
        let address = parameters.text("address", LONGEST_TEXT)?;
        let address: IpAddr = address.parse().map_err(|_| {
            Failure::bad_request(format!("params.address is {address:?}; accepted: such as \"10.0.0.1\""))
        })?;
        let listener = Listener::bind(Settings {
            address,
            port: parameters.unsigned("port", 1..=65535)? as u16,
            secret: Some(parameters.text("token", LONGEST_TEXT)?.parse()?),
            stamps: Stamps::Kernel,
            placement: Placement::default(),
            sessions: None,
        })?;
        let counts = Arc::<Mutex<Counts>>::default();
        let counted = Arc::clone(&counts);
        let worker = Worker::start("bandwidth-listener", Placement::default(), move |stop| {
            listener.serve(stop, &|event| count(&counted, event))
        })?;
        Ok(Self { worker, counts, started_ns: OsClock::Monotonic.now_ns() })
    }
}

fn count(counts: &Mutex<Counts>, event: &Event) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    match event {
        Event::Listening { .. } => {}
        Event::Refused { .. } => counts.refused += 1,
        Event::Opened { .. } => counts.sessions += 1,
        Event::Closed(closed) => {
            counts.streams += closed.streams;
            counts.packets += closed.packets;
            counts.strangers += closed.ignored.total();
            counts.overflowed += closed.overflowed;
        }
    }
}

impl Load for BandwidthListener {
    fn halt(&mut self) {
        self.worker.stop();
    }

    fn finish(self: Box<Self>) -> Work {
        let error = self.worker.join().err();
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed_ns = OsClock::Monotonic.now_ns().saturating_sub(self.started_ns);
        Work::BandwidthListener(ListenerWork { counts, elapsed_ns, error })
    }
}
