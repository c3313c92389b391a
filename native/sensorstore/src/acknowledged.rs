//! What has been acknowledged, in a file that outlives a kill -9 of the process that writes it.
//!
//! A header of three u64 (little-endian: magic, clients, nanoseconds per slot), then for each slot of time one u64 per
//! writing client: how many of its statements had been acknowledged when it last wrote in that slot, 0 where it did
//! not.  One write of eight bytes per acknowledgement, nothing that waits for a disk: only the process may die.

use std::fs::{File, remove_file};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::failure::{Failure, Kind};

const MAGIC: u64 = u64::from_le_bytes(*b"vgacked1");
const HEADER: u64 = 24;
const SLOT: u64 = 10_000_000;

/// The file while it is written.
#[derive(Debug)]
pub struct Writing {
    file: File,
    clients: u64,
    begin: u64,
}

impl Writing {
    /// A new file, in the place of an old one; its time begins at `begin`.  A guest may write to its folder: no link that
    /// it laid there is followed.
    ///
    /// # Errors
    /// `bad-request` where it cannot be made.
    pub fn create(path: &Path, clients: u64, begin: u64) -> Result<Self, Failure> {
        let write = || {
            let _ = remove_file(path); // what cannot be removed is in the way of the next
            let file = File::create_new(path)?;
            file.write_all_at(&[MAGIC, clients, SLOT].map(u64::to_le_bytes).concat(), 0)?;
            Ok(file)
        };
        let file = write().map_err(|error: std::io::Error| unusable(path, &error))?;
        Ok(Self { file, clients, begin })
    }

    /// So many statements of this client have been acknowledged, the last of them now.
    ///
    /// # Errors
    /// `database` where it cannot be written: what is not in the file cannot be audited.
    pub fn note(&self, client: u64, statements: u64, now: u64) -> Result<(), Failure> {
        let slot = now.saturating_sub(self.begin) / SLOT;
        let place = HEADER + 8 * (slot * self.clients + client);
        let cannot = |error| Failure::new(Kind::Database, format!("cannot note what was acknowledged: {error}"));
        self.file.write_all_at(&statements.to_le_bytes(), place).map_err(cannot)
    }
}

/// The file as it was left.
#[derive(Debug)]
pub struct Left {
    /// For each slot, for each client.
    slots: Vec<Vec<u64>>,
    slot_ns: u64,
    clients: usize,
}

impl Left {
    /// Reads it.
    ///
    /// # Errors
    /// `bad-request` where it cannot be read, or is of other streams.
    pub fn read(path: &Path, clients: u64) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(|error| unusable(path, &error))?;
        let words: Vec<u64> = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        match words[..] {
            [MAGIC, there, slot_ns, ref counts @ ..] if there == clients && clients > 0 => {
                let row = |row: &[u64]| {
                    let mut row = row.to_vec();
                    row.resize(clients as usize, 0); // the last was not written to its end
                    row
                };
                let slots = counts.chunks(clients as usize).map(row).collect();
                Ok(Self { slots, slot_ns, clients: clients as usize })
            }
            _ => {
                let message = format!("{} is not what a measurement with {clients} writers left", path.display());
                Err(Failure::new(Kind::BadRequest, message))
            }
        }
    }

    /// How many statements of each client were acknowledged.
    #[must_use]
    pub fn statements(&self) -> Vec<u64> {
        (0..self.clients).map(|client| self.slots.iter().map(|row| row[client]).max().unwrap_or(0)).collect()
    }

    /// How long before the last acknowledgement of all this statement of a client was acknowledged, in milliseconds to
    /// 10; nothing if it was not.
    #[must_use]
    pub fn age_ms(&self, client: usize, statement: u64) -> Option<u64> {
        let then = self.slots.iter().position(|row| row[client] > statement)?;
        let last = self.slots.iter().rposition(|row| row.iter().any(|&count| count > 0))?;
        Some((last - then) as u64 * self.slot_ns / 1_000_000)
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Kind::BadRequest, format!("acknowledged: {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::hard_link;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("sensorstore-acknowledged-{}-link", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (other, path) = (folder.join("other"), folder.join("acknowledged"));
        for link in
            [|other: &Path, path: &Path| symlink(other, path), |other: &Path, path: &Path| hard_link(other, path)]
        {
            std::fs::write(&other, "secret").unwrap();
            link(&other, &path).unwrap();
            Writing::create(&path, 2, 1000).unwrap().note(1, 1, 1000).unwrap();
            assert_eq!(std::fs::read_to_string(&other).unwrap(), "secret");
            assert_eq!(Left::read(&path, 2).unwrap().statements(), [0, 1]);
            remove_file(&path).unwrap();
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_left_tells_how_many_and_when() {
        let path = std::env::temp_dir().join(format!("sensorstore-acknowledged-{}", std::process::id()));
        let writing = Writing::create(&path, 2, 1000).unwrap();
        for statement in 0..100 {
            writing.note(1, statement + 1, 1000 + statement * 1_000_000).unwrap(); // one per millisecond
        }
        let left = Left::read(&path, 2).unwrap();
        assert_eq!(left.statements(), [0, 100]);
        assert_eq!((left.age_ms(1, 99), left.age_ms(1, 0), left.age_ms(1, 35)), (Some(0), Some(90), Some(60)));
        assert_eq!((left.age_ms(1, 100), left.age_ms(0, 0)), (None, None));
        assert_eq!(Left::read(&path, 3).unwrap_err().kind, Kind::BadRequest);
        remove_file(&path).unwrap();
    }
}
