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

/// What `files` answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Files {
    /// Blocks that the file system has given to them: what is reserved in a sparse file and never written is none.
    pub allocated_bytes: u64,
    /// How many they are.
    pub files: u64,
}

/// Adds up the files in a folder and in all below it; a file with several names counts once, a link to elsewhere not.
///
/// # Errors
/// `bad-request` where the folder cannot be read.
pub fn allocated(folder: &Path) -> Result<Files, Failure> {
    let (mut files, mut known) = (Files::default(), HashSet::new());
    add(folder, &mut files, &mut known)
        .map_err(|error| Failure::new(Kind::BadRequest, format!("folder: {}: {error}", folder.display())))?;
    Ok(files)
}

fn add(folder: &Path, files: &mut Files, known: &mut HashSet<(u64, u64)>) -> io::Result<()> {
    for entry in read_dir(folder)? {
        let path = entry?.path();
        // A database at work removes files.
        let added = symlink_metadata(&path).and_then(|about| {
            if about.is_dir() {
                return add(&path, files, known);
            }
            if about.is_file() && known.insert((about.dev(), about.ino())) {
                files.allocated_bytes += about.blocks() * BLOCK_BYTES;
                files.files += 1;
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
        let files = allocated(&folder).unwrap();
        assert_eq!(files.files, 2);
        assert!((300_000..400_000).contains(&files.allocated_bytes), "{files:?}");
        remove_dir_all(&folder).unwrap();
        assert_eq!(allocated(&folder).unwrap_err().kind, Kind::BadRequest);
    }
}
