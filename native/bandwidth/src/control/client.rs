//! The sender's end of a session.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use failure::Failure;
use serde_bytes::ByteBuf;

use crate::control::channel::Channel;
use crate::control::message::{Answer, Refusal, Report, Request};
use crate::control::token::Token;
use crate::control::{PROTOCOL, TOOL_VERSION};

/// How long a connection may take, and each answer beside what it waits for itself.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long the end of a stream may be on its way to the listener: it waits in the same queues as the stream.
const LONGEST_QUEUE: Duration = Duration::from_secs(30);

/// How long the listener may take to end a session.
const FAREWELL: Duration = Duration::from_secs(1);

/// Whom to converse with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name or address.
    pub host: String,
    /// Port of TCP, and of UDP.
    pub port: u16,
    /// The listener's secret, where it has one.
    pub secret: Option<Token>,
    /// Set by whoever wants an end.
    pub cancel: Arc<AtomicBool>,
}

/// An open session.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    peer: SocketAddr,
    cancel: Arc<AtomicBool>,
    /// What every probe must hold.
    pub token: Token,
    /// Version of the listener's program.
    pub listener_version: String,
    /// Why the listener's kernel does not stamp probes; `None` where it does.
    pub no_kernel_stamps: Option<String>,
    /// The listener's memory for probes that it has not read yet.
    pub buffer_bytes: u64,
    /// How long the other end took to answer, at least.
    pub round_trip: Duration,
}

impl Session {
    /// Connects, and exchanges versions and tokens.
    ///
    /// # Errors
    /// [`Failure::PeerLost`] when nobody answers, [`Failure::Protocol`] when it is somebody else or another version,
    /// [`Failure::Invalid`] for a wrong secret, [`Failure::Unsupported`] when the listener is busy or not able.
    pub fn open(settings: &Settings) -> Result<Self, Failure> {
        let (stream, peer) = connect(settings)?;
        let mut channel =
            Channel::over(stream).map_err(|error| Failure::os("preparing the connection to the listener", error))?;
        let hello = Request::Hello {
            protocol: PROTOCOL,
            tool_version: TOOL_VERSION.into(),
            secret: settings.secret.map(|secret| ByteBuf::from(secret.bytes())),
        };
        let begin = Instant::now();
        let answer = channel
            .send(&hello, PATIENCE, &settings.cancel)
            .and_then(|()| channel.receive(PATIENCE, &settings.cancel))
            .map_err(|failure| at_greeting(peer, failure))?;
        let round_trip = begin.elapsed();
        match answer {
            Answer::Welcome { protocol, tool_version, token, no_kernel_stamps, buffer_bytes }
                if protocol == PROTOCOL =>
            {
                let token = Token::try_from(token.as_slice())?;
                let (listener_version, cancel) = (tool_version, Arc::clone(&settings.cancel));
                Ok(Self { channel, peer, cancel, token, listener_version, no_kernel_stamps, buffer_bytes, round_trip })
            }
            Answer::Refused { protocol, tool_version, reason, message } => {
                Err(refused(peer, protocol, &tool_version, reason, &message))
            }
            Answer::Welcome { protocol, tool_version, .. } => {
                Err(refused(peer, protocol, &tool_version, Refusal::Version, ""))
            }
            _ => Err(Failure::Protocol(format!("the listener at {peer} answered a greeting with something else"))),
        }
    }

    /// The listener: the only address that probes are sent to.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Our own address on the way there.
    pub fn local(&self) -> Result<SocketAddr, Failure> {
        let local = self.channel.stream().local_addr();
        local.map_err(|error| Failure::os("asking for the connection's own address", error))
    }

    /// Announces a stream, and waits until the listener is prepared for it.
    pub fn announce(
        &mut self,
        stream: u32,
        packets: u32,
        payload_bytes: u32,
        in_bursts: bool,
        count_only: bool,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let answer = self.ask(&Request::Stream { stream, packets, payload_bytes, in_bursts, count_only }, PATIENCE)?;
        // The welcome may have taken the listener some time.
        self.round_trip = self.round_trip.min(begin.elapsed());
        match answer {
            Answer::Armed { stream: armed } if armed == stream => Ok(()),
            answer => Err(self.unexpected(answer)),
        }
    }

    /// Says that all has been sent, and asks what came.
    pub fn collect(&mut self, stream: u32, packets: u32, quiet: Duration) -> Result<Report, Failure> {
        let sent = Request::Sent { packets, quiet_ms: quiet.as_millis().min(u128::from(u32::MAX)) as u32 };
        match self.ask(&sent, LONGEST_QUEUE + 2 * quiet)? {
            Answer::Report(report) if report.stream == stream => Ok(report),
            answer => Err(self.unexpected(answer)),
        }
    }

    /// Says that no more will come, and waits until the listener closes the connection, for a second at most: then it is
    /// free for the next sender.
    pub fn close(mut self) {
        let end = Instant::now() + FAREWELL;
        let left = || end.saturating_duration_since(Instant::now());
        // Whoever is gone already need not hear it.
        if self.channel.send(&Request::Bye, left(), &self.cancel).is_ok() {
            while self.channel.receive::<Answer>(left(), &self.cancel).is_ok() {}
        }
    }

    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Answer, Failure> {
        let peer = self.peer;
        self.channel.send(request, PATIENCE, &self.cancel).map_err(|failure| lost(peer, failure, PATIENCE))?;
        self.channel.receive(limit, &self.cancel).map_err(|failure| lost(peer, failure, limit))
    }

    fn unexpected(&self, answer: Answer) -> Failure {
        let peer = self.peer;
        match answer {
            Answer::Error { message } => {
                Failure::Protocol(format!("the listener at {peer} ended the session: {message}"))
            }
            _ => Failure::Protocol(format!("the listener at {peer} answered out of turn; restart it")),
        }
    }
}

fn connect(settings: &Settings) -> Result<(TcpStream, SocketAddr), Failure> {
    let Settings { host, port, .. } = settings;
    let addresses = (host.as_str(), *port).to_socket_addrs().map_err(|error| {
        Failure::PeerLost(format!("{host:?} is no known host ({error}); give its address, such as 192.0.2.1"))
    })?;
    let mut failed = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => failed = Some((address, error)),
        }
    }
    Err(failed.map_or_else(
        || Failure::PeerLost(format!("{host:?} has no address")),
        |(address, error)| not_reached(address, error),
    ))
}

fn not_reached(address: SocketAddr, error: io::Error) -> Failure {
    let port = address.port();
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Failure::PeerLost(format!(
            "nothing listens at {address}; start `virtgauge bandwidth listen --port {port}` on that machine"
        )),
        io::ErrorKind::TimedOut => Failure::PeerLost(format!(
            "{address} did not answer within {} s; check the address, and that no firewall drops TCP and UDP to port {port}",
            PATIENCE.as_secs()
        )),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Failure::PeerLost(format!(
            "there is no way to {address} ({error}); check the address, the routes, and that the interface is up"
        )),
        _ => Failure::os(format!("connecting to {address}"), error),
    }
}

/// What went wrong before the welcome.
fn at_greeting(peer: SocketAddr, failure: Failure) -> Failure {
    match failure {
        Failure::Protocol(_) => {
            Failure::Protocol(format!("what listens at {peer} is no `virtgauge bandwidth listen`; check the port"))
        }
        Failure::PeerLost(_) => Failure::Protocol(format!(
            "what listens at {peer} closed the connection instead of greeting; check that it is \
             `virtgauge bandwidth listen`, and start it anew"
        )),
        Failure::NoAnswer(_) => Failure::PeerLost(format!(
            "{peer} took the connection and did not greet within {} s; check that it is `virtgauge bandwidth listen`",
            PATIENCE.as_secs()
        )),
        failure => lost(peer, failure, PATIENCE),
    }
}

/// What went wrong in an open session, where the listener had so long to answer.
fn lost(peer: SocketAddr, failure: Failure, limit: Duration) -> Failure {
    match failure {
        Failure::PeerLost(_) => Failure::PeerLost(format!(
            "the listener at {peer} vanished; see there why it ended, start it anew, and repeat the estimate"
        )),
        Failure::NoAnswer(_) => Failure::PeerLost(format!(
            "the listener at {peer} fell silent for {:.0} s; check that its machine runs and is still connected",
            limit.as_secs_f64()
        )),
        Failure::Protocol(what) => {
            Failure::Protocol(format!("the listener at {peer} said what is no message ({what}); restart it"))
        }
        Failure::Os { error, .. } if error.kind() == io::ErrorKind::TimedOut => Failure::PeerLost(format!(
            "the listener at {peer} no longer answers; check that its machine is still connected"
        )),
        Failure::Os { error, .. } => Failure::os(format!("conversing with the listener at {peer}"), error),
        other => other,
    }
}

fn refused(peer: SocketAddr, protocol: u32, version: &str, reason: Refusal, message: &str) -> Failure {
    match reason {
        Refusal::Version => Failure::Protocol(format!(
            "the listener at {peer} is version {version} (protocol {protocol}), and this is version {TOOL_VERSION} \
             (protocol {PROTOCOL}); install the same version on both machines"
        )),
        Refusal::Secret => Failure::Invalid(format!(
            "the listener at {peer} asks for a token, and this is not it; give the one that it was started with (--token)"
        )),
        Refusal::Busy => Failure::Unsupported(format!(
            "the listener at {peer} serves another sender ({message}); wait until it is free, or start another on another port"
        )),
        Refusal::Machine => Failure::Unsupported(format!("the listener at {peer} cannot receive probes: {message}")),
    }
}
