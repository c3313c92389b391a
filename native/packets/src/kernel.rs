//! What the kernel shares with us: memory, many messages for one system call, and the clock by which it stamps packets.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use failure::Failure;
use hptime::OsClock;

/// How often the two clocks are read together at most; the tightest reading counts.
const TRIES: u32 = 8;

/// A reading that took no longer is tight enough.
const TIGHT_NS: u64 = 200;

/// A mapping of memory, undone when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone; what it points to is plain memory, not bound to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives out only its address; who reads or writes through that answers for it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Of a descriptor at an offset.
    pub(crate) fn of(descriptor: BorrowedFd<'_>, length: usize, offset: i64) -> Result<Self, Failure> {
        Self::new(libc::MAP_SHARED | libc::MAP_POPULATE, descriptor.as_raw_fd(), length, offset)
    }

    /// Of zeroes.
    pub(crate) fn anonymous(length: usize) -> Result<Self, Failure> {
        Self::new(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, length, 0)
    }

    fn new(flags: i32, descriptor: i32, length: usize, offset: i64) -> Result<Self, Failure> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, descriptor, offset)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, length }),
            _ => Err(Failure::last(format!("mapping {length} bytes"))),
        }
    }

    /// The address of a field.
    ///
    /// # Panics
    /// When it does not lie within the mapping.
    #[inline]
    pub(crate) fn at<T>(&self, offset: usize) -> *mut T {
        assert!(offset + size_of::<T>() <= self.length, "outside the mapping");
        // SAFETY: just checked.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by this value, which nobody uses any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A message of `sendmmsg` or `recvmmsg` for each piece of memory.  They lead to the descriptions of these pieces, which must
/// stay where they are.
pub fn messages_of(vectors: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let message = |vector: &mut libc::iovec| {
        // SAFETY: a message header is pointers and integers, for which zero is a value.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = vector;
        message.msg_hdr.msg_iovlen = 1;
        message
    };
    vectors.iter_mut().map(message).collect()
}

/// What `CLOCK_REALTIME`, by which the kernel stamps packets, is ahead of `CLOCK_MONOTONIC`, in nanoseconds.
#[must_use]
pub fn realtime_lead_ns() -> i64 {
    let mut best = (u64::MAX, 0);
    for _ in 0..TRIES {
        let before = OsClock::Monotonic.now_ns();
        let realtime = OsClock::Realtime.now_ns() as i64;
        let width = OsClock::Monotonic.now_ns() - before;
        if width < best.0 {
            best = (width, realtime - (before + width / 2) as i64);
        }
        if width <= TIGHT_NS {
            break;
        }
    }
    best.1
}
