//! `AF_XDP` in copy mode: rings of frames in memory shared with the kernel.  Works on every interface, fast on those whose
//! driver runs XDP programs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use failure::{Failure, checked};
use hptime::Sleeper;

use crate::analyser::Analyser;
use crate::bpf::redirection::{Redirection, STAMP_BYTES};
use crate::bpf::system::{self, Mode};
use crate::frame;
use crate::kernel::Mapping;
use crate::port::{Came, Receiver, ReceiverLoss};
use crate::transmission::{Queue, Stream, Transmission, Transmitter, Watch, paced};

/// Memory for one frame; the kernel leaves 256 bytes free before it.
const CHUNK_BYTES: usize = 2048;

/// Frames that may wait to be sent.
const SENDING: usize = 1024;

/// Frames that may wait to be looked at: at a million a second, those of 32 ms.
pub(crate) const RECEIVING: usize = 32768;

const SENT_AT_ONCE: usize = 32;

/// How long the kernel may take to give up a queue whose socket was closed.
const RELEASED_WITHIN: Duration = Duration::from_secs(2);

/// A ring of entries that one side writes and the other reads.
struct Ring {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    entries: usize,
    mask: u32,
    /// Our own counter: of entries written, or read.
    position: u32,
}

impl Ring {
    fn new(
        socket: &OwnedFd,
        option: i32,
        page_offset: i64,
        offsets: libc::xdp_ring_offset,
        size: usize,
        entry_bytes: usize,
    ) -> Result<Self, Failure> {
        set(socket, option, &(size as u32), "making a ring of an AF_XDP socket")?;
        let mapping = Mapping::of(socket.as_fd(), offsets.desc as usize + size * entry_bytes, page_offset)?;
        let (producer, consumer) = (offsets.producer as usize, offsets.consumer as usize);
        Ok(Self { mapping, producer, consumer, entries: offsets.desc as usize, mask: size as u32 - 1, position: 0 })
    }

    fn counter(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: an aligned counter in the mapping, which the kernel also uses atomically.
        unsafe { AtomicU32::from_ptr(self.mapping.at(offset)) }
    }

    fn entry<T>(&self, position: u32) -> *mut T {
        self.mapping.at(self.entries + (position & self.mask) as usize * size_of::<T>())
    }

    /// Entries that the kernel has written and we have not read.
    #[inline]
    fn readable(&self) -> u32 {
        self.counter(self.producer).load(Ordering::Acquire).wrapping_sub(self.position)
    }

    /// Reads the next entry; there must be one.
    #[inline]
    fn read<T: Copy>(&mut self) -> T {
        // SAFETY: the kernel has written the entry and leaves it to us until we say that it was read.
        let entry = unsafe { self.entry::<T>(self.position).read() };
        self.position = self.position.wrapping_add(1);
        entry
    }

    fn release_read(&self) {
        self.counter(self.consumer).store(self.position, Ordering::Release);
    }

    /// Writes the next entry; its place must be free.
    #[inline]
    fn write<T>(&mut self, entry: T) {
        // SAFETY: the kernel does not look at entries before we say that they are written.
        unsafe { self.entry::<T>(self.position).write(entry) };
        self.position = self.position.wrapping_add(1);
    }

    fn release_written(&self) {
        self.counter(self.producer).store(self.position, Ordering::Release);
    }

    /// Whether the kernel has read all that we wrote.
    fn all_read(&self) -> bool {
        self.counter(self.consumer).load(Ordering::Acquire) == self.position
    }
}

fn set<T>(socket: &OwnedFd, option: i32, value: &T, attempt: &str) -> Result<(), Failure> {
    // SAFETY: reads one value of its size.
    let answer = unsafe {
        let value = ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, size_of::<T>() as u32)
    };
    checked(answer, attempt).map(drop)
}

fn get<T>(socket: &OwnedFd, option: i32, mut value: T, attempt: &str) -> Result<T, Failure> {
    let mut length = size_of::<T>() as u32;
    // SAFETY: fills at most one value of its size, of plain integers.
    let answer = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut length)
    };
    checked(answer, attempt).map(|_| value)
}

/// A socket, its memory, and the two rings that every one must have.
struct Socket {
    // The rings and the memory must outlive the socket's use of them; the kernel holds its own references.
    descriptor: OwnedFd,
    memory: Mapping,
    fill: Ring,
    completion: Ring,
    offsets: libc::xdp_mmap_offsets,
}

impl Socket {
    fn new(chunks: usize) -> Result<Self, Failure> {
        // SAFETY: makes a descriptor, which nobody else owns.
        let socket = unsafe {
            let socket = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            OwnedFd::from_raw_fd(checked(socket, "opening an AF_XDP socket")?)
        };
        let memory = Mapping::anonymous(chunks * CHUNK_BYTES)?;
        let registration = libc::xdp_umem_reg {
            addr: memory.at::<u8>(0) as u64,
            len: memory.length() as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&socket, libc::XDP_UMEM_REG, &registration, "registering memory with an AF_XDP socket")?;
        // SAFETY: plain integers, for which zero is a value.
        let offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let offsets = get(&socket, libc::XDP_MMAP_OFFSETS, offsets, "asking for the layout of AF_XDP rings")?;
        let fill_page = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let fill = Ring::new(&socket, libc::XDP_UMEM_FILL_RING, fill_page, offsets.fr, chunks, 8)?;
        let completion_page = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        let completion = Ring::new(&socket, libc::XDP_UMEM_COMPLETION_RING, completion_page, offsets.cr, chunks, 8)?;
        Ok(Self { descriptor: socket, memory, fill, completion, offsets })
    }

    /// The kernel gives up a queue some time after the socket before was closed, so that it may be busy at first.
    fn bind(&self, interface: u32) -> Result<(), Failure> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let give_up = Instant::now() + RELEASED_WITHIN;
        loop {
            // SAFETY: reads one address.
            let answer = unsafe {
                libc::bind(self.descriptor.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
            };
            match checked(answer, "binding an AF_XDP socket to its interface") {
                Err(Failure::Os { error, .. })
                    if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < give_up =>
                {
                    thread::sleep(Duration::from_millis(2));
                }
                outcome => return outcome.map(drop),
            }
        }
    }
}

/// Sends through an `AF_XDP` socket.
pub struct XdpTransmitter {
    socket: Socket,
    ring: Ring,
    sleeper: &'static Sleeper<'static>,
    length: usize,
    free: Vec<u64>,
}

impl XdpTransmitter {
    /// Opens a socket for frames of this length, less the check sequence.
    pub fn open(interface: u32, length: usize, sleeper: &'static Sleeper<'static>) -> Result<Self, Failure> {
        let socket = Socket::new(SENDING)?;
        let page = libc::XDP_PGOFF_TX_RING;
        let bytes = size_of::<libc::xdp_desc>();
        let ring = Ring::new(&socket.descriptor, libc::XDP_TX_RING, page, socket.offsets.tx, SENDING, bytes)?;
        socket.bind(interface)?;
        let free: Vec<u64> = (0..SENDING).map(|chunk| (chunk * CHUNK_BYTES) as u64).collect();
        let mut transmitter = Self { socket, ring, sleeper, length, free };
        for at in transmitter.free.clone() {
            frame::fill(transmitter.frame(at));
        }
        Ok(transmitter)
    }

    fn frame(&mut self, at: u64) -> &mut [u8] {
        // SAFETY: one chunk's memory, which is ours while it is among the free ones or being written.
        unsafe { std::slice::from_raw_parts_mut(self.socket.memory.at::<u8>(at as usize), self.length) }
    }

    fn reclaim(&mut self) {
        let completion = &mut self.socket.completion;
        for _ in 0..completion.readable() {
            self.free.push(completion.read());
        }
        completion.release_read();
    }
}

impl Queue for XdpTransmitter {
    const CAPACITY: usize = SENT_AT_ONCE;

    #[inline]
    fn slot(&mut self, length: usize) -> Option<&mut [u8]> {
        if self.free.is_empty() {
            self.reclaim();
        }
        let at = self.free.pop()?;
        self.ring.write(libc::xdp_desc { addr: at, len: length as u32, options: 0 });
        Some(&mut self.frame(at)[..length])
    }

    fn send(&mut self) -> Result<u64, Failure> {
        self.ring.release_written();
        let mut refused = 0;
        while !self.ring.all_read() {
            // SAFETY: sends nothing but what the ring holds.
            let answer = unsafe {
                libc::sendto(self.socket.descriptor.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
            };
            if answer >= 0 {
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // There is more to send, or no room for the answers to what was.
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => self.reclaim(),
                // A queue behind the interface was full: this one frame is lost there.
                Some(libc::EBUSY) => refused += 1,
                _ => return Err(Failure::os("sending frames through an AF_XDP socket", error)),
            }
        }
        Ok(refused)
    }
}

impl Transmitter for XdpTransmitter {
    fn transmit(&mut self, stream: &Stream, watch: &Arc<Watch>) -> Result<Transmission, Failure> {
        let sleeper = self.sleeper;
        paced(self, stream, watch, sleeper)
    }
}

/// Receives through an `AF_XDP` socket, to which an XDP program on the interface leads frames.
pub struct XdpReceiver {
    socket: Socket,
    ring: Ring,
    redirection: Redirection,
    foreign: u64,
    // Detaches the program when it is closed.
    _link: OwnedFd,
}

impl XdpReceiver {
    /// Opens a socket for a session's frames, or for all, of which so many may wait (a power of two), and attaches the
    /// program.  Frames count from now on.
    pub fn open(interface: u32, session: Option<u32>, waiting: usize) -> Result<Self, Failure> {
        let mut socket = Socket::new(waiting)?;
        let page = libc::XDP_PGOFF_RX_RING;
        let bytes = size_of::<libc::xdp_desc>();
        let ring = Ring::new(&socket.descriptor, libc::XDP_RX_RING, page, socket.offsets.rx, waiting, bytes)?;
        for chunk in 0..waiting {
            socket.fill.write((chunk * CHUNK_BYTES) as u64);
        }
        socket.fill.release_written();
        socket.bind(interface)?;
        let sockets = system::map_of_socket(socket.descriptor.as_fd())?;
        let redirection = Redirection::load(session, &sockets)?;
        let program = redirection.program.as_fd();
        let link = system::attach(program, interface, Mode::Driver)
            .or_else(|_| system::attach(program, interface, Mode::Stack))?;
        Ok(Self { socket, ring, redirection, foreign: 0, _link: link })
    }
}

impl XdpReceiver {
    /// Hands on at most so many of the frames that have come; how many.  Does not wait.
    #[inline]
    pub(crate) fn take(&mut self, most: usize, mut each: impl FnMut(Came<'_>)) -> usize {
        let frames = (self.ring.readable() as usize).min(most);
        for _ in 0..frames {
            let entry: libc::xdp_desc = self.ring.read();
            let at = entry.addr as usize;
            // SAFETY: the kernel has put a frame and the program a time before it there, and leaves both to us.
            let (bytes, stamp_ns) = unsafe {
                let memory = &self.socket.memory;
                let stamp = memory.at::<u64>(at - STAMP_BYTES).read_unaligned();
                let _ = memory.at::<u8>(at + entry.len as usize - 1);
                (std::slice::from_raw_parts(memory.at::<u8>(at), entry.len as usize), stamp)
            };
            each(Came { bytes, at_ns: stamp_ns, complete: true });
            self.socket.fill.write((at - at % CHUNK_BYTES) as u64);
        }
        self.ring.release_read();
        self.socket.fill.release_written();
        frames
    }
}

impl Receiver for XdpReceiver {
    fn drain(&mut self, analyser: &mut Analyser) -> Result<usize, Failure> {
        let frames = self.take(usize::MAX, |came| analyser.observe(came.bytes, came.at_ns));
        // SAFETY: an aligned counter, which the program increases atomically.
        let foreign = unsafe { AtomicU64::from_ptr(self.redirection.foreign.at(0)) }.load(Ordering::Relaxed);
        analyser.count_foreign(foreign - self.foreign);
        self.foreign = foreign;
        Ok(frames)
    }

    fn loss(&mut self) -> Result<ReceiverLoss, Failure> {
        // SAFETY: plain integers, for which zero is a value.
        let counts: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        let counts =
            get(&self.socket.descriptor, libc::XDP_STATISTICS, counts, "asking an AF_XDP socket for its losses")?;
        // A frame for which there was no memory is counted twice: as that, and as dropped.
        let without_memory = counts.rx_fill_ring_empty_descs;
        Ok(ReceiverLoss {
            ring_full: counts.rx_ring_full + without_memory,
            dropped: counts.rx_dropped.saturating_sub(without_memory) + counts.rx_invalid_descs,
        })
    }
}
