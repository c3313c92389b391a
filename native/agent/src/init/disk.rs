//! The machine's data disks.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, umount};

use super::root::{attach, make_folder, unescaped};
use super::{BootError, port};

/// As many as a machine can be given.
const LETTERS: [char; 2] = ['a', 'b'];

/// Mounts the disks on the folders that `virtgauge.disks` names, in their order, and adds these to `mounted`.  A device
/// before a folder is that disk, where its monitor gives it a serial number of its own.
pub(super) fn mount(setting: &str, mounted: &mut Vec<PathBuf>) -> Result<(), BootError> {
    for (number, word) in setting.split(',').enumerate() {
        let (named, folder) = word.split_once(':').map_or((None, word), |(device, folder)| (Some(device), folder));
        let folder = unescaped(folder)
            .map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)))
            .filter(|folder| folder.is_absolute() && number < LETTERS.len())
            .ok_or_else(|| BootError(format!("virtgauge.disks is {setting:?}; accepted: one or two absolute paths")))?;
        let device = port::wait_for(&format!("the disk {number}"), || match named {
            Some(name) => Path::new(name).exists().then(|| name.to_owned()),
            None => device(number),
        })?;
        make_folder(&folder, 0o755)?;
        attach(&device, &folder, "ext4", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "")?;
        mounted.push(folder);
    }
    Ok(())
}

/// A disk's device as soon as it is there: virtio's by the serial number `diskN`, because they are found in an order of
/// their own, and User Mode Linux's by its letter.
fn device(number: usize) -> Option<String> {
    let own = format!("/dev/ubd{}", LETTERS[number]);
    let serial = format!("disk{number}");
    let is_it =
        |letter| fs::read_to_string(format!("/sys/block/vd{letter}/serial")).is_ok_and(|told| told.trim() == serial);
    let by_serial = LETTERS.into_iter().find(|letter| is_it(*letter)).map(|letter| format!("/dev/vd{letter}"));
    by_serial.or(Some(own)).filter(|path| Path::new(path).exists())
}

/// Writes everything back and takes a disk away; every process that used it is gone by now.
pub(super) fn unmount(folder: &Path) {
    // One that cannot be unmounted is written back by the sync that follows, and recovers from its journal.
    let _ = umount(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_an_absolute_folder_is_refused_with_what_is_accepted() {
        for setting in ["data", "/dev/vda:data", "/dev/vda:", ""] {
            let BootError(message) = mount(setting, &mut Vec::new()).unwrap_err();
            assert!(message.contains("one or two absolute paths"), "{message}");
        }
    }
}
