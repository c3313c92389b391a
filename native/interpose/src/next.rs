//! The functions that would have been called without the library.
//!
//! They are looked up once, in the constructor: `dlsym` is not async-signal-safe.

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// A function of the next library in line.
#[repr(transparent)]
pub struct Next(AtomicPtr<c_void>);

impl Next {
    /// Before it was looked up.
    #[must_use]
    pub const fn unknown() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Looks it up.
    pub fn look_up(&self, name: &CStr) {
        // SAFETY: a C string; RTLD_NEXT is searched from this object on.
        self.0.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }, Ordering::Release);
    }

    /// Its address; `None` until it was looked up, and where there is none.
    #[inline]
    pub fn get(&self) -> Option<*mut c_void> {
        let found = self.0.load(Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}
