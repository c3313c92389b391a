//! The `bpf` system call.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use failure::Failure;

const MAP_CREATE: i64 = 0;
const MAP_UPDATE_ELEM: i64 = 2;
const PROG_LOAD: i64 = 5;
const PROG_RUN: i64 = 10;
const LINK_CREATE: i64 = 28;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_XSKMAP: u32 = 17;
const MAP_MAPPABLE: u32 = 1 << 10;

const PROGRAM_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const LIVE_FRAMES: u32 = 1 << 1;

/// What XDP programs answer.
pub(crate) mod action {
    pub(crate) const DROP: i32 = 1;
    pub(crate) const PASS: i32 = 2;
}

/// Whether a program runs in the interface's driver or, slower, in the network stack above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Stack = 1 << 1,
    Driver = 1 << 2,
}

fn bpf<T>(command: i64, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the kernel reads no more than the size of the attributes, whose pointers their makers answer for.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

fn descriptor<T>(command: i64, attributes: &mut T, attempt: &str) -> Result<OwnedFd, Failure> {
    let descriptor = bpf(command, attributes).map_err(|error| Failure::os(attempt, error))?;
    // SAFETY: these commands make a descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[repr(C)]
#[derive(Default)]
struct MapAttributes {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

/// An array of one value, which user space maps.
pub(crate) fn shared_value(bytes: usize) -> Result<OwnedFd, Failure> {
    let mut attributes =
        MapAttributes { kind: MAP_TYPE_ARRAY, key_size: 4, value_size: bytes as u32, entries: 1, flags: MAP_MAPPABLE };
    descriptor(MAP_CREATE, &mut attributes, "making memory for an XDP program")
}

/// A map with one `AF_XDP` socket, that of an interface's first queue.
pub(crate) fn map_of_socket(socket: BorrowedFd<'_>) -> Result<OwnedFd, Failure> {
    #[repr(C)]
    struct Element {
        map: u32,
        key: u64,
        value: u64,
        flags: u64,
    }
    let mut attributes =
        MapAttributes { kind: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, entries: 1, ..Default::default() };
    let map = descriptor(MAP_CREATE, &mut attributes, "making a map of AF_XDP sockets")?;
    let (key, value) = (0u32, socket.as_raw_fd());
    let mut element =
        Element { map: map.as_raw_fd() as u32, key: &raw const key as u64, value: &raw const value as u64, flags: 0 };
    bpf(MAP_UPDATE_ELEM, &mut element).map_err(|error| Failure::os("putting an AF_XDP socket into its map", error))?;
    Ok(map)
}

/// Has the kernel verify and compile a program.
pub(crate) fn load(name: &CStr, code: &[u64]) -> Result<OwnedFd, Failure> {
    #[repr(C)]
    struct Attributes {
        kind: u32,
        length: u32,
        code: u64,
        license: u64,
        log_level: u32,
        log_size: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
        name: [u8; 16],
    }
    let attempt = |log: &mut [u8]| {
        let mut attributes = Attributes {
            kind: PROGRAM_TYPE_XDP,
            length: code.len() as u32,
            code: code.as_ptr() as u64,
            license: c"Apache-2.0".as_ptr() as u64,
            log_level: u32::from(!log.is_empty()),
            log_size: log.len() as u32,
            log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
            kernel_version: 0,
            flags: 0,
            name: [0; 16],
        };
        let name = name.to_bytes();
        attributes.name[..name.len().min(15)].copy_from_slice(&name[..name.len().min(15)]);
        descriptor(PROG_LOAD, &mut attributes, "loading an XDP program")
    };
    attempt(&mut []).or_else(|failure| {
        let mut log = vec![0; 1 << 20];
        attempt(&mut log).map_err(|_| {
            let text = String::from_utf8_lossy(&log);
            let said: Vec<&str> = text.trim_end_matches('\0').lines().rev().take(3).collect();
            match failure {
                Failure::Os { attempt, error } if !said.is_empty() => {
                    Failure::os(format!("{attempt} ({})", said.into_iter().rev().collect::<Vec<_>>().join("; ")), error)
                }
                failure => failure,
            }
        })
    })
}

/// Attaches an XDP program to an interface for as long as the answer lives.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, mode: Mode) -> Result<OwnedFd, Failure> {
    #[repr(C)]
    struct Attributes {
        program: u32,
        interface: u32,
        kind: u32,
        flags: u32,
    }
    let mut attributes =
        Attributes { program: program.as_raw_fd() as u32, interface, kind: ATTACH_TYPE_XDP, flags: mode as u32 };
    descriptor(LINK_CREATE, &mut attributes, "attaching an XDP program to the receiving interface")
}

/// Runs an XDP program on frames that the kernel makes from a pattern, and lets them go where it says.
///
/// The error is `EINTR` when a signal ended it.
pub(crate) fn run_live(program: BorrowedFd<'_>, frame: &[u8], times: u32, batch: u32) -> io::Result<()> {
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        program: u32,
        answer: u32,
        size_in: u32,
        size_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        context_size_in: u32,
        context_size_out: u32,
        context_in: u64,
        context_out: u64,
        flags: u32,
        cpu: u32,
        batch: u32,
        padding: u32,
    }
    let mut attributes = Attributes {
        program: program.as_raw_fd() as u32,
        size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat: times,
        flags: LIVE_FRAMES,
        batch,
        ..Default::default()
    };
    bpf(PROG_RUN, &mut attributes).map(drop)
}
