//! Flushes of programs that no library reaches, by seccomp's user notification (`seccomp_unotify(2)`).
//!
//! A filter, which the program and all its children inherit, hands flushes to a supervisor.  The supervisor is a
//! process that the program does not know of: it stands in a session of its own, is no child that `wait` would find,
//! holds none of the program's descriptors, and ends when the last process under the filter does.  The program keeps
//! its number, and so its signals and its exit status.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;

use libc::{c_int, c_long, c_ulong, pid_t, seccomp_notif, seccomp_notif_resp, sock_filter};
use virtgauge_flushes::counters::{Counters, Kind};
use virtgauge_flushes::entry::is_range;
use virtgauge_flushes::kernel::{self, timespec_of};
use virtgauge_flushes::profile::Profile;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

const FLUSHING_WRITE: u32 = (libc::RWF_SYNC | libc::RWF_DSYNC) as u32;
const WAITING_RANGE: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// The calls that are handed over: all of them, or those with one of some bits in an argument.
const CALLS: [(c_long, Option<(u32, u32)>); 8] = [
    (libc::SYS_fsync, None),
    (libc::SYS_fdatasync, None),
    (libc::SYS_syncfs, None),
    (libc::SYS_sync, None),
    (libc::SYS_msync, Some((2, libc::MS_SYNC as u32))),
    (libc::SYS_sync_file_range, Some((3, WAITING_RANGE))),
    (libc::SYS_pwritev2, Some((5, FLUSHING_WRITE))),
    (libc::SYS_openat, Some((2, libc::O_DSYNC as u32))),
];

/// `open`, which newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OPEN: Option<(c_long, Option<(u32, u32)>)> = Some((libc::SYS_open, Some((1, libc::O_DSYNC as u32))));
#[cfg(not(target_arch = "x86_64"))]
const OPEN: Option<(c_long, Option<(u32, u32)>)> = None;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

fn filter() -> Vec<sock_filter> {
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let (number_at, architecture_at, arguments_at) = (0, 4, 16); // of struct seccomp_data
    let allow = step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    let notify = step(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0);
    let mut steps = vec![
        step(LOAD, architecture_at, 0, 0),
        step(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0),
        allow, // a 32-bit program's call
        step(LOAD, number_at, 0, 0),
    ];
    for (number, bits) in CALLS.into_iter().chain(OPEN) {
        match bits {
            None => steps.extend([step(JUMP_IF_EQUAL, number as u32, 0, 1), notify]),
            Some((argument, bits)) => steps.extend([
                step(JUMP_IF_EQUAL, number as u32, 0, 4),
                step(LOAD, arguments_at + 8 * argument, 0, 0), // the lower half, where a flag is
                step(JUMP_IF_BITS, bits, 0, 1),
                notify,
                allow,
            ]),
        }
    }
    steps.push(allow);
    steps
}

/// Puts this process under the filter and starts the supervisor.
///
/// # Errors
/// In words: the kernel has no such notification, or does not allow it here.
pub(crate) fn begin(counters: &File, profile: Profile) -> Result<(), String> {
    // SAFETY: nobody makes such a file smaller.
    let counters = unsafe { Counters::map(counters.as_raw_fd()) }.ok_or("the counters cannot be mapped")?;
    let [reader, writer] = pipe().map_err(|error| format!("a pipe to the supervisor: {error}"))?;
    let program = std::process::id() as pid_t;
    // The supervisor comes first, as it must not stand under the filter: it would wait for its own end.  Without a
    // signal for its end it is no child that `wait` finds; and it shares the table of descriptors, to see the
    // listener appear in it.  For that reason this process closes nothing: `exec` leaves the table to the supervisor.
    // SAFETY: as fork, in a process of one thread.
    let child = unsafe { kernel::call(libc::SYS_clone, [libc::CLONE_FILES as usize]) };
    if child < 0 {
        return Err(format!("the supervisor: {}", io::Error::from_raw_os_error(-child as i32)));
    }
    if child == 0 {
        let listener = await_listener(program, reader);
        Supervisor { listener, counters, profile, waiting: Vec::new() }.run();
        // SAFETY: no addresses; nothing of the program's is run at the end of its copy.
        unsafe { libc::_exit(0) };
    }
    let installed = install();
    let message = installed.as_ref().copied().unwrap_or(NO_LISTENER).to_ne_bytes();
    // SAFETY: as long as said.
    if unsafe { libc::write(writer, message.as_ptr().cast(), message.len()) } != message.len() as isize {
        return Err("the supervisor did not begin".into());
    }
    installed.map(|_| ())
}

const NO_LISTENER: c_int = -1;

fn pipe() -> io::Result<[c_int; 2]> {
    let mut ends = [0; 2];
    // SAFETY: two places.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(ends)
}

/// Puts this process under the filter; the listener's descriptor, which closes at `exec`.
fn install() -> Result<c_int, String> {
    let mut steps = filter();
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let mut flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let mut privileges_given_up = false;
    loop {
        // SAFETY: the program lives.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, core::ptr::from_ref(&program))
        };
        if result >= 0 {
            return Ok(result as c_int);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // Before Linux 5.19 a signal interrupts a flush, which begins again after it: see `Supervisor::begin`.
            Some(libc::EINVAL) if flags & libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0 => {
                flags &= !libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
            }
            Some(libc::EACCES) if !privileges_given_up => {
                privileges_given_up = true;
                let on: c_ulong = 1;
                // SAFETY: no addresses.
                unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, on, 0, 0, 0) };
            }
            Some(libc::EBUSY) => {
                return Err(
                    "this process is under another supervisor of system calls already, and there can be one".into()
                );
            }
            _ => {
                return Err(format!(
                    "the kernel gives no notification of system calls here (seccomp: {error}; gVisor has none), and a \
                     static or Go program's flushes cannot be reached by a library"
                ));
            }
        }
    }
}

/// In the supervisor: takes the listener over and leaves everything else that is the program's.
fn await_listener(program: pid_t, reader: c_int) -> c_int {
    let mut message = [0; size_of::<c_int>()];
    // SAFETY: constants, and a buffer as long as said.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong, 0, 0, 0); // as long as there is no listener
        if libc::getppid() != program {
            libc::_exit(0);
        }
        let came = libc::read(reader, message.as_mut_ptr().cast(), message.len());
        let listener = c_int::from_ne_bytes(message);
        if came != message.len() as isize || listener == NO_LISTENER {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, 0, 0, 0, 0);
        // A table of its own, with nothing in it but the listener; the program's pipes shall end with the program.
        libc::unshare(libc::CLONE_FILES);
        let (last, none) = (libc::c_uint::MAX, 0);
        libc::syscall(libc::SYS_close_range, 0, listener - 1, none);
        libc::syscall(libc::SYS_close_range, listener + 1, last, none);
        // Away from the program's terminal, process group and folders.  Who ends the program by a signal to all must
        // not end its flushes: those of its orderly end are still to come.
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let slack: c_ulong = 1;
        libc::prctl(libc::PR_SET_TIMERSLACK, slack, 0, 0, 0);
        listener
    }
}

/// A flush that was begun and is to be answered.
#[derive(Clone, Copy)]
struct Flush {
    id: u64,
    /// The thread and its call, by which a call that begins again after a signal is known.
    call: (u32, c_int, [u64; 6]),
    kind: Kind,
    began_ns: u64,
    due_ns: u64,
}

struct Supervisor {
    listener: c_int,
    counters: &'static Counters,
    profile: Profile,
    waiting: Vec<Flush>,
}

impl Supervisor {
    fn run(&mut self) {
        loop {
            let mut poll = libc::pollfd { fd: self.listener, events: libc::POLLIN, revents: 0 };
            let timeout = self.waiting.iter().map(|flush| flush.due_ns).min().map(|due_ns| {
                let now_ns = kernel::now_ns();
                timespec_of(due_ns.saturating_sub(now_ns))
            });
            let timeout = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
            // SAFETY: all live.
            let ready = unsafe { libc::ppoll(&raw mut poll, 1, timeout, core::ptr::null()) };
            if ready > 0 && poll.revents & libc::POLLIN != 0 {
                self.receive();
            } else if ready > 0 {
                return; // nobody is left
            }
            self.answer_due(kernel::now_ns());
        }
    }

    fn receive(&mut self) {
        // SAFETY: a structure of integers, which the kernel wants zeroed.
        let mut notice: seccomp_notif = unsafe { core::mem::zeroed() };
        // SAFETY: the structure that the request names.
        if unsafe { libc::ioctl(self.listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut notice) } != 0 {
            return; // the call was interrupted before it came here
        }
        let arguments = notice.data.args;
        let kind = match c_long::from(notice.data.nr) {
            libc::SYS_fsync => Kind::Fsync,
            libc::SYS_fdatasync => Kind::Fdatasync,
            libc::SYS_msync => Kind::Msync,
            libc::SYS_pwritev2 => Kind::SyncWrite,
            libc::SYS_sync_file_range | libc::SYS_syncfs | libc::SYS_sync => Kind::Other,
            _ => {
                self.counters.count_dsync_open();
                self.leave_to_kernel(notice.id);
                return;
            }
        };
        if is_refused(&notice) {
            self.counters.count_failure();
            self.leave_to_kernel(notice.id);
            return;
        }
        let began_ns = kernel::now_ns();
        let call = (notice.pid, notice.data.nr, arguments);
        let due_ns = self.profile.completes_at_ns(began_ns).unwrap_or(began_ns);
        let mut flush = Flush { id: notice.id, call, kind, began_ns, due_ns };
        // A call that a signal interrupted begins again; the disk has been at it since the first time.
        if let Some(index) = self.waiting.iter().position(|earlier| earlier.call.0 == notice.pid) {
            let earlier = self.waiting.swap_remove(index);
            if earlier.call == call {
                flush = Flush { id: notice.id, ..earlier };
            }
        }
        self.waiting.push(flush);
    }

    fn answer_due(&mut self, now_ns: u64) {
        let (due, waiting): (Vec<_>, Vec<_>) = self.waiting.iter().partition(|flush| flush.due_ns <= now_ns);
        self.waiting = waiting;
        for flush in due {
            let as_is = self.profile == Profile::AsIs;
            // Counted before the program can go on and look.  How long the kernel's own flush takes is not seen here.
            let elapsed_ns = (!as_is).then(|| kernel::now_ns() - flush.began_ns);
            self.counters.count(flush.kind, elapsed_ns);
            let answered = if as_is || flush.kind == Kind::SyncWrite {
                self.leave_to_kernel(flush.id)
            } else {
                self.answer(flush.id, 0)
            };
            if !answered {
                self.counters.take_back(flush.kind, elapsed_ns);
            }
        }
    }

    fn leave_to_kernel(&self, id: u64) -> bool {
        self.answer(id, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
    }

    /// False if nobody waits for the answer any more.
    fn answer(&self, id: u64, flags: u32) -> bool {
        let response = seccomp_notif_resp { id, val: 0, error: 0, flags };
        // SAFETY: the structure that the request names.
        unsafe { libc::ioctl(self.listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const response) == 0 }
    }
}

/// Whether the kernel is sure to refuse the call; it then says so itself.
fn is_refused(notice: &seccomp_notif) -> bool {
    let [first, second, third, fourth, ..] = notice.data.args;
    let number = c_long::from(notice.data.nr);
    match number {
        libc::SYS_sync => return false,
        libc::SYS_msync => {
            let (known, page) = (libc::MS_SYNC | libc::MS_INVALIDATE, 4096);
            return third as c_int & !known != 0 || first % page != 0;
        }
        libc::SYS_sync_file_range if !is_range(second as i64, third as i64, fourth as u32) => return true,
        _ => {}
    }
    let of_process = |folder: &str| format!("/proc/{}/{folder}/{}", notice.pid, first as c_int);
    match std::fs::read_to_string(of_process("fdinfo")) {
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
        Ok(told) if status_flags(&told) & libc::O_PATH != 0 => return true,
        Ok(_) if matches!(number, libc::SYS_syncfs | libc::SYS_pwritev2) => return false,
        Ok(_) => {}
    }
    std::fs::metadata(of_process("fd")).is_ok_and(|status| {
        let kind = status.file_type();
        kind.is_socket() || kind.is_fifo() || kind.is_char_device()
    })
}

/// The flags that `proc(5)` tells of a descriptor, in octal.
fn status_flags(told: &str) -> c_int {
    let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| c_int::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter makes of a call, by the rules of classic BPF.
    fn outcome(architecture: u32, number: c_long, arguments: [u64; 6]) -> u32 {
        let steps = filter();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = steps[at];
            at += 1;
            match step.code {
                LOAD => {
                    loaded = match step.k {
                        0 => number as u32,
                        4 => architecture,
                        place => arguments[(place as usize - 16) / 8] as u32,
                    }
                }
                JUMP_IF_EQUAL => at += usize::from(if loaded == step.k { step.jt } else { step.jf }),
                JUMP_IF_BITS => at += usize::from(if loaded & step.k != 0 { step.jt } else { step.jf }),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn only_what_waits_for_the_disk_is_handed_over() {
        let handed = |number, arguments| outcome(ARCHITECTURE, number, arguments) == libc::SECCOMP_RET_USER_NOTIF;
        let nothing = [0; 6];
        for number in [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_syncfs, libc::SYS_sync] {
            assert!(handed(number, nothing));
            assert_eq!(outcome(3, number, nothing), libc::SECCOMP_RET_ALLOW); // 32 bits
        }
        let flagged = |index: usize, value: u64| {
            let mut arguments = nothing;
            arguments[index] = value;
            arguments
        };
        for (number, index, waits, passes) in [
            (libc::SYS_msync, 2, libc::MS_SYNC as u64, libc::MS_ASYNC as u64),
            (libc::SYS_sync_file_range, 3, 7, 2),
            (libc::SYS_pwritev2, 5, libc::RWF_DSYNC as u64, libc::RWF_HIPRI as u64),
            (libc::SYS_openat, 2, libc::O_SYNC as u64, libc::O_RDWR as u64),
        ] {
            assert!(handed(number, flagged(index, waits)), "{number}");
            assert!(!handed(number, flagged(index, passes)), "{number}");
        }
        for number in [libc::SYS_read, libc::SYS_write, libc::SYS_pwritev, libc::SYS_close] {
            assert!(!handed(number, [u64::MAX; 6]));
        }
    }
}
