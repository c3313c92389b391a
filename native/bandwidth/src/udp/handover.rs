//! Ways to hand probes over: one by a system call, many by one, or many as one piece that is divided further down.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::str::FromStr;

use failure::Failure;
use packets::kernel;
use serde::Serialize;

use crate::control::token::Token;
use crate::pacing::schedule::{Burst, Handover};
use crate::transport::{Sent, Stream};
use crate::udp::{packet, socket};

/// Most packets in one burst: so many pieces the kernel divides a packet into (`UDP_MAX_SEGMENTS`).
pub const MOST_BURST: u32 = 64;

/// Longest payload of one UDP packet, divided or not.
const LONGEST_PIECE: u32 = 65_507;

/// How a burst is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Each packet by `send`.
    Send,
    /// All by one `sendmmsg`.
    Sendmmsg,
    /// As one long packet that the kernel divides as late as it can (UDP generic segmentation offload).
    Gso,
}

impl Method {
    /// All, from the simplest to the fastest.
    pub const ALL: [Self; 3] = [Self::Send, Self::Sendmmsg, Self::Gso];

    /// Its name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Sendmmsg => "sendmmsg",
            Self::Gso => "gso",
        }
    }

    /// Packets of this length that one message may hold.
    #[must_use]
    pub fn packets_in_message(self, payload_bytes: u32) -> u32 {
        match self {
            Self::Gso => (LONGEST_PIECE / payload_bytes.max(1)).clamp(1, MOST_BURST),
            Self::Send | Self::Sendmmsg => 1,
        }
    }

    /// The burst by which it is fastest.
    #[must_use]
    pub fn best_burst(self, payload_bytes: u32) -> u32 {
        match self {
            Self::Send => 1,
            Self::Sendmmsg => MOST_BURST,
            Self::Gso => self.packets_in_message(payload_bytes),
        }
    }
}

impl FromStr for Method {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        Self::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| {
            Failure::Invalid(format!("there is no way of sending {name:?}: accepted are send, sendmmsg, gso"))
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A stream's probes, ready to be handed over.
pub struct Probes<'s> {
    socket: &'s UdpSocket,
    peer: SocketAddr,
    method: Method,
    payload_bytes: usize,
    /// A burst's payloads, one after the other.
    payloads: Vec<u8>,
    // The messages lead to these, and these to the payloads.  None of them grows.
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// Packets in each message.
    packets_in_message: usize,
}

impl<'s> Probes<'s> {
    /// For a stream through a connected socket.
    pub fn new(
        socket: &'s UdpSocket,
        peer: SocketAddr,
        token: &Token,
        number: u32,
        stream: &Stream,
        method: Method,
    ) -> Result<Self, Failure> {
        let payload_bytes = packet::payload_bytes(stream.packet_bytes, &peer.ip())?;
        let burst = stream.burst.min(stream.packets) as usize;
        let packets_in_message = method.packets_in_message(payload_bytes) as usize;
        let segment: i32 = if packets_in_message > 1 { payload_bytes as i32 } else { 0 };
        let divided = socket::set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
        if let (Err(error), true) = (divided, segment > 0) {
            return Err(Failure::Unsupported(format!(
                "this kernel divides no UDP packets ({error}); it takes Linux 4.18 or later: send by sendmmsg"
            )));
        }
        let payload_bytes = payload_bytes as usize;
        let mut payloads = vec![0; burst * payload_bytes];
        payloads.chunks_mut(payload_bytes).for_each(|payload| packet::fill(payload, token, number));
        let mut vectors: Vec<libc::iovec> = payloads
            .chunks_mut(packets_in_message * payload_bytes)
            .map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
            .collect();
        let messages = kernel::messages_of(&mut vectors);
        Ok(Self { socket, peer, method, payload_bytes, payloads, vectors, messages, packets_in_message })
    }

    /// Sends one packet of the burst.
    fn send_one(&self, index: usize) -> isize {
        let payload = &self.payloads[index * self.payload_bytes..][..self.payload_bytes];
        // SAFETY: reads the payload.
        unsafe { libc::send(self.socket.as_raw_fd(), payload.as_ptr().cast(), payload.len(), 0) }
    }

    /// Sends messages from one on, as many as the kernel takes at once; how many, or negative.
    fn send_many(&mut self, from: usize, to: usize) -> isize {
        let messages = &mut self.messages[from..to];
        // SAFETY: reads the messages and what they lead to, which lives as long as this value.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, 0) };
        isize::try_from(sent).unwrap_or(-1)
    }
}

impl Handover for Probes<'_> {
    #[inline]
    fn hand_over(&mut self, burst: &Burst, sent: &mut Vec<Sent>) -> Result<(), Failure> {
        let packets = burst.packets as usize;
        for (index, payload) in self.payloads.chunks_mut(self.payload_bytes).take(packets).enumerate() {
            packet::write(payload, burst.first + index as u32, burst.planned_ns, burst.actual_ns);
        }
        let messages = packets.div_ceil(self.packets_in_message);
        // Of a stream's last burst, the last message may hold fewer.
        let last_bytes = (packets - (messages - 1) * self.packets_in_message) * self.payload_bytes;
        self.vectors[messages - 1].iov_len = last_bytes;
        let mut done = 0;
        while done < messages {
            let answer = match self.method {
                Method::Send => self.send_one(done).min(1),
                Method::Sendmmsg | Method::Gso => self.send_many(done, messages),
            };
            let left = answer >= 0;
            let ended = if left {
                done + answer.max(1) as usize
            } else {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    // A queue of this host was full, and this message is lost in it.
                    Some(libc::ENOBUFS) => done + 1,
                    _ => return Err(not_sent(error, self.peer, self.payload_bytes, self.method)),
                }
            };
            let from = sent.len();
            let until = (ended * self.packets_in_message).min(packets) - done * self.packets_in_message;
            sent.resize(from + until, burst.sent(left));
            done = ended;
        }
        Ok(())
    }
}

fn not_sent(error: io::Error, peer: SocketAddr, payload_bytes: usize, method: Method) -> Failure {
    let packet_bytes = payload_bytes as u32 + packet::headers(&peer.ip());
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Failure::PeerLost(format!(
            "the listener at {peer} has closed its port; see there why it ended, start it anew, and repeat the estimate"
        )),
        Some(libc::EMSGSIZE) => Failure::Unsupported(format!(
            "the path to {peer} does not take IP packets of {packet_bytes} B in one piece; ask for shorter ones \
             (--packet-bytes), or raise the MTU of its interfaces"
        )),
        Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP) if method == Method::Gso => Failure::Unsupported(format!(
            "the interface to {peer} does not take UDP packets that are to be divided ({error}); send by sendmmsg"
        )),
        Some(libc::EPERM | libc::EACCES) => Failure::Unsupported(format!(
            "this host's packet filter does not let UDP out to {peer} ({error}); allow it, as TCP to the same port is"
        )),
        Some(libc::EAGAIN) => Failure::Unsupported(format!(
            "the interface to {peer} took no packet for {} s; check that it is up and that its queue moves",
            crate::udp::transport::SEND_PATIENCE.as_secs()
        )),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => Failure::PeerLost(format!(
            "there is no way to {peer} any more ({error}); check the interface and the route"
        )),
        _ => Failure::os(format!("sending probes to {peer}"), error),
    }
}
