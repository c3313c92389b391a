//! What the guest's own kernel did, event by event: an instance of ftrace (Linux: Documentation/trace/ftrace.rst), where the
//! agent runs the machine.  Elsewhere the kernel is somebody else's, who may trace it himself.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::facts;
use crate::init;

const ROOT: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "instances/virtgauge";

const NEEDED: &str = "sched/sched_switch";

/// What is recorded beside that, as far as the kernel has it: the same as of the host's (src/virtgauge/host/tracing.py),
/// less what is of its guests, and less the timers, which would be a quarter of all: no quota of a guest's is refilled.
const EVENTS: [&str; 21] = [
    "sched/sched_waking",
    "sched/sched_wakeup_new",
    "sched/sched_migrate_task",
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "irq/softirq_entry",
    "irq/softirq_exit",
    "irq_vectors/local_timer_entry",
    "irq_vectors/local_timer_exit",
    "irq_vectors/reschedule_entry",
    "irq_vectors/reschedule_exit",
    "irq_vectors/call_function_entry",
    "irq_vectors/call_function_exit",
    "irq_vectors/call_function_single_entry",
    "irq_vectors/call_function_single_exit",
    "irq_vectors/irq_work_entry",
    "irq_vectors/irq_work_exit",
    "irq_vectors/thermal_apic_entry",
    "irq_vectors/thermal_apic_exit",
    "exceptions/page_fault_user",
    "exceptions/page_fault_kernel",
];

/// Of the machine's memory, the rings of all processors have no more than this part; and each has these bounds.
const SHARE: u64 = 32;
const LEAST_KIB: u64 = 256;
const MOST_KIB: u64 = 8192;

/// Most bytes of text that are kept; with the rest of a result they fit into a frame.
const MOST_BYTES: usize = 1 << 20;

/// Most bytes of a line; a name has fifteen, and no event of ours has more than three.
const LONGEST_LINE: u64 = 1024;

/// How the lines begin that tell how many events there had been.
const COUNTS: &[u8] = b"# entries-in-buffer";

/// A time by `CLOCK_MONOTONIC`, from and to, of which the events are wanted.
pub type Window = (u64, u64);

/// A recording that is under way; it is gone with this.
#[derive(Debug)]
pub struct Trace {
    folder: PathBuf,
}

impl Trace {
    /// Begins; `None` where the agent does not run the machine, or its kernel cannot.
    #[must_use]
    pub fn begin(processors: usize) -> Option<Self> {
        if !init::runs_the_machine() {
            return None;
        }
        // It may be mounted already, or be unknown to the kernel; the next step shows.
        let _ = mount(Some("tracefs"), ROOT, Some("tracefs"), MsFlags::empty(), None::<&str>);
        let trace = Self { folder: Path::new(ROOT).join(INSTANCE) };
        match fs::create_dir(&trace.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return None,
            _ => {}
        }
        let memory = facts::memory_bytes(&fs::read_to_string("/proc/meminfo").unwrap_or_default()).unwrap_or(0);
        trace.record(ring_kib(memory / 1024, processors as u64)).ok()?;
        Some(trace)
    }

    fn record(&self, kib: u64) -> io::Result<()> {
        self.set("tracing_on", "0")?;
        self.set("trace_clock", "mono")?;
        self.set("buffer_size_kb", &kib.to_string())?;
        self.set(&format!("events/{NEEDED}/enable"), "1")?;
        for event in EVENTS {
            let _ = self.set(&format!("events/{event}/enable"), "1");
        }
        self.set("tracing_on", "1")
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.folder.join(file), value)
    }

    /// Ends the recording, and reads of it what lies within the windows, in order; of too much, within half of them, the
    /// first, and so on.  With the number of windows, from the first on, of which that is all.
    #[must_use]
    pub fn within(self, windows: &[Window]) -> (Vec<u8>, usize) {
        let _ = self.set("tracing_on", "0");
        let mut number = windows.len();
        while number > 0 {
            let Ok(file) = File::open(self.folder.join("trace")) else { break };
            if let Some(text) = kept(BufReader::new(file), &windows[..number]) {
                return (text, number);
            }
            number /= 2;
        }
        (Vec::new(), 0)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.set("tracing_on", "0");
        let _ = fs::remove_dir(&self.folder);
    }
}

/// The lines within the windows, and those that count; `None` where there is no room for them, or they cannot be read.
fn kept(mut lines: impl BufRead, windows: &[Window]) -> Option<Vec<u8>> {
    let (mut text, mut line) = (Vec::new(), Vec::new());
    while text.len() < MOST_BYTES {
        line.clear();
        match lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) => return Some(text),
            Err(_) => return None,
            Ok(_) => {}
        }
        let wanted = at_ns(&line).map_or_else(
            || line.starts_with(COUNTS),
            |at_ns| windows.iter().any(|&(from_ns, to_ns)| (from_ns..=to_ns).contains(&at_ns)),
        );
        if wanted {
            text.extend_from_slice(&line);
        }
    }
    None
}

/// When an event was, by its line: `…] d.h2.   123.456789: name: …`, in whole microseconds.
fn at_ns(line: &[u8]) -> Option<u64> {
    let behind_the_name = String::from_utf8_lossy(line.get(16..)?);
    let time = behind_the_name.split_once("] ")?.1.split_whitespace().nth(1)?.strip_suffix(':')?;
    let (seconds, micros) = time.split_once('.')?;
    Some(seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)? + u64::from(micros.parse::<u32>().ok()?) * 1000)
}

/// How large each processor's ring is to be.
fn ring_kib(memory_kib: u64, processors: u64) -> u64 {
    (memory_kib / SHARE / processors.max(1)).clamp(LEAST_KIB, MOST_KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
# tracer: nop
# entries-in-buffer/entries-written: 3/9   #P:1
          <idle>-0       [000] d..2.     1.000001: sched_switch: prev_comm=swapper/0
          a] b c-77      [000] d.h..     1.500000: local_timer_entry: vector=236
##### CPU 1 buffer started ####
         cycle-0-80      [001] d..2.    12.000250: sched_waking: comm=cycle-0 pid=80
";

    #[test]
    fn lines_within_the_windows_are_kept_and_those_that_count() {
        let text = kept(LINES.as_bytes(), &[(1_000_001_000, 1_499_999_000), (12_000_000_000, 13_000_000_000)]);
        let lines: Vec<&str> = LINES.split_inclusive('\n').collect();
        assert_eq!(String::from_utf8(text.unwrap()).unwrap(), [lines[1], lines[2], lines[5]].concat());
    }

    #[test]
    fn a_time_is_read_behind_any_name() {
        let times: Vec<Option<u64>> = LINES.lines().map(|line| at_ns(line.as_bytes())).collect();
        let expected = [None, None, Some(1_000_001_000), Some(1_500_000_000), None, Some(12_000_250_000)];
        assert_eq!(times, expected);
        assert_eq!(
            at_ns(b"          \xff\xfe b c-77      [000] d.h..     1.500000: x: comm=\xff"),
            Some(1_500_000_000)
        );
        assert_eq!(at_ns(&[0xff; 40]), None);
    }

    #[test]
    fn no_more_is_kept_than_a_frame_takes() {
        let line = LINES.lines().nth(2).unwrap().to_owned() + "\n";
        assert_eq!(kept(line.repeat(20_000).as_bytes(), &[(0, u64::MAX)]), None);
        assert_eq!(kept(&vec![b'x'; 100_000][..], &[(0, u64::MAX)]), Some(Vec::new()));
    }

    #[test]
    fn of_too_much_the_first_windows_are_kept_and_how_many() {
        let folder = Folder::new("many");
        let line = |second| format!("{:16}-1 [000] d..2. {second}.000000: x: y\n", "x");
        // Four windows of half of what is kept, and a bit, each: two are too much.
        let text: String = (1..=4).map(|second| line(second).repeat(MOST_BYTES / 2 / line(1).len() + 1)).collect();
        fs::write(folder.0.join("trace"), &text).unwrap();
        let windows = [3, 1, 2, 4].map(|second| (second * 1_000_000_000, second * 1_000_000_000));
        let (kept, number) = folder.trace().within(&windows);
        assert_eq!((number, String::from_utf8(kept).unwrap()), (1, line(3).repeat(text.len() / 4 / line(3).len())));
        let (kept, number) = folder.trace().within(&[windows[0], (0, 1), (5, 6)]);
        assert_eq!((number, kept.len()), (3, text.len() / 4));
    }

    #[test]
    fn of_nothing_that_is_kept_or_can_be_read_the_number_is_none() {
        let folder = Folder::new("none");
        assert_eq!(folder.trace().within(&[(0, 1)]), (Vec::new(), 0), "no file");
        let line = LINES.lines().nth(2).unwrap().to_owned() + "\n";
        fs::write(folder.0.join("trace"), &line).unwrap();
        assert_eq!(folder.trace().within(&[]), (Vec::new(), 0));
        assert_eq!(folder.trace().within(&[(0, 1)]), (Vec::new(), 1), "nothing happened then");
        fs::write(folder.0.join("trace"), line.repeat(20_000)).unwrap();
        assert_eq!(folder.trace().within(&[(0, u64::MAX), (0, 1)]), (Vec::new(), 0), "too much of one");
    }

    /// In place of an instance of tracefs.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("virtgauge-trace-{name}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn trace(&self) -> Trace {
            Trace { folder: self.0.clone() }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_rings_leave_the_machine_its_memory() {
        assert_eq!(ring_kib(512 * 1024, 2), 8192);
        assert_eq!(ring_kib(64 * 1024, 4), 512);
        assert_eq!(ring_kib(0, 0), LEAST_KIB);
    }

    #[test]
    fn nobody_elses_kernel_is_traced() {
        assert!(Trace::begin(1).is_none());
    }
}
