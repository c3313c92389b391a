//! The end of a path that stamps what an estimator of bandwidth sends.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bandwidth::control::listener::{Event, Listener, Settings};
use bandwidth::control::token::Token;
use bandwidth::pacing::placement::Placement;
use bandwidth::udp::receiving::Stamps;
use hptime::OsClock;
use serde::{Deserialize, Serialize};

use super::Load;
use super::threads::Worker;
use crate::failure::Failure;
use crate::parameters::{Int, Parsed};

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    address: Parsed<IpAddr>,
    port: Int<1, 65_535>,
    token: Parsed<Token>,
}

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
    /// Packets ignored: of others, of no session, of one that is over.
    foreign_packets: u64,
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

impl Load for BandwidthListener {
    const NAME: &'static str = "bandwidth_listener";
    type Parameters = Asked;
    type Work = ListenerWork;

    /// Opens the port; it listens when this returns.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let listener = Listener::bind(Settings {
            address: asked.address.0,
            port: asked.port.0 as u16,
            secret: Some(asked.token.0),
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

    fn halt(&mut self) {
        self.worker.stop();
    }

    fn finish(self) -> ListenerWork {
        let error = self.worker.join().err();
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed_ns = OsClock::Monotonic.now_ns().saturating_sub(self.started_ns);
        ListenerWork { counts, elapsed_ns, error }
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
            counts.foreign_packets += closed.ignored.total();
            counts.overflowed += closed.overflowed;
        }
    }
}
