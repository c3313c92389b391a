//! `AF_PACKET`: works on every interface of every kernel.
//!
//! Frames are sent by `sendmmsg` past the queueing discipline, and received through a ring of version 2, whose frames can
//! be read as they come (version 3 hands them over in blocks, half a millisecond late).

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use failure::{Failure, checked};
use hptime::Sleeper;

use crate::analyser::Analyser;
use crate::frame;
use crate::kernel::{self, Mapping};
use crate::port::{Came, Receiver, ReceiverLoss};
use crate::transmission::{Queue, Stream, Transmission, Transmitter, Watch, paced};

const SENT_AT_ONCE: usize = 32;

/// Memory of the receiving ring.
const RING_BYTES: usize = 32 << 20;

/// Memory of one block; the ring's only use of blocks is that its memory consists of them.
const BLOCK_BYTES: usize = 1 << 20;

fn socket(protocol: u16) -> Result<OwnedFd, Failure> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: makes a descriptor, which nobody else owns.
    unsafe {
        let socket =
            checked(libc::socket(libc::AF_PACKET, kind, i32::from(protocol.to_be())), "opening a packet socket")?;
        Ok(OwnedFd::from_raw_fd(socket))
    }
}

fn bind(socket: &OwnedFd, interface: u32, protocol: u16) -> Result<(), Failure> {
    // SAFETY: an address is plain integers, for which zero is a value; the call reads one address.
    let answer = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = interface as i32;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
    };
    checked(answer, "binding a packet socket to its interface").map(drop)
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T, attempt: &str) -> Result<(), Failure> {
    // SAFETY: reads one value of its size.
    let answer = unsafe {
        let value = ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, size_of::<T>() as u32)
    };
    checked(answer, attempt).map(drop)
}

/// Sends through a packet socket.
pub struct PacketTransmitter {
    socket: OwnedFd,
    sleeper: &'static Sleeper<'static>,
    buffers: Vec<Vec<u8>>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    written: usize,
}

// SAFETY: the pointers among its fields lead to its own buffers, whose memory does not move with it.
unsafe impl Send for PacketTransmitter {}

impl PacketTransmitter {
    /// Opens a socket for frames of at most this length, less the check sequence.
    pub fn open(interface: u32, length: usize, sleeper: &'static Sleeper<'static>) -> Result<Self, Failure> {
        // Protocol 0: it receives nothing.
        let socket = socket(0)?;
        bind(&socket, interface, 0)?;
        set(&socket, libc::PACKET_QDISC_BYPASS, &1i32, "bypassing the queueing discipline")?;
        let mut buffers = vec![vec![0; length]; SENT_AT_ONCE];
        let mut vectors: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| {
                frame::fill(buffer);
                libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length }
            })
            .collect();
        let messages = kernel::messages_of(&mut vectors);
        Ok(Self { socket, sleeper, buffers, vectors, messages, written: 0 })
    }
}

impl Queue for PacketTransmitter {
    const CAPACITY: usize = SENT_AT_ONCE;

    #[inline]
    fn slot(&mut self, length: usize) -> Option<&mut [u8]> {
        let buffer = self.buffers.get_mut(self.written)?;
        self.vectors[self.written].iov_len = length;
        self.written += 1;
        Some(&mut buffer[..length])
    }

    fn send(&mut self) -> Result<u64, Failure> {
        debug_assert_eq!(self.vectors.len(), self.messages.len());
        let (mut sent, mut refused) = (0, 0);
        while sent < self.written {
            let messages = &mut self.messages[sent..self.written];
            // SAFETY: the headers lead to this value's vectors and buffers.
            let answer =
                unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as u32, 0) };
            if answer > 0 {
                sent += answer as usize;
                continue;
            }
            match Failure::last("sending frames through a packet socket") {
                Failure::Os { error, .. } if error.raw_os_error() == Some(libc::EINTR) => {}
                // A queue behind the interface was full: this one frame is lost there.
                Failure::Os { error, .. } if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    sent += 1;
                    refused += 1;
                }
                failure => return Err(failure),
            }
        }
        self.written = 0;
        Ok(refused)
    }
}

impl Transmitter for PacketTransmitter {
    fn transmit(&mut self, stream: &Stream, watch: &Arc<Watch>) -> Result<Transmission, Failure> {
        let sleeper = self.sleeper;
        paced(self, stream, watch, sleeper)
    }
}

/// Receives through a packet socket's ring.
pub struct PacketReceiver {
    socket: OwnedFd,
    ring: Mapping,
    slot_bytes: usize,
    slots: usize,
    next: usize,
    loss: ReceiverLoss,
}

impl PacketReceiver {
    /// Opens a socket for frames of this length, less the check sequence.  Frames count from now on.
    pub fn open(interface: u32, length: usize) -> Result<Self, Failure> {
        const ALL: u16 = libc::ETH_P_ALL as u16;
        let socket = socket(0)?;
        set(
            &socket,
            libc::PACKET_VERSION,
            &(libc::tpacket_versions::TPACKET_V2 as i32),
            "asking for a ring of version 2",
        )?;
        set(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32, "ignoring what the interface sends")?;
        // The slot holds a header, the sender's address, and the frame from the next multiple of 16 on.
        let slot_bytes = (length + 128).next_power_of_two();
        let slots = RING_BYTES / slot_bytes;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (RING_BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        set(&socket, libc::PACKET_RX_RING, &request, "making a receiving ring")?;
        let ring = Mapping::of(socket.as_fd(), RING_BYTES, 0)?;
        bind(&socket, interface, ALL)?;
        Ok(Self { socket, ring, slot_bytes, slots, next: 0, loss: ReceiverLoss::default() })
    }

    /// Hands on at most so many of the frames that have come; how many.  Does not wait.
    #[inline]
    pub(crate) fn take(&mut self, most: usize, mut each: impl FnMut(Came<'_>)) -> usize {
        // Read anew each time: the difference of these clocks changes while one of them is being corrected.
        let mut lead_ns = None;
        let mut frames = 0;
        while frames < most.min(self.slots) {
            let slot = self.next * self.slot_bytes;
            let header = self.ring.at::<libc::tpacket2_hdr>(slot);
            // SAFETY: the status is an aligned integer within the ring, which the kernel also writes.
            let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) };
            let said = status.load(Ordering::Acquire);
            if said & libc::TP_STATUS_USER == 0 {
                break;
            }
            // SAFETY: the status says that the slot is ours, until we give it back.
            let (bytes, stamp_ns, length) = unsafe {
                let header = &*header;
                let length = (header.tp_snaplen as usize).min(self.slot_bytes - usize::from(header.tp_mac));
                let frame = self.ring.at::<u8>(slot + usize::from(header.tp_mac));
                let stamp_ns = i64::from(header.tp_sec) * 1_000_000_000 + i64::from(header.tp_nsec);
                (std::slice::from_raw_parts(frame, length), stamp_ns, header.tp_len as usize)
            };
            let left_out = libc::TP_STATUS_CSUMNOTREADY | libc::TP_STATUS_VLAN_VALID;
            let complete = length == bytes.len() && said & left_out == 0;
            let at_ns = stamp_ns - *lead_ns.get_or_insert_with(kernel::realtime_lead_ns);
            each(Came { bytes, at_ns: at_ns.max(0) as u64, complete });
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.slots;
            frames += 1;
        }
        frames
    }
}

impl Receiver for PacketReceiver {
    fn drain(&mut self, analyser: &mut Analyser) -> Result<usize, Failure> {
        Ok(self.take(usize::MAX, |came| analyser.observe(came.bytes, came.at_ns)))
    }

    fn loss(&mut self) -> Result<ReceiverLoss, Failure> {
        // The kernel forgets what it told.
        let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of_val(&counts) as u32;
        // SAFETY: fills one value of its size.
        let answer = unsafe {
            let counts = (&raw mut counts).cast();
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                counts,
                &raw mut length,
            )
        };
        checked(answer, "asking a packet socket for its losses")?;
        self.loss.ring_full += u64::from(counts.tp_drops);
        Ok(self.loss)
    }
}
