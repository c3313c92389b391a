//! Takes probes from a socket, many at a time, with the kernel's time of arrival.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use failure::Failure;
use packets::kernel::{messages_of, realtime_lead_ns};

use crate::control::channel;
use crate::control::message::{BY_PROGRAM, COALESCED, Ignored, Report};
use crate::control::token::Token;
use crate::pacing::timing::ClockChoice;
use crate::udp::packet;
use crate::udp::recorder::{Expected, Recorder};
use crate::udp::socket::{self, Beside, CONTROL_BYTES};

/// Packets taken at a time where each comes by itself: only their heads are copied.
const SINGLE: usize = 256;

/// The same where many come in one piece.
const PIECES: usize = 16;

/// Longest piece: of so many bytes is an IP packet's length.
const PIECE_BYTES: usize = 65_536;

/// Batches after which the caller looks at other things, too.
const BATCHES: usize = 64;

/// Memory in which probes may lie for a while: those of a few milliseconds at 10 Gbit/s.
const ROOMY_BYTES: u64 = 8 << 20;

/// How long the kernel may take until it stamps packets.
const STAMPED_WITHIN: Duration = Duration::from_secs(1);

/// How long a packet to this program itself may take.
const OWN_PACKET: Duration = Duration::from_millis(50);

/// Who stamps probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// The kernel, when the driver hands them over; where it cannot, this program, by the system's clock.
    Kernel,
    /// This program, after it has read them, by this clock.
    Program(ClockChoice),
}

/// The listener's socket for one session.
pub struct Receiver {
    socket: UdpSocket,
    peer: IpAddr,
    recorder: Recorder,
    program_clock: ClockChoice,
    no_kernel_stamps: Option<String>,
    buffer_bytes: u64,
    single: Batch,
    pieces: Option<Batch>,
    in_pieces: bool,
    /// What the real-time clock was ahead of the monotonic one when the stream began.
    lead_ns: i64,
    dropped_before: Option<u32>,
}

impl Receiver {
    /// Opens a socket that takes the probes of one session, from one address.
    pub fn open(address: SocketAddr, token: Token, peer: IpAddr, stamps: Stamps) -> Result<Self, Failure> {
        let socket = socket::bind(address)?;
        let attempt = "preparing the socket for probes";
        socket.set_nonblocking(true).map_err(|error| Failure::os(attempt, error))?;
        let buffer_bytes = socket::enlarge(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
            .map_err(|error| Failure::os(attempt, error))?;
        let (program_clock, no_kernel_stamps) = match stamps {
            Stamps::Kernel => (ClockChoice::System, stamp_by_kernel(&socket).err()),
            Stamps::Program(clock) => (clock, Some("the listener was told to stamp probes itself".into())),
        };
        Ok(Self {
            socket,
            peer,
            recorder: Recorder::new(token),
            program_clock,
            no_kernel_stamps,
            buffer_bytes,
            single: Batch::new(SINGLE, packet::HEAD),
            pieces: None,
            in_pieces: false,
            lead_ns: 0,
            dropped_before: None,
        })
    }

    /// Why the kernel does not stamp probes; `None` where it does.
    #[must_use]
    pub fn no_kernel_stamps(&self) -> Option<&str> {
        self.no_kernel_stamps.as_deref()
    }

    /// Memory for probes that have not been read yet, as the kernel counts it.
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }

    /// Whether probes may lie for a while: the kernel has stamped them, and there is room.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        self.no_kernel_stamps.is_none() && self.buffer_bytes >= ROOMY_BYTES
    }

    /// Everything that was ignored since the session began.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.recorder.ignored()
    }

    /// Whether a stream is under way.
    #[must_use]
    pub fn expects(&self) -> bool {
        self.recorder.expects()
    }

    /// Different probes of this stream so far, or all where they are only counted.
    #[must_use]
    pub fn received(&self) -> u32 {
        self.recorder.received()
    }

    /// Begins with a stream.  Probes that leave in bursts may be taken in pieces, many by one system call.
    pub fn expect(&mut self, expected: &Expected, in_bursts: bool) -> Result<(), Failure> {
        // What came before is nobody's, and must not be taken for the stream's.
        self.drain()?;
        self.recorder.expect(expected)?;
        let gro = i32::from(in_bursts);
        // A kernel without it hands over one packet at a time: slower, and no less right.
        self.in_pieces = socket::set(&self.socket, libc::SOL_UDP, libc::UDP_GRO, &gro).is_ok() && in_bursts;
        if self.in_pieces && self.pieces.is_none() {
            self.pieces = Some(Batch::new(PIECES, PIECE_BYTES));
        }
        self.lead_ns = realtime_lead_ns();
        self.dropped_before = socket::dropped(&self.socket);
        Ok(())
    }

    /// Takes what has come, without waiting; how many probes the stream was waiting for.
    pub fn drain(&mut self) -> Result<u32, Failure> {
        let mut taken = 0;
        for _ in 0..BATCHES {
            // A piece that was on its way when the kernel was told to make no more would not fit among the heads.
            let batch = match &mut self.pieces {
                Some(pieces) if self.in_pieces => pieces,
                _ => &mut self.single,
            };
            let messages = batch.receive(&self.socket)?;
            let program_ns = in_monotonic(self.program_clock, self.lead_ns);
            for index in 0..messages {
                let (sender, payload, length, beside) = batch.message(index);
                if sender != Some(self.peer) {
                    self.recorder.ignore_stranger();
                    continue;
                }
                let (at_ns, flags) = match beside.realtime_ns {
                    Some(realtime_ns) if self.no_kernel_stamps.is_none() => (realtime_ns - self.lead_ns, 0),
                    _ => (program_ns, BY_PROGRAM),
                };
                match beside.piece_bytes {
                    Some(piece_bytes) if piece_bytes > 0 && piece_bytes < length => {
                        for (number, piece) in payload.chunks(piece_bytes).enumerate() {
                            let coalesced = if number > 0 { COALESCED } else { 0 };
                            taken += u32::from(self.recorder.observe(piece, piece.len(), at_ns, flags | coalesced));
                        }
                    }
                    _ => taken += u32::from(self.recorder.observe(payload, length, at_ns, flags)),
                }
            }
            if messages < batch.messages.len() {
                break;
            }
        }
        Ok(taken)
    }

    /// Ends the stream: what came of it.
    pub fn report(&mut self) -> Result<Report, Failure> {
        let finished = self.recorder.finish();
        let mut report = finished.ok_or_else(|| Failure::Protocol("there is no stream to report".into()))?;
        report.stepped_ns = socket::step_ns(self.lead_ns, realtime_lead_ns());
        report.resolution_ns = if self.no_kernel_stamps.is_none() { 1 } else { self.program_clock.resolution_ns() };
        let dropped = socket::dropped(&self.socket).zip(self.dropped_before);
        report.overflowed = dropped.map_or(0, |(now, before)| now.wrapping_sub(before));
        Ok(report)
    }
}

impl AsRawFd for Receiver {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// A clock's time on the scale of the monotonic one.
fn in_monotonic(clock: ClockChoice, lead_ns: i64) -> i64 {
    clock.now_ns() - if clock.is_realtime() { lead_ns } else { 0 }
}

/// Has the kernel stamp packets, and waits until it does: Linux begins some time after the first socket has asked for it,
/// and there are systems that promise it and never do.
fn stamp_by_kernel(socket: &UdpSocket) -> Result<(), String> {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    let set = socket::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags);
    set.map_err(|error| format!("this kernel stamps no packets (SO_TIMESTAMPING: {error})"))?;
    let begin = Instant::now();
    while begin.elapsed() < STAMPED_WITHIN {
        match own_packet_is_stamped(socket) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => return Err(format!("a packet to this program itself cannot be sent ({error})")),
        }
    }
    Err("this kernel takes the wish that it stamp packets, and stamps none".into())
}

/// Sends a packet to the socket itself; whether the next that comes is stamped.
fn own_packet_is_stamped(socket: &UdpSocket) -> io::Result<bool> {
    let own = socket.local_addr()?;
    UdpSocket::bind(SocketAddr::new(own.ip(), 0))?.send_to(&[0], own)?;
    channel::ready(&mut [(socket.as_raw_fd(), libc::POLLIN)], OWN_PACKET)?;
    let mut batch = Batch::new(1, packet::HEAD);
    let stamped = batch.receive(socket).is_ok_and(|received| received == 1) && batch.message(0).3.realtime_ns.is_some();
    if !stamped {
        thread::sleep(OWN_PACKET / 10);
    }
    Ok(stamped)
}

/// Memory for many messages, and the kernel's description of it.
struct Batch {
    payloads: Vec<u8>,
    payload_bytes: usize,
    // The messages lead to these and to the payloads.  None of them grows, so that their memory stays where it is.
    _vectors: Vec<libc::iovec>,
    addresses: Vec<libc::sockaddr_storage>,
    _controls: Vec<[u64; CONTROL_BYTES / 8]>,
    messages: Vec<libc::mmsghdr>,
}

impl Batch {
    fn new(count: usize, payload_bytes: usize) -> Self {
        let mut payloads = vec![0u8; count * payload_bytes];
        let mut vectors: Vec<libc::iovec> = payloads
            .chunks_mut(payload_bytes)
            .map(|payload| libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload_bytes })
            .collect();
        // SAFETY: addresses are plain integers, for which zero is a value.
        let mut addresses: Vec<libc::sockaddr_storage> = vec![unsafe { std::mem::zeroed() }; count];
        let mut controls = vec![[0u64; CONTROL_BYTES / 8]; count];
        let mut messages = messages_of(&mut vectors);
        for ((message, address), control) in messages.iter_mut().zip(&mut addresses).zip(&mut controls) {
            message.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
        }
        Self { payloads, payload_bytes, _vectors: vectors, addresses, _controls: controls, messages }
    }

    /// Takes messages that have come; how many.
    fn receive(&mut self, socket: &UdpSocket) -> Result<usize, Failure> {
        for message in &mut self.messages {
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            message.msg_hdr.msg_controllen = CONTROL_BYTES;
        }
        // With MSG_TRUNC, the lengths are those of the packets and not of the memory.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: fills the memory that the messages lead to, within its bounds.
        let received = unsafe {
            let messages = self.messages.as_mut_ptr();
            libc::recvmmsg(socket.as_raw_fd(), messages, self.messages.len() as u32, flags as _, std::ptr::null_mut())
        };
        if received >= 0 {
            return Ok(received as usize);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(Failure::os("taking probes from their socket", error)),
        }
    }

    /// One of the messages received: who sent it, its beginning, its length, and what the kernel says beside it.
    fn message(&self, index: usize) -> (Option<IpAddr>, &[u8], usize, Beside) {
        let message = &self.messages[index];
        let length = message.msg_len as usize;
        let begin = index * self.payload_bytes;
        let payload = &self.payloads[begin..begin + length.min(self.payload_bytes)];
        // SAFETY: the kernel has just filled this message's control memory.
        let beside = unsafe { Beside::of(&message.msg_hdr) };
        (address_in(&self.addresses[index]), payload, length, beside)
    }
}

/// The address in what the kernel wrote as one.
fn address_in(storage: &libc::sockaddr_storage) -> Option<IpAddr> {
    let address = std::ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: its family says what it is, and there is room for every kind.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read() };
            Some(IpAddr::V4(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes())))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read() };
            Some(IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}
