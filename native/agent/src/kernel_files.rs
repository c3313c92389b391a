//! Reading the kernel's own accounts of the guest, below `/proc` and `/sys`.

use std::collections::BTreeMap;
use std::io::Read;

use hptime::OsClock;
use serde::Serialize;
use serde_bytes::ByteBuf;

use crate::channel::bounded::excerpt;
use crate::failure::Failure;
use crate::roots;

/// Most files of one request.
const MOST: usize = 64;

/// Most bytes kept of each: all of them together fit into a frame.
const LARGEST: u64 = 60_000;

/// What the files held; `None` where one could not be read.
#[derive(Debug, PartialEq, Serialize)]
pub struct Contents {
    /// `CLOCK_MONOTONIC` when they had been read.
    monotonic_ns: u64,
    files: BTreeMap<String, Option<ByteBuf>>,
}

/// Reads every file once.
pub fn read(paths: &[String]) -> Result<Contents, Failure> {
    if paths.len() > MOST {
        return Err(Failure::bad_request(format!("paths has {} entries; accepted: at most {MOST}", paths.len())));
    }
    if let Some(path) = paths.iter().find(|path| !roots::is_the_kernels(path)) {
        return Err(Failure::bad_request(format!(
            "paths holds {:?}; accepted: absolute paths below /proc or /sys, without ..",
            excerpt(path)
        )));
    }
    let files = paths.iter().map(|path| (path.clone(), contents(path))).collect();
    Ok(Contents { monotonic_ns: OsClock::Monotonic.now_ns(), files })
}

fn contents(path: &str) -> Option<ByteBuf> {
    let mut bytes = Vec::new();
    roots::open_kernels_own(path).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(ByteBuf::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    #[test]
    fn the_kernels_files_are_read_and_a_missing_one_is_none() {
        let before_ns = OsClock::Monotonic.now_ns();
        let answer = read(&["/proc/uptime".into(), "/proc/no/such".into()]).unwrap();
        assert!((before_ns..=OsClock::Monotonic.now_ns()).contains(&answer.monotonic_ns));
        assert!(answer.files["/proc/uptime"].as_ref().is_some_and(|text| !text.is_empty()));
        assert_eq!(answer.files["/proc/no/such"], None);
    }

    #[test]
    fn nothing_else_is_read() {
        for path in ["/etc/shadow", "proc/uptime", "/proc/../etc/shadow", "", "/process", "/proc", "/sys/"] {
            assert_eq!(read(&[path.into()]).unwrap_err().code, Code::BadRequest, "{path}");
        }
        let out = "/proc/self/root/etc/passwd".to_owned();
        assert_eq!(read(std::slice::from_ref(&out)).unwrap().files[&out], None);
        assert!(read(&vec!["/proc/uptime".to_owned(); MOST + 1]).is_err());
    }
}
