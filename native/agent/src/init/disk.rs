//! The machine's data disk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, umount};

use super::root::{attach, make_folder, unescaped};
use super::{BootError, port};

/// The only disk that a machine is given: by virtio, or by User Mode Linux.
const DEVICES: [&str; 2] = ["/dev/vda", "/dev/ubda"];

/// Mounts the disk on the folder that `virtgauge.disk` names, and returns that.
pub(super) fn mount(setting: &str) -> Result<PathBuf, BootError> {
    let folder = unescaped(setting)
        .map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)))
        .filter(|folder| folder.is_absolute())
        .ok_or_else(|| BootError(format!("virtgauge.disk is {setting:?}; accepted: an absolute path")))?;
    let device = port::wait_for(&DEVICES.join(" or "), || DEVICES.into_iter().find(|path| Path::new(path).exists()))?;
    make_folder(&folder, 0o755)?;
    attach(device, &folder, "ext4", MsFlags::MS_NOSUID | MsFlags::MS_NODEV, "")?;
    Ok(folder)
}

/// Writes everything back and takes the disk away; every process that used it is gone by now.
pub(super) fn unmount(folder: &Path) {
    // One that cannot be unmounted is written back by the sync that follows, and recovers from its journal.
    let _ = umount(folder);
}
