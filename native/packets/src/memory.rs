//! Memory shared with the kernel.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use failure::Failure;

/// A mapping, undone when it is dropped.
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
