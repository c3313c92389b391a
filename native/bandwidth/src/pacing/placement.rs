//! Where a thread runs, and before whom.

use failure::Failure;
use serde::Serialize;

/// Highest priority of `SCHED_FIFO`.
pub const HIGHEST_PRIORITY: u8 = 99;

/// Where the calling thread is to run.  By default, as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Only on this processor.
    pub cpu: Option<usize>,
    /// Before all others, by `SCHED_FIFO` with this priority (1 to 99).
    pub fifo: Option<u8>,
}

impl Placement {
    /// Puts the calling thread there.
    pub fn apply(&self) -> Result<(), Failure> {
        if let Some(cpu) = self.cpu {
            bind(cpu)?;
        }
        if let Some(priority) = self.fifo {
            go_before(priority)?;
        }
        Ok(())
    }
}

fn bind(cpu: usize) -> Result<(), Failure> {
    // SAFETY: a set of processors is plain bits, for which zero is a value; the macro checks the number's bounds.
    let answer = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if answer < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Failure::Unsupported(format!(
            "this thread cannot run on processor {cpu} ({error}); `nproc` and the cgroup say which there are"
        )));
    }
    Ok(())
}

fn go_before(priority: u8) -> Result<(), Failure> {
    if !(1..=HIGHEST_PRIORITY).contains(&priority) {
        return Err(Failure::Invalid(format!("a priority of {priority}: accepted are 1 to {HIGHEST_PRIORITY}")));
    }
    let parameters = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: reads one set of parameters.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) } < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Failure::Unsupported(format!(
            "this thread cannot be scheduled by SCHED_FIFO ({error}); it takes root or CAP_SYS_NICE, and a real-time share \
             in the cgroup"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_thread<T: Send + 'static>(judged: fn() -> T) -> T {
        std::thread::spawn(judged).join().unwrap()
    }

    #[test]
    fn a_thread_runs_where_it_was_put() {
        let processor = on_a_thread(|| {
            Placement { cpu: Some(0), fifo: None }.apply().unwrap();
            // SAFETY: no memory is involved.
            unsafe { libc::sched_getcpu() }
        });
        assert_eq!(processor, 0);
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        let message = on_a_thread(|| Placement { cpu: Some(1023), fifo: None }.apply().unwrap_err().to_string());
        assert!(message.contains("processor 1023") && message.contains("nproc"), "{message}");
        for wrong in [0, 100] {
            let failure = Placement { cpu: None, fifo: Some(wrong) }.apply().unwrap_err();
            assert!(matches!(failure, Failure::Invalid(_)));
        }
    }
}
