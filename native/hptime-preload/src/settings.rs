//! What the environment asks for, copied once: a program may overwrite its own environment.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};

/// How a sleep divides between the kernel and the spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rule {
    /// Until the guard time before the deadline, which follows the wake-ups seen so far; then spin.
    Adaptive = 0,
    /// Until one period of the kernel's tick before the deadline, then spin (`HighPerTimer`).
    HighPerTimer = 1,
    /// The kernel's own sleep.
    Os = 2,
}

impl Rule {
    /// The rule of this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        [Self::Adaptive, Self::HighPerTimer, Self::Os].into_iter().find(|rule| rule.name().as_bytes() == name)
    }

    /// Its name in `HPTIME_RULE` and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::HighPerTimer => "highpertimer",
            Self::Os => "os",
        }
    }
}

static RULE: AtomicU8 = AtomicU8::new(Rule::Adaptive as u8);

/// The rule that holds.
#[inline]
#[must_use]
pub fn rule() -> Rule {
    match RULE.load(Ordering::Relaxed) {
        1 => Rule::HighPerTimer,
        2 => Rule::Os,
        _ => Rule::Adaptive,
    }
}

const PATH_SIZE: usize = 4096;

/// The path of the report: written by the constructor only, read when the process ends.
struct Path(UnsafeCell<[u8; PATH_SIZE]>);

// SAFETY: written before `PATH_LENGTH` is published, and never again.
unsafe impl Sync for Path {}

static PATH: Path = Path(UnsafeCell::new([0; PATH_SIZE]));
static PATH_LENGTH: AtomicUsize = AtomicUsize::new(0);
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// Where the report goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To a file, appended.
    File(&'static CStr),
    /// To a descriptor.
    Descriptor(i32),
}

/// Where the report goes; `None` when none is wanted.
#[must_use]
pub fn destination() -> Option<Destination> {
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    if descriptor >= 0 {
        return Some(Destination::Descriptor(descriptor));
    }
    let length = PATH_LENGTH.load(Ordering::Acquire);
    if length == 0 {
        return None;
    }
    // SAFETY: the first `length` bytes and the zero after them are written once, before the length.
    let bytes = unsafe { &(&*PATH.0.get())[..=length] };
    CStr::from_bytes_with_nul(bytes).ok().map(Destination::File)
}

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// A variable of the environment, except where the program runs with more rights than its user.
fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a C string in; the value is only read while the constructor runs.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

fn is_set(name: &CStr) -> bool {
    variable(name).is_some_and(|value| !value.is_empty() && value != b"0")
}

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Serve nothing.
    pub disable: bool,
    /// Say on standard error why nothing is served.
    pub verbose: bool,
    /// `HPTIME_RULE` names no rule.
    pub unknown_rule: bool,
}

/// Reads the environment.
pub fn read() -> Wishes {
    let mut wishes =
        Wishes { disable: is_set(c"HPTIME_DISABLE"), verbose: is_set(c"HPTIME_VERBOSE"), unknown_rule: false };
    if let Some(name) = variable(c"HPTIME_RULE") {
        match Rule::named(name) {
            Some(rule) => RULE.store(rule as u8, Ordering::Relaxed),
            None => wishes.unknown_rule = !name.is_empty(),
        }
    }
    if let Some(wanted) = variable(c"HPTIME_STATS") {
        keep_destination(wanted);
    }
    wishes
}

fn keep_destination(wanted: &[u8]) {
    if !wanted.is_empty() && wanted.iter().all(u8::is_ascii_digit) {
        let number =
            wanted.iter().try_fold(0i32, |sum, digit| sum.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        DESCRIPTOR.store(number.unwrap_or(-1), Ordering::Relaxed);
        return;
    }
    // SAFETY: only the constructor comes here, and it runs once, before any reader.
    let path = unsafe { &mut *PATH.0.get() };
    let mut length = 0;
    // The program may change its folder before it ends.
    if wanted.first().is_some_and(|&first| first != b'/') {
        // SAFETY: writes at most the length that is given.
        let found = unsafe { libc::getcwd(path.as_mut_ptr().cast(), PATH_SIZE - 1) };
        if found.is_null() {
            return;
        }
        length = path.iter().position(|&byte| byte == 0).unwrap_or(0);
        path[length] = b'/';
        length += 1;
    }
    if length + wanted.len() >= PATH_SIZE {
        return;
    }
    path[length..length + wanted.len()].copy_from_slice(wanted);
    path[length + wanted.len()] = 0;
    PATH_LENGTH.store(if wanted.is_empty() { 0 } else { length + wanted.len() }, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_its_name_only() {
        for rule in [Rule::Adaptive, Rule::HighPerTimer, Rule::Os] {
            assert_eq!(Rule::named(rule.name().as_bytes()), Some(rule));
        }
        assert_eq!(Rule::named(b"Adaptive"), None);
        assert_eq!(Rule::named(b""), None);
    }
}
