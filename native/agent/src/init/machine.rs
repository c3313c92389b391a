//! File systems, data disks, console and power of the machine.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount, umount2};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, sync};

use super::port::wait_for;
use super::root::{attach, make_folder, unescaped};
use crate::failure::Failure;

/// What is mounted, in this order: source and type, folder, options, whether the machine is of no use without it.
const MOUNTS: [(&str, &str, MsFlags, Option<&str>, bool); 7] = [
    ("proc", "/proc", MsFlags::empty(), None, true),
    ("sysfs", "/sys", MsFlags::empty(), None, true),
    ("devtmpfs", "/dev", MsFlags::empty(), None, true),
    ("devpts", "/dev/pts", MsFlags::empty(), Some("ptmxmode=0666,mode=0620"), false),
    ("tmpfs", "/run", MsFlags::empty(), Some("mode=0755"), false),
    ("tmpfs", "/tmp", MsFlags::empty(), Some("mode=1777"), false),
    ("cgroup2", "/sys/fs/cgroup", MsFlags::empty(), None, false),
];

/// Data disks, as many as a machine can be given.
const LETTERS: [char; 2] = ['a', 'b'];

/// How long programs have between being asked to end and being killed.
const GRACE: Duration = Duration::from_millis(100);

pub(super) fn mount_all() -> Result<(), Failure> {
    for (kind, folder, flags, options, needed) in MOUNTS {
        // On a read-only root the folders exist already, or the mount says what is missing.
        let _ = fs::create_dir_all(folder);
        match mount(Some(kind), Path::new(folder), Some(kind), flags, options) {
            // The kernel may have mounted it itself.
            Ok(()) | Err(Errno::EBUSY) => {}
            Err(errno) if needed => {
                return Err(Failure::unsupported(format!("cannot mount {kind} on {folder}: {errno}")));
            }
            Err(errno) => say(&format!("{kind} on {folder} is missing: {errno}")),
        }
    }
    Ok(())
}

/// Mounts the disks on the folders that `virtgauge.disks` names, in their order, and adds these to `mounted`.  A device
/// before a folder is that disk, where its monitor gives it a serial number of its own.
pub(super) fn mount_disks(setting: &str, mounted: &mut Vec<PathBuf>) -> Result<(), Failure> {
    for (number, word) in setting.split(',').enumerate() {
        let (named, folder) = word.split_once(':').map_or((None, word), |(device, folder)| (Some(device), folder));
        let folder = unescaped(folder)
            .map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)))
            .filter(|folder| folder.is_absolute() && number < LETTERS.len())
            .ok_or_else(|| {
                Failure::bad_request(format!("virtgauge.disks is {setting:?}; accepted: one or two absolute paths"))
            })?;
        let device = wait_for(&format!("the disk {number}"), || match named {
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

/// Makes the console standard input, output and error, which a machine without one at the start lacks.
pub(super) fn attach_console() {
    let Ok(console) = OpenOptions::new().read(true).write(true).open("/dev/console") else {
        return;
    };
    for standard in 0..3 {
        // SAFETY: replaces a descriptor that nothing in this process owns.
        unsafe { libc::dup2(console.as_raw_fd(), standard) };
    }
}

/// Prints on the console, wherever that works.
pub(super) fn say(message: &str) {
    let line = format!("virtgauge-agent: {message}\n");
    // The kernel's log comes first, since it reaches every console; as an error, so that `quiet` does not hide it.
    for (path, level) in [("/dev/kmsg", "<3>"), ("/dev/console", "")] {
        let text = format!("{level}{line}");
        let written = OpenOptions::new().write(true).open(path).and_then(|mut log| log.write_all(text.as_bytes()));
        if written.is_ok() {
            return;
        }
    }
    eprint!("{line}");
}

/// Waits until no child is left; every process of the machine is a child by now, or becomes one when its parent dies.
fn reap_all(bound: Duration) {
    let started = Instant::now();
    while started.elapsed() < bound {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return,
            Ok(WaitStatus::StillAlive) => thread::sleep(Duration::from_millis(1)),
            _ => {}
        }
    }
}

/// Ends all processes, writes everything back, also to the data disks mounted on these folders, and powers off, or
/// restarts where that is what ends the machine.
pub(super) fn power_off(data: &[PathBuf], by_restart: bool) {
    let everyone = Pid::from_raw(-1);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // Also kernel threads count as reached, so the result says nothing.
        let _ = kill(everyone, signal);
        reap_all(GRACE);
    }
    for folder in data.iter().rev() {
        // One that cannot be unmounted is written back by the sync that follows, and recovers from its journal.
        let _ = umount(folder);
    }
    sync();
    for (_, folder, ..) in MOUNTS.iter().rev() {
        // Busy ones are let go; everything on them is in memory.
        let _ = umount2(Path::new(folder), MntFlags::MNT_DETACH);
    }
    // A root that was written to (a disk of the machine) must not be left dirty.
    let _ = mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, None::<&str>);
    sync();
    if !by_restart {
        let _ = reboot(RebootMode::RB_POWER_OFF);
    }
    // Without power management the call above fails, and a restart ends a virtual machine that was told not to restart.
    let _ = reboot(RebootMode::RB_AUTOBOOT);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_an_absolute_folder_is_refused_with_what_is_accepted() {
        for setting in ["data", "/dev/vda:data", "/dev/vda:", ""] {
            let message = mount_disks(setting, &mut Vec::new()).unwrap_err().message;
            assert!(message.contains("one or two absolute paths"), "{message}");
        }
    }
}
