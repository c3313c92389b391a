//! Cross traffic on a path whose bandwidth is estimated.

use std::net::SocketAddr;

use bandwidth::cross_traffic::{CrossTraffic, Kind, Settings, Work as Sent};
use serde::{Deserialize, Serialize};

use super::Load;
use super::threads::Worker;
use crate::failure::Failure;
use crate::parameters::{Bps, Cpu, Fifo, Int, Parsed, Seed, placement};

/// Its parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    destination: Parsed<SocketAddr>,
    rate_bps: Bps,
    packet_bytes: Int<64, 9000>,
    kind: Parsed<Kind>,
    cpu: Option<Cpu>,
    fifo: Option<Fifo>,
    seed: Seed,
}

/// Cross traffic that is being sent.
#[derive(Debug)]
pub struct CrossTrafficLoad(Worker<Sent>);

/// What was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrossTrafficWork {
    #[serde(flatten)]
    sent: Sent,
    /// Why it ended before it was told to; nothing is known of what it had sent then.
    error: Option<String>,
}

impl Load for CrossTrafficLoad {
    const NAME: &'static str = "cross_traffic";
    type Parameters = Asked;
    type Work = CrossTrafficWork;

    /// Opens a socket and begins to send.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let traffic = CrossTraffic::open(Settings {
            destination: asked.destination.0,
            rate_bps: asked.rate_bps.0,
            packet_bytes: asked.packet_bytes.0 as u32,
            kind: asked.kind.0,
            seed: asked.seed.0,
        })?;
        let placement = placement(asked.cpu, asked.fifo);
        Worker::start("cross-traffic", placement, move |stop| traffic.send(None, stop)).map(Self)
    }

    fn halt(&mut self) {
        self.0.stop();
    }

    fn finish(self) -> CrossTrafficWork {
        let (sent, error) = match self.0.join() {
            Ok(sent) => (sent, None),
            Err(error) => (Sent::default(), Some(error)),
        };
        CrossTrafficWork { sent, error }
    }
}
