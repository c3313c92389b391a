//! The controller's requests, decoded.
//!
//! A payload is decoded straight into its types: fields that are not asked for are skipped without being stored, lists and
//! maps have a largest length, and nesting is bounded.  Memory is therefore a small multiple of what arrived.

use std::fmt;
use std::io::Cursor;

use requests::{Cancel, Envelope, Facts, Hello, LoadStart, LoadStop, Network, Probe, Read, Run, Shutdown};
use serde::de::DeserializeOwned;

use super::bounded::{Bounded, BoundedMap, Unread, excerpt};

/// Version of the protocol.
pub const PROTOCOL: u32 = 1;

/// Deepest nesting of a payload.
pub const DEEPEST: usize = 16;

/// What the controller asks for.
#[derive(Debug, PartialEq)]
pub enum Request {
    /// The first message: which protocol, and a token to echo.
    Hello(Hello),
    /// Facts about this guest.
    Facts(Facts),
    /// Run a probe.
    Probe(Probe),
    /// Start a load.
    LoadStart(LoadStart),
    /// Stop a load.
    LoadStop(LoadStop),
    /// Configure network interfaces.
    Network(Network),
    /// Read files of the kernel's.
    Read(Read),
    /// Run a program.
    Run(Run),
    /// Cancel a probe or a program.
    Cancel(Cancel),
    /// Stop everything and exit.
    Shutdown(Shutdown),
}

pub mod requests {
    //! The fields of each request, by name.

    use serde::Deserialize;

    use super::{Bounded, BoundedMap, Unread};
    use crate::network::Interface;

    /// What every message holds.
    #[derive(Debug, Deserialize)]
    pub(super) struct Envelope {
        pub(super) seq: u64,
        #[serde(rename = "type")]
        pub(super) kind: String,
    }

    /// Fields of `hello`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Hello {
        /// Version of the protocol that the controller speaks.
        pub protocol: u32,
        /// Echoed in the answer.
        pub token: String,
        /// Folders below which files may be made.
        #[serde(default)]
        pub roots: Bounded<String>,
    }

    /// Fields of `facts`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Facts {
        /// Number of the request.
        pub id: u64,
    }

    /// Fields of `probe`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Probe {
        /// Number of the request.
        pub id: u64,
        /// Which probe.
        pub name: String,
        /// Its parameters, which it reads itself.
        pub params: Unread,
        /// A load that runs beside it, from its first sample to its last.
        #[serde(default)]
        pub load: Option<Beside>,
    }

    /// A load of a probe's own.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Beside {
        /// Which load.
        pub name: String,
        /// Its parameters, which it reads itself.
        pub params: Unread,
    }

    /// Fields of `load_start`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct LoadStart {
        /// Number of the request.
        pub id: u64,
        /// Which load.
        pub name: String,
        /// Its parameters, which it reads itself.
        pub params: Unread,
    }

    /// Fields of `load_stop`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct LoadStop {
        /// Number of the request.
        pub id: u64,
        /// The load, as `load_start` named it.
        pub load: u64,
    }

    /// Fields of `network`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Network {
        /// Number of the request.
        pub id: u64,
        /// What each named interface shall become.
        pub interfaces: Bounded<Interface>,
        /// Whether IPv4 packets are forwarded between interfaces.
        pub forwarding: bool,
    }

    /// Fields of `read`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Read {
        /// Number of the request.
        pub id: u64,
        /// Absolute, below `/proc` or `/sys`.
        pub paths: Bounded<String>,
    }

    /// Fields of `run`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Run {
        /// Number of the request.
        pub id: u64,
        /// Program and arguments.
        pub argv: Bounded<String>,
        /// Variables added to the agent's own environment.
        pub env: BoundedMap,
        /// The program is killed after this long.
        pub timeout_ms: u64,
        /// Bytes kept of each of the program's two outputs.
        pub output_limit: u64,
    }

    /// Fields of `cancel`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Cancel {
        /// Number of the request.
        pub id: u64,
        /// Number of the request to cancel.
        pub target: u64,
    }

    /// Fields of `shutdown`.
    #[derive(Debug, Deserialize, PartialEq)]
    pub struct Shutdown {
        /// Number of the request.
        pub id: u64,
    }
}

/// Why a payload is no request; ends the session.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Decodes the payload of the frame that must have this sequence number.
pub fn decode(payload: &[u8], expected_seq: u64) -> Result<Request, Violation> {
    if !payload.first().is_some_and(|&marker| matches!(marker, 0x80..=0x8f | 0xde | 0xdf)) {
        return Err(Violation("the payload is not a map".into()));
    }
    let envelope: Envelope = fields(payload, "message")?;
    if envelope.seq != expected_seq {
        return Err(Violation(format!("seq is {}, expected {expected_seq}", envelope.seq)));
    }
    let kind = envelope.kind.as_str();
    Ok(match kind {
        "hello" => Request::Hello(fields(payload, kind)?),
        "facts" => Request::Facts(fields(payload, kind)?),
        "probe" => Request::Probe(fields(payload, kind)?),
        "load_start" => Request::LoadStart(fields(payload, kind)?),
        "load_stop" => Request::LoadStop(fields(payload, kind)?),
        "network" => Request::Network(fields(payload, kind)?),
        "read" => Request::Read(fields(payload, kind)?),
        "run" => Request::Run(fields(payload, kind)?),
        "cancel" => Request::Cancel(fields(payload, kind)?),
        "shutdown" => Request::Shutdown(fields(payload, kind)?),
        unknown => return Err(Violation(format!("unknown type {:?}", excerpt(unknown)))),
    })
}

/// Decodes one map, which must fill the payload.
fn fields<T: DeserializeOwned>(payload: &[u8], kind: &str) -> Result<T, Violation> {
    let mut decoder = rmp_serde::Deserializer::new(Cursor::new(payload));
    decoder.set_max_depth(DEEPEST);
    let value =
        T::deserialize(&mut decoder).map_err(|error| Violation(format!("{kind}: {}", excerpt(&error.to_string()))))?;
    match payload.len() as u64 - decoder.position() {
        0 => Ok(value),
        rest => Err(Violation(format!("{kind}: {rest} bytes after the map"))),
    }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;
    use crate::channel::frame;
    use crate::parameters::Parameters;
    use crate::probes::{
        Probe as Measures, bandwidth::BandwidthResult, kernel::KernelResult, packet_trial::PacketTrialResult,
        sleep_lateness::SleepLateness, timer_cost::TimerCost,
    };

    /// What a probe or a load is told, as all of them read it.
    fn parameters(payload: &[u8]) {
        let given = Parameters::of_request(payload);
        let _ = given.read::<<TimerCost as Measures>::Parameters>();
        let _ = given.read::<<SleepLateness as Measures>::Parameters>();
        let _ = given.read::<<KernelResult as Measures>::Parameters>();
        let _ = given.read::<<PacketTrialResult as Measures>::Parameters>();
        let _ = given.read::<<BandwidthResult as Measures>::Parameters>();
        let _ = given.of_load_beside().read::<IgnoredAny>();
    }

    #[test]
    fn whatever_a_controller_says_is_a_request_or_a_violation() {
        fuzz::fuzz("frames", include_str!("../../../fuzz/corpus/frames.txt"), |mut stream| {
            let mut payload = Vec::new();
            for number in 0.. {
                let Ok(true) = frame::read(&mut stream, &mut payload) else { break };
                if decode(&payload, number).is_ok() {
                    parameters(&payload);
                }
            }
        });
    }
}
