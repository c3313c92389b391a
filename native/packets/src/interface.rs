//! Network interfaces of the calling thread's namespace: their numbers and counters, and whose namespace it is.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use failure::Failure;
use serde::Serialize;

/// The number of an interface.
pub fn index_of(name: &str) -> Result<u32, Failure> {
    let unknown = || Failure::Unsupported(format!("there is no interface {name:?} in this network namespace"));
    let text = CString::new(name).map_err(|_| unknown())?;
    // SAFETY: reads a text that ends with a zero.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(unknown()),
        index => Ok(index),
    }
}

/// Refuses the network namespace that the machine was started in, or the container that this process is in: what is sent
/// there may reach real networks.
pub fn require_own_namespace() -> Result<(), Failure> {
    const SETTINGS: &str = "/proc/sys/net/core";
    let identity = |path: &str| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    let own = identity("/proc/thread-self/ns/net")
        .map_err(|error| Failure::os("looking at this thread's network namespace", error))?;
    // Who may not look at the first process knows the first namespace by a setting that no other has.
    let first = match identity("/proc/1/ns/net") {
        Ok(first) => own == first,
        Err(_) => !Path::new(SETTINGS).join("somaxconn").exists(),
    } || Path::new(SETTINGS).join("netdev_max_backlog").exists();
    if first {
        return Err(Failure::Unsupported(
            "this process runs in the machine's own network namespace, from where test frames could reach real networks; \
             start it in a namespace made for the test"
                .into(),
        ));
    }
    Ok(())
}

/// Counters of an interface since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames that were to be received and had errors.
    pub receive_errors: u64,
    /// Frames dropped on reception.
    pub receive_dropped: u64,
    /// Frames for which a buffer was full on reception.
    pub receive_overruns: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that could not be sent for an error.
    pub send_errors: u64,
    /// Frames dropped in sending.
    pub send_dropped: u64,
}

impl Counters {
    /// Now.
    pub fn read(name: &str) -> Result<Self, Failure> {
        const PATH: &str = "/proc/thread-self/net/dev";
        let table = fs::read_to_string(PATH).map_err(|error| Failure::os(format!("reading {PATH}"), error))?;
        Self::in_table(&table, name)
            .ok_or_else(|| Failure::Unsupported(format!("{PATH} says nothing about the interface {name:?}")))
    }

    fn in_table(table: &str, name: &str) -> Option<Self> {
        let line = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
        let figures: Vec<u64> = line.split_whitespace().map_while(|figure| figure.parse().ok()).collect();
        let figure = |index: usize| figures.get(index).copied();
        Some(Self {
            received: figure(1)?,
            receive_errors: figure(2)?,
            receive_dropped: figure(3)?,
            receive_overruns: figure(4)?,
            sent: figure(9)?,
            send_errors: figure(10)?,
            send_dropped: figure(11)?,
        })
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            received: self.received.wrapping_sub(earlier.received),
            receive_errors: self.receive_errors.wrapping_sub(earlier.receive_errors),
            receive_dropped: self.receive_dropped.wrapping_sub(earlier.receive_dropped),
            receive_overruns: self.receive_overruns.wrapping_sub(earlier.receive_overruns),
            sent: self.sent.wrapping_sub(earlier.sent),
            send_errors: self.send_errors.wrapping_sub(earlier.send_errors),
            send_dropped: self.send_dropped.wrapping_sub(earlier.send_dropped),
        }
    }
}

/// Frames that the whole machine dropped because a processor's backlog was full, since it was started; `None` where it
/// does not say.
#[must_use]
pub fn backlog_dropped() -> Option<u64> {
    let table = fs::read_to_string("/proc/net/softnet_stat").ok()?;
    table.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()).sum()
}

/// Binds the calling thread to one processor.
pub(crate) fn bind_to_cpu(cpu: usize) -> Result<(), Failure> {
    // SAFETY: a set of processors is plain bits, for which zero is a value; the macro checks the number's bounds.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    failure::checked(answer, &format!("binding a thread to processor {cpu}")).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
  eth0: 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36
";

    #[test]
    fn whatever_stands_in_the_table_is_counters_or_none() {
        fuzz::fuzz("net-dev", include_str!("../../fuzz/corpus/net-dev.txt"), |input| {
            let _ = Counters::in_table(&String::from_utf8_lossy(input), "eth0");
        });
    }

    #[test]
    fn counters_are_those_of_the_interface() {
        let counters = Counters::in_table(TABLE, "eth0").unwrap();
        assert_eq!(
            (counters.received, counters.receive_dropped, counters.sent, counters.send_dropped),
            (22, 24, 30, 32)
        );
        assert_eq!(Counters::in_table(TABLE, "eth"), None);
        assert_eq!(Counters::in_table(TABLE, "eth1"), None);
        assert_eq!(Counters::in_table("eth0: 1 2", "eth0"), None);
        assert_eq!(counters.since(&Counters::in_table(TABLE, "lo").unwrap()).sent, 20);
    }

    #[test]
    fn an_unknown_interface_is_named() {
        assert!(index_of("nothing").unwrap_err().to_string().contains("\"nothing\""));
        assert!(index_of("no\0thing").is_err());
        assert!(index_of("lo").is_ok());
    }

    #[test]
    fn the_machines_own_namespace_is_refused() {
        // Tests run where the machine was started, or in a container, whose first process shares its namespace.
        let message = require_own_namespace().unwrap_err().to_string();
        assert!(message.contains("namespace"), "{message}");
    }
}
