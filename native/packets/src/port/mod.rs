//! Ways to put frames on an interface and to take them from one.

pub mod live_frames;
pub mod packet_socket;
pub mod xdp_socket;

use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;

use failure::Failure;
use hptime::Sleeper;

use crate::analyser::Analyser;
use crate::bpf::redirection;
use crate::bpf::system::{self, Mode};
use crate::interface;
use crate::transmission::{Stream, Transmitter};

use live_frames::LiveTransmitter;
use packet_socket::{PacketReceiver, PacketTransmitter};
use xdp_socket::{XdpReceiver, XdpTransmitter};

/// What a receiver lost itself: frames that came to the interface and that the analyser never saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverLoss {
    /// The ring to user space was full.
    pub ring_full: u64,
    /// Dropped for another reason.
    pub dropped: u64,
}

/// A frame that has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came<'a> {
    pub(crate) bytes: &'a [u8],
    /// When, by the kernel, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) at_ns: u64,
    /// It is all there: not cut off, its checksum not left to a network card, its VLAN tag not taken out.
    pub(crate) complete: bool,
}

/// Takes frames from an interface.
pub trait Receiver: Send {
    /// Hands what has come to the analyser, with the kernel's time of arrival; how many frames.  Does not wait.
    fn drain(&mut self, analyser: &mut Analyser) -> Result<usize, Failure>;

    /// What was lost since it was opened.
    fn loss(&mut self) -> Result<ReceiverLoss, Failure>;
}

/// A way to send and receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames made by an XDP program that the kernel runs; received through `AF_XDP`.
    XdpLive,
    /// `AF_XDP` sockets in copy mode.
    AfXdp,
    /// `AF_PACKET` sockets.
    AfPacket,
}

impl Kind {
    /// All, the fastest first.
    pub const ALL: [Self; 3] = [Self::XdpLive, Self::AfXdp, Self::AfPacket];

    /// Its name in plans and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::XdpLive => "xdp_live",
            Self::AfXdp => "af_xdp",
            Self::AfPacket => "af_packet",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("accepted are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The port that a trial uses.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Which it is.
    pub kind: Kind,
    /// Why each of the faster ones does not work here.
    pub reasons: Vec<(Kind, String)>,
}

pub(crate) struct Opened {
    pub(crate) transmitter: Box<dyn Transmitter>,
    pub(crate) receiver: Box<dyn Receiver>,
    pub(crate) chosen: Chosen,
}

/// Opens the chosen port, or the fastest that works, on these interfaces.
pub(crate) fn open(
    choice: Option<Kind>,
    transmit: u32,
    receive: u32,
    session: u32,
    stream: &Stream,
    sleeper: &'static Sleeper<'static>,
) -> Result<Opened, Failure> {
    let open_one = |kind| open_one(kind, transmit, receive, session, stream, sleeper);
    let mut reasons = Vec::new();
    for kind in Kind::ALL {
        match choice {
            Some(only) if only != kind => continue,
            _ => {}
        }
        match open_one(kind) {
            Ok((transmitter, receiver)) => {
                return Ok(Opened { transmitter, receiver, chosen: Chosen { kind, reasons } });
            }
            Err(failure) if choice.is_some() => return Err(failure),
            Err(failure) => reasons.push((kind, failure.to_string())),
        }
    }
    let reasons: Vec<String> = reasons.iter().map(|(kind, reason)| format!("{}: {reason}", kind.name())).collect();
    Err(Failure::Unsupported(format!("no port works here ({})", reasons.join("; "))))
}

/// Opens the sending half alone of a port.
pub(crate) fn open_transmitter(
    kind: Kind,
    transmit: u32,
    stream: &Stream,
    sleeper: &'static Sleeper<'static>,
) -> Result<Box<dyn Transmitter>, Failure> {
    Ok(match kind {
        Kind::XdpLive => Box::new(LiveTransmitter::open(transmit, stream)?),
        Kind::AfXdp => Box::new(XdpTransmitter::open(transmit, stream.length, sleeper)?),
        Kind::AfPacket => Box::new(PacketTransmitter::open(transmit, stream.length, sleeper)?),
    })
}

/// Has an XDP program drop all that comes to an interface, as long as the answer lives: the cheapest receiver there is.
pub fn drop_all(interface: &str) -> Result<OwnedFd, Failure> {
    interface::require_own_namespace()?;
    let program = redirection::load_dropping()?;
    system::attach(program.as_fd(), interface::index_of(interface)?, Mode::Driver)
}

type Ends = (Box<dyn Transmitter>, Box<dyn Receiver>);

fn open_one(
    kind: Kind,
    transmit: u32,
    receive: u32,
    session: u32,
    stream: &Stream,
    sleeper: &'static Sleeper<'static>,
) -> Result<Ends, Failure> {
    // In this order: a program on one end of a virtual pair lets the other end send live frames.
    let receiver: Box<dyn Receiver> = match kind {
        Kind::XdpLive | Kind::AfXdp => Box::new(XdpReceiver::open(receive, Some(session), xdp_socket::RECEIVING)?),
        Kind::AfPacket => Box::new(PacketReceiver::open(receive, stream.length)?),
    };
    Ok((open_transmitter(kind, transmit, stream, sleeper)?, receiver))
}
