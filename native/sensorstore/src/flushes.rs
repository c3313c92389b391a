//! What the flush laboratory (`native/flushlab`) has counted.

use std::path::Path;

use serde::Serialize;

use crate::failure::{Failure, Kind};

const MAGIC: &[u8; 8] = b"VGFLUSH1";

/// What `flushes` answers: how many of each kind succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flushes {
    /// `fsync`.
    pub fsync: u64,
    /// `fdatasync`.
    pub fdatasync: u64,
    /// `msync` with `MS_SYNC`.
    pub msync: u64,
    /// Writes that are flushes of their own.
    pub sync_writes: u64,
    /// `sync_file_range`, `syncfs`, `sync`.
    pub other: u64,
    /// All of these.
    pub total: u64,
    /// How long they took, together.
    pub time_ns: u64,
    /// Those that failed.
    pub failed: u64,
    /// Those that succeeded, whose time is not known.
    pub untimed: u64,
    /// Files opened for writes that are flushes, which the laboratory could not see.
    pub dsync_opens: u64,
}

/// Reads the counters' file: after the magic, a counter at every 64 bytes.
///
/// # Errors
/// `bad-request` where it cannot be read, or is no such file.
pub fn read(path: &Path) -> Result<Flushes, Failure> {
    let refused = |what: &str| Failure::new(Kind::BadRequest, format!("{}: {what}", path.display()));
    let page = std::fs::read(path).map_err(|error| refused(&error.to_string()))?;
    if !page.starts_with(MAGIC) || page.len() < 64 * 10 {
        return Err(refused("no file of flush counters"));
    }
    let counter = |number: usize| {
        let (counter, _) = page[64 * (number + 1)..].split_first_chunk().expect("the length has been checked");
        u64::from_le_bytes(*counter)
    };
    Ok(Flushes {
        fsync: counter(0),
        fdatasync: counter(1),
        msync: counter(2),
        sync_writes: counter(3),
        other: counter(4),
        total: (0..5).map(counter).sum(),
        time_ns: counter(5),
        failed: counter(6),
        untimed: counter(7),
        dsync_opens: counter(8),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_where_the_laboratory_puts_them() {
        let path = std::env::temp_dir().join(format!("sensorstore-flushes-{}", std::process::id()));
        let mut page = vec![0; 4096];
        page[..8].copy_from_slice(MAGIC);
        for number in 1..=9_u8 {
            page[64 * usize::from(number)] = number;
        }
        std::fs::write(&path, &page).unwrap();
        let flushes = read(&path).unwrap();
        assert_eq!((flushes.fsync, flushes.other, flushes.total, flushes.time_ns), (1, 5, 15, 6));
        assert_eq!((flushes.failed, flushes.untimed, flushes.dsync_opens), (7, 8, 9));
        std::fs::write(&path, b"something else").unwrap();
        assert_eq!(read(&path).unwrap_err().kind, Kind::BadRequest);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&path).unwrap_err().kind, Kind::BadRequest);
    }
}
