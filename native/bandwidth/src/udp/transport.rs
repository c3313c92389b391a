//! The sender's end: a session, a socket, a clock and a sleep.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::time::Duration;

use failure::Failure;
use serde::Serialize;

use crate::control::client::{self, Session};
use crate::control::message::{BY_PROGRAM, COALESCED, Report};
use crate::pacing::account::Account;
use crate::pacing::placement::Placement;
use crate::pacing::schedule::{self, Transmission};
use crate::pacing::timing::Waiter;
use crate::transport::{Limits, Observation, Received, Spacing, Stamp, Stream, Transport};
use crate::udp::handover::{MOST_BURST, Method, Probes};
use crate::udp::packet;
use crate::udp::recorder::MOST_TOLD;
use crate::udp::socket;

/// How long a socket may take no packet.
pub const SEND_PATIENCE: Duration = Duration::from_secs(1);

/// How often a stream is sent again of which the listener's own machine lost packets.
const TRIES: u32 = 3;

/// Longest stream.
const LONGEST_STREAM_NS: u64 = 60_000_000_000;

/// Least wait for stragglers.
const LEAST_QUIET: Duration = Duration::from_millis(50);

/// How often an end is looked for during a rest.
const LOOK_NS: i64 = 20_000_000;

/// What handing over a burst costs where nobody has measured it, and what each of its packets costs besides.
const ASSUMED_BURST_COST_NS: u64 = 10_000;
const ASSUMED_PACKET_COST_NS: u64 = 1_000;

/// The first packets of a session, which show that probes arrive at all.
const TRIAL: Stream =
    Stream { packets: 8, packet_bytes: 128, gap_ps: 1_000_000_000, burst: 4, spacing: Spacing::Absolute };

/// How to send.
#[derive(Clone, Debug)]
pub struct Settings {
    /// With whom.
    pub listener: client::Settings,
    /// By which clock and sleep.
    pub waiter: Waiter,
    /// Where the sending thread runs.
    pub placement: Placement,
    /// How bursts are handed over; `None` for the fastest that works.  Single packets are sent by `send`.
    pub method: Option<Method>,
    /// What handing over a burst costs, and the highest rate that is paced, where somebody has measured it.
    pub pacing: Option<Pacing>,
}

/// What is known of this host's pacing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pacing {
    /// What handing over a burst costs, however few its packets.
    pub burst_cost_ns: u64,
    /// What each of its packets costs besides.
    pub packet_cost_ns: u64,
    /// The highest paced rate, in bit/s of IP packets.
    pub max_paced_bps: f64,
}

/// What a session has come to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Streams sent.
    pub streams: u64,
    /// Streams among them that were sent again, because the listener's machine lost packets itself.
    pub repeated: u64,
    /// IP packets sent.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Foreign packets that the listener ignored.
    pub foreign_packets: u64,
}

/// A path over UDP sockets.
pub struct UdpTransport {
    session: Session,
    socket: UdpSocket,
    settings: Settings,
    longest_bytes: u32,
    method: Method,
    method_reason: Option<String>,
    next: u32,
    tally: Tally,
    account: Account,
}

impl UdpTransport {
    /// Opens a session and shows by a few packets that probes arrive.  The calling thread is the one that sends.
    ///
    /// # Errors
    /// Those of [`Session::open`]; [`Failure::Unsupported`] when probes do not arrive or cannot be sent so.
    pub fn open(settings: Settings) -> Result<Self, Failure> {
        settings.placement.apply()?;
        let session = Session::open(&settings.listener)?;
        let peer = session.peer();
        let mut own = session.local()?;
        own.set_port(0);
        let socket = socket::bind(own)?;
        let attempt = |what: &'static str| move |error| Failure::os(what, error);
        // Connected: the kernel sends nowhere else, and reports when nobody is there any more.
        socket.connect(peer).map_err(attempt("connecting the socket for probes"))?;
        socket.set_write_timeout(Some(SEND_PATIENCE)).map_err(attempt("preparing the socket for probes"))?;
        socket::enlarge(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
            .map_err(attempt("preparing the socket for probes"))?;
        socket::forbid_fragments(&socket, &peer.ip()).map_err(attempt("forbidding fragments"))?;
        // Where it is not known, what is too long is refused when it is sent.
        let mtu = socket::path_mtu(&socket, &peer.ip()).unwrap_or(packet::LONGEST_BYTES);
        let mut transport = Self {
            session,
            socket,
            longest_bytes: mtu.min(packet::LONGEST_BYTES),
            method: settings.method.unwrap_or(Method::Gso),
            method_reason: None,
            settings,
            next: 1,
            tally: Tally::default(),
            account: Account::default(),
        };
        transport.try_out()?;
        Ok(transport)
    }

    /// How bursts are handed over.
    #[must_use]
    pub fn method(&self) -> Method {
        self.method
    }

    /// Why not by the fastest way; `None` where it is, or where another was asked for.
    #[must_use]
    pub fn method_reason(&self) -> Option<&str> {
        self.method_reason.as_deref()
    }

    /// The session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the session has come to so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Who stamps what comes.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        if self.session.no_kernel_stamps.is_none() { Stamp::Kernel } else { Stamp::Program }
    }

    /// How the streams of estimates kept their time so far.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Says to the listener that no more will come, and waits, for a second at most, until it is free for the next sender.
    pub fn close(self) {
        self.session.close();
    }

    /// Sends a stream by a given way, and has it only counted.
    pub fn pace(&mut self, stream: &Stream, method: Method) -> Result<(Transmission, Report), Failure> {
        self.transmit(stream, method, true)
    }

    /// Sends a few bursts by the method that was chosen; where none was and the fastest does not work here, by the next.
    fn try_out(&mut self) -> Result<(), Failure> {
        let fits = Stream { packet_bytes: TRIAL.packet_bytes.min(self.longest_bytes), ..TRIAL };
        loop {
            let failure = match self.arrives(&fits) {
                Ok(true) => return Ok(()),
                Ok(false) => self.nothing_arrives(),
                Err(failure) => failure,
            };
            match failure {
                // A system may take packets that are to be divided, and then not divide them.
                Failure::Unsupported(reason) if self.settings.method.is_none() && self.method == Method::Gso => {
                    self.method = Method::Sendmmsg;
                    self.method_reason = Some(reason);
                }
                failure => return Err(failure),
            }
        }
    }

    /// Whether anything of a stream arrives, in a few tries.
    fn arrives(&mut self, stream: &Stream) -> Result<bool, Failure> {
        for _ in 0..TRIES {
            if self.transmit(stream, self.method, false)?.1.received > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn nothing_arrives(&self) -> Failure {
        let peer = self.session.peer();
        let (port, method) = (peer.port(), self.method);
        Failure::Unsupported(format!(
            "{peer} answers over TCP, and none of the probes sent over UDP to the same port by {method} arrived there; \
             let UDP to port {port} through the firewalls on the way"
        ))
    }

    fn check(&self, stream: &Stream) -> Result<(), Failure> {
        packet::payload_bytes(stream.packet_bytes, &self.session.peer().ip())?;
        if stream.packet_bytes > self.longest_bytes {
            return Err(Failure::Unsupported(format!(
                "the path takes IP packets of at most {} B, not {}; ask for shorter ones (--packet-bytes), or raise the \
                 MTU of its interfaces",
                self.longest_bytes, stream.packet_bytes
            )));
        }
        if stream.packets == 0 || !(1..=MOST_BURST).contains(&stream.burst) {
            return Err(Failure::Invalid(format!(
                "a stream of {} packets in bursts of {}: accepted are 1 and more, in bursts of 1 to {MOST_BURST}",
                stream.packets, stream.burst
            )));
        }
        let duration_ns = u128::from(stream.packets) * u128::from(stream.gap_ps) / 1000;
        if duration_ns > u128::from(LONGEST_STREAM_NS) {
            return Err(Failure::Invalid(format!(
                "a stream of {:.0} s: the longest has {} s",
                duration_ns as f64 / 1e9,
                LONGEST_STREAM_NS / 1_000_000_000
            )));
        }
        Ok(())
    }

    fn transmit(
        &mut self,
        stream: &Stream,
        method: Method,
        count_only: bool,
    ) -> Result<(Transmission, Report), Failure> {
        self.check(stream)?;
        let number = self.next;
        self.next += 1;
        let payload_bytes = packet::payload_bytes(stream.packet_bytes, &self.session.peer().ip())?;
        self.session.announce(number, stream.packets, payload_bytes, stream.burst > 1, count_only)?;
        let (peer, token) = (self.session.peer(), self.session.token);
        let mut probes = Probes::new(&self.socket, peer, &token, number, stream, method)?;
        let cancel = &self.settings.listener.cancel;
        let transmission = schedule::transmit(stream, &self.settings.waiter, &mut probes, cancel)?;
        let left = transmission.sent.iter().filter(|sent| sent.left).count() as u32;
        let quiet = LEAST_QUIET + 2 * self.session.round_trip;
        let report = self.session.collect(number, left, quiet)?;
        self.tally.streams += 1;
        self.tally.packets += u64::from(left);
        self.tally.bytes += u64::from(left) * u64::from(stream.packet_bytes);
        self.tally.foreign_packets += report.ignored.total();
        if report.stepped_ns != 0 {
            return Err(Failure::ClockStep { clock: "the listener's real-time clock", step_ns: report.stepped_ns });
        }
        Ok((transmission, report))
    }
}

impl Transport for UdpTransport {
    fn limits(&self) -> Limits {
        let pacing = self.settings.pacing;
        Limits {
            shortest_bytes: packet::shortest(&self.session.peer().ip()),
            longest_bytes: self.longest_bytes,
            most_packets: MOST_TOLD,
            most_burst: MOST_BURST,
            burst_cost_ns: pacing.map_or(ASSUMED_BURST_COST_NS, |pacing| pacing.burst_cost_ns),
            packet_cost_ns: pacing.map_or(ASSUMED_PACKET_COST_NS, |pacing| pacing.packet_cost_ns),
            max_paced_bps: pacing.map(|pacing| pacing.max_paced_bps),
        }
    }

    fn now_ns(&mut self) -> i64 {
        self.settings.waiter.now_ns()
    }

    fn rest(&mut self, duration_ns: u64) -> Result<(), Failure> {
        let waiter = &self.settings.waiter;
        let mut left_ns = i64::try_from(duration_ns).unwrap_or(i64::MAX);
        // By what has passed and not until a moment: the clock may be set meanwhile.
        while left_ns > 0 {
            if self.settings.listener.cancel.load(Ordering::Relaxed) {
                return Err(Failure::Cancelled);
            }
            let asleep_ns = left_ns.min(LOOK_NS);
            waiter.sleep.sleep(asleep_ns);
            left_ns -= asleep_ns;
        }
        Ok(())
    }

    fn send(&mut self, stream: &Stream) -> Result<Observation, Failure> {
        if stream.packets > MOST_TOLD {
            return Err(Failure::Invalid(format!("a stream of {} packets: at most {MOST_TOLD}", stream.packets)));
        }
        let method = if stream.burst > 1 { self.method } else { Method::Send };
        let mut overflowed = 0;
        for _ in 0..TRIES {
            let (transmission, report) = self.transmit(stream, method, false)?;
            self.account.add(stream, &transmission.sent);
            let left = transmission.sent.iter().filter(|sent| sent.left).count() as u32;
            overflowed = report.overflowed;
            if overflowed == 0 || report.received >= left {
                return observation(transmission, &report);
            }
            self.tally.repeated += 1;
        }
        Err(Failure::Unsupported(format!(
            "the listener's machine itself lost {overflowed} packets of a stream, {TRIES} times: its program was not given \
             the processor in time, and the socket's memory is {} B; run the listener as root, raise net.core.rmem_max \
             there, or take other load off that machine",
            self.session.buffer_bytes
        )))
    }
}

/// What both ends saw.
fn observation(transmission: Transmission, report: &Report) -> Result<Observation, Failure> {
    let wrong = || Failure::Protocol("the listener's report contradicts itself; install the same version there".into());
    let received = report.received as usize;
    let lengths = (report.sequences.len(), report.times.len(), report.flags.len());
    if lengths != (4 * received, 8 * received, received) {
        return Err(wrong());
    }
    let entries = report.sequences.chunks_exact(4).zip(report.times.chunks_exact(8)).zip(report.flags.iter());
    let received = entries.map(|((sequence, at_ns), flags)| {
        let sequence = u32::from_le_bytes(sequence.try_into().map_err(|_| wrong())?);
        let at_ns = i64::from_le_bytes(at_ns.try_into().map_err(|_| wrong())?);
        if sequence as usize >= transmission.sent.len() {
            return Err(wrong());
        }
        let stamp = if flags & BY_PROGRAM != 0 { Stamp::Program } else { Stamp::Kernel };
        Ok(Received { sequence, at_ns, stamp, coalesced: flags & COALESCED != 0 })
    });
    let received = received.collect::<Result<Vec<_>, _>>()?;
    Ok(Observation {
        stream: transmission.stream,
        sent: transmission.sent,
        received,
        duplicates: report.duplicates,
        foreign_packets: report.ignored.total(),
        resolution_ns: report.resolution_ns,
    })
}
