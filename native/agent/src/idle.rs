//! The states in which the kernel lets an idle processor wait: what they are, and how to hold the deep ones off.
//!
//! A processor that waits in a deep state takes longer to wake, and is late by that much.  Most guests see no such state: they
//! halt, and the host decides how deep.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

const CPUIDLE: &str = "/sys/devices/system/cpu/cpuidle";
const STATES: &str = "/sys/devices/system/cpu/cpu0/cpuidle";

/// The kernel's `PM_QOS` interface: while a file of it is open, no state is entered whose latency exceeds what was written.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// What the kernel says of idle states; those of the first processor.
#[derive(Debug, Serialize)]
pub struct Idle {
    /// `none` where there is no driver, so that the kernel only halts.
    driver: Option<String>,
    governor: Option<String>,
    states: Option<Vec<State>>,
}

/// One idle state.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct State {
    name: String,
    /// How long leaving it takes, as the driver says.
    latency_us: Option<u64>,
    disabled: Option<bool>,
}

impl Idle {
    /// Reads it from the kernel's files.
    #[must_use]
    pub fn read() -> Self {
        Self::of(Path::new(CPUIDLE), Path::new(STATES))
    }

    fn of(cpuidle: &Path, states: &Path) -> Self {
        let governor = text(&cpuidle.join("current_governor")).or_else(|| text(&cpuidle.join("current_governor_ro")));
        Self { driver: text(&cpuidle.join("current_driver")), governor, states: states_in(states) }
    }
}

fn states_in(folder: &Path) -> Option<Vec<State>> {
    let mut numbered: Vec<(u32, State)> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("state")?.parse().ok()?;
            let state = State {
                name: text(&entry.path().join("name"))?,
                latency_us: text(&entry.path().join("latency")).and_then(|latency| latency.parse().ok()),
                disabled: text(&entry.path().join("disable")).map(|disabled| disabled != "0"),
            };
            Some((number, state))
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    Some(numbered.into_iter().map(|(_, state)| state).collect())
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Holds every idle state off that takes time to leave, until it is dropped; nothing outlives the process.
#[derive(Debug)]
pub struct Shallow {
    _request: File,
}

impl Shallow {
    /// Makes the request, and reads back that it is in force.
    pub fn hold() -> Result<Self, Failure> {
        let driver = text(&Path::new(CPUIDLE).join("current_driver"));
        if driver.as_deref().unwrap_or("none") == "none" {
            // The request would be taken, and change nothing.
            return Err(Failure::unsupported(
                "this kernel has no driver for idle states: it halts, and the hypervisor chooses the depth",
            ));
        }
        let hold = || -> io::Result<(File, i32)> {
            let mut request = OpenOptions::new().read(true).write(true).open(LATENCY)?;
            request.write_all(&0i32.to_ne_bytes())?;
            let mut bytes = [0; 4];
            request.read_exact(&mut bytes)?;
            Ok((request, i32::from_ne_bytes(bytes)))
        };
        match hold() {
            Ok((request, 0)) => Ok(Self { _request: request }),
            Ok((_, latency_us)) => Err(Failure::unsupported(format!(
                "a latency of 0 µs was asked of {LATENCY}, but it reads back {latency_us} µs"
            ))),
            Err(error) => Err(Failure {
                errno: error.raw_os_error(),
                ..Failure::unsupported(format!("idle states cannot be held off ({LATENCY}: {error})"))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_in_order_and_what_is_missing_is_nil() {
        let folder = std::env::temp_dir().join(format!("virtgauge-idle-{}", std::process::id()));
        for (number, name, latency) in [(10, "C10", "890"), (0, "POLL", "0"), (2, "C1E", "x")] {
            let state = folder.join(format!("state{number}"));
            fs::create_dir_all(&state).unwrap();
            fs::write(state.join("name"), format!("{name}\n")).unwrap();
            fs::write(state.join("latency"), latency).unwrap();
        }
        fs::write(folder.join("state10/disable"), "1\n").unwrap();
        fs::write(folder.join("current_driver"), "intel_idle\n").unwrap();
        fs::write(folder.join("current_governor_ro"), "menu\n").unwrap();
        let idle = Idle::of(&folder, &folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((idle.driver.as_deref(), idle.governor.as_deref()), (Some("intel_idle"), Some("menu")));
        let states = idle.states.unwrap();
        let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
        assert_eq!(names, ["POLL", "C1E", "C10"]);
        assert_eq!(states[1].latency_us, None);
        assert_eq!((states[2].latency_us, states[2].disabled), (Some(890), Some(true)));

        let nothing = Idle::of(&folder, &folder);
        assert!(nothing.driver.is_none() && nothing.governor.is_none() && nothing.states.is_none());
    }
}
