//! Cross traffic on a path whose bandwidth is estimated.

use bandwidth::cross_traffic::{CrossTraffic, Kind, Settings, Work as Sent};
use serde::Serialize;

use super::worker::Worker;
use super::{Load, Work};
use crate::failure::Failure;
use crate::parameters::Parameters;
use crate::probes;

/// Longest text of a parameter.
const LONGEST_TEXT: usize = 64;

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

impl CrossTrafficLoad {
    /// Opens a socket and begins to send.
    pub fn start(parameters: &Parameters) -> Result<Self, Failure> {
        let destination = parameters.text("destination", LONGEST_TEXT)?;
        let traffic = CrossTraffic::open(Settings {
            destination: destination.parse().map_err(|_| {
                Failure::bad_request(format!(
                    "params.destination is {destination:?}; accepted: address and port, such as \"10.0.0.1:9\""
                ))
            })?,
            rate_bps: parameters.real("rate_bps", 1e3..=1e12)?,
            packet_bytes: parameters.unsigned("packet_bytes", 64..=9000)? as u32,
            kind: parameters.choice("kind", &Kind::NAMES)?,
            seed: parameters.unsigned("seed", 0..=u64::MAX)?,
        })?;
        let placement = probes::bandwidth::placement(parameters)?;
        Worker::start("cross-traffic", placement, move |stop| traffic.send(None, stop)).map(Self)
    }
}

impl Load for CrossTrafficLoad {
    fn halt(&mut self) {
        self.0.stop();
    }

    fn finish(self: Box<Self>) -> Work {
        let (sent, error) = match self.0.join() {
            Ok(sent) => (sent, None),
            Err(error) => (Sent::default(), Some(error)),
        };
        Work::CrossTraffic(CrossTrafficWork { sent, error })
    }
}
