//! How much of a disk the files of a database take.

use std::collections::HashSet;
use std::fs::{read_dir, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use crate::failure::{Failure, Kind};

/// The unit of `st_blocks`, whatever the file system's own is (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Names of files and folders, from a folder on: `db/*/wal*`, a `*` for any part of a name.
pub type Patterns = Vec<String>;

/// What `files` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Files {
    /// Blocks that the file system has given to them: what is reserved in a sparse file and never written is none.
    pub allocated_bytes: u64,
    /// Of these, what is in the database's log.
    pub log_bytes: u64,
    /// And what is in the files in which it keeps tables.
    pub data_bytes: u64,
    /// How many they are.
    pub files: u64,
}

/// Adds up the files in a folder and in all below it; a file with several names counts once, a link to elsewhere not.
/// What is named as log counts as such, and of the rest as data what is named as data.
///
/// # Errors
/// `bad-request` where the folder cannot be read.
pub fn allocated(folder: &Path, data: &Patterns, log: &Patterns) -> Result<Files, Failure> {
    let mut sum = Sum { folder, data, log, files: Files::default(), known: HashSet::new() };
    sum.add(folder)
        .map_err(|error| Failure::new(Kind::BadRequest, format!("folder: {}: {error}", folder.display())))?;
    Ok(sum.files)
}

/// Whether a path, or a folder that it is in, has one of these names.
fn is_of(path: &Path, patterns: &Patterns) -> bool {
    patterns.iter().any(|pattern| {
        let mut names = path.components();
        pattern
            .split('/')
            .all(|part| names.next().is_some_and(|name| matches(part.as_bytes(), name.as_os_str().as_encoded_bytes())))
    })
}

fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|from| matches(rest, &name[from..])),
        Some((letter, rest)) => name.split_first().is_some_and(|(first, name)| first == letter && matches(rest, name)),
    }
}

struct Sum<'a> {
    folder: &'a Path,
    data: &'a Patterns,
    log: &'a Patterns,
    files: Files,
    known: HashSet<(u64, u64)>,
}

impl Sum<'_> {
    fn add(&mut self, folder: &Path) -> io::Result<()> {
        for entry in read_dir(folder)? {
            let path = entry?.path();
            // A database at work removes files.
            let added = symlink_metadata(&path).and_then(|about| {
                if about.is_dir() {
                    return self.add(&path);
                }
                if about.is_file() && self.known.insert((about.dev(), about.ino())) {
                    let (bytes, within) =
                        (about.blocks() * BLOCK_BYTES, path.strip_prefix(self.folder).unwrap_or(&path));
                    self.files.allocated_bytes += bytes;
                    if is_of(within, self.log) {
                        self.files.log_bytes += bytes;
                    } else if is_of(within, self.data) {
                        self.files.data_bytes += bytes;
                    }
                    self.files.files += 1;
                }
                Ok(())
            });
            match added {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => (),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, create_dir_all, hard_link, remove_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_written_counts_once_and_what_is_only_reserved_does_not() {
        let folder = std::env::temp_dir().join(format!("sensorstore-files-{}", std::process::id()));
        create_dir_all(folder.join("below")).unwrap();
        let written = folder.join("below/written");
        write(&written, vec![7; 300_000]).unwrap();
        File::open(&written).unwrap().sync_all().unwrap(); // some file systems allocate no sooner
        File::create(folder.join("sparse")).unwrap().set_len(1 << 30).unwrap();
        hard_link(&written, folder.join("again")).unwrap();
        symlink("/usr", folder.join("elsewhere")).unwrap();
        let none = Vec::new();
        let files = allocated(&folder, &none, &none).unwrap();
        assert_eq!(files.files, 2);
        assert!((300_000..400_000).contains(&files.allocated_bytes), "{files:?}");
        remove_dir_all(&folder).unwrap();
        assert_eq!(allocated(&folder, &none, &none).unwrap_err().kind, Kind::BadRequest);
    }

    #[test]
    fn a_log_is_no_data_though_it_is_in_the_datas_folder_and_what_is_neither_is_neither() {
        let folder = std::env::temp_dir().join(format!("sensorstore-patterns-{}", std::process::id()));
        for (name, kib) in [("db/readings~1/wal7/0/ts.d", 64), ("db/readings~1/2020/ts.d", 16), ("conf/log", 4)] {
            let file = folder.join(name);
            create_dir_all(file.parent().unwrap()).unwrap();
            write(&file, vec![7; kib << 10]).unwrap();
            File::open(&file).unwrap().sync_all().unwrap();
        }
        let files = allocated(&folder, &vec!["db".into()], &vec!["db/*/wal*".into()]).unwrap();
        assert_eq!((files.data_bytes >> 14, files.log_bytes >> 16), (1, 1), "{files:?}");
        assert!(files.allocated_bytes >= files.data_bytes + files.log_bytes + 4096);
        let all = allocated(&folder, &vec!["*".into()], &Vec::new()).unwrap();
        assert_eq!((all.data_bytes, all.log_bytes), (all.allocated_bytes, 0));
        let other = allocated(&folder, &vec!["d".into(), "db/*/wal".into(), "db2/*".into()], &Vec::new()).unwrap();
        assert_eq!(other.data_bytes, 0);
        remove_dir_all(&folder).unwrap();
    }
}
