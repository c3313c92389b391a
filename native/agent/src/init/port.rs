//! The channel's device inside a virtual machine.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{ControlFlags, SetArg, cfmakeraw, tcgetattr, tcsetattr};

use super::BootError;

/// How long a device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);

/// How long the host may take to connect to the other end.
const HOST_WAIT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(2);

/// The two directions of a channel over one device.
#[derive(Debug)]
pub struct Port {
    /// To read from.
    pub input: OwnedFd,
    /// To write to.
    pub output: OwnedFd,
    /// Whether it is a line that may lose bytes, and so carries the stream in acknowledged packets.
    pub serial: bool,
}

impl Port {
    /// Opens what the kernel's command line names: `virtio:NAME` or `serial:DEVICE`.
    pub fn open(channel: &str) -> Result<Self, BootError> {
        match channel.split_once(':') {
            Some(("virtio", name)) => {
                let path = wait_for(&format!("a virtio port named {name}"), || virtio_port(name))?;
                let port = wait_for(&path.display().to_string(), || open_nonblocking(&path).ok())?;
                wait_for_host(&port)?;
                Self::both_directions(port, false)
            }
            Some(("serial", path)) => {
                let port = wait_for(path, || open_nonblocking(Path::new(path)).ok())?;
                Self::from_device(port)
            }
            _ => Err(BootError(format!("virtgauge.channel is {channel:?}; accepted: virtio:NAME or serial:DEVICE"))),
        }
    }

    /// Opens a device or connects to a socket, for an agent that is not the first process.
    pub fn at(path: &Path) -> io::Result<Self> {
        let failed = |BootError(message)| io::Error::other(message);
        match open_nonblocking(path) {
            Ok(device) => Self::from_device(device).map_err(failed),
            // The answer to opening a socket as a file.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                let socket = std::os::unix::net::UnixStream::connect(path)?;
                Self::both_directions(File::from(OwnedFd::from(socket)), false).map_err(failed)
            }
            Err(error) => Err(error),
        }
    }

    /// A device, switched to pass every byte when it is a terminal.
    fn from_device(device: File) -> Result<Self, BootError> {
        let Ok(mut settings) = tcgetattr(&device) else {
            return Self::both_directions(device, false);
        };
        cfmakeraw(&mut settings);
        // The fastest that every UART has, emulated ones among them; a line that is none does not care.  (The function
        // that sets it is not in the static C library under the name that the bindings ask for.)
        settings.control_flags.remove(ControlFlags::CBAUD);
        settings.control_flags.insert(ControlFlags::from_bits_retain(libc::B115200));
        tcsetattr(&device, SetArg::TCSANOW, &settings)
            .map_err(|errno| BootError(format!("cannot switch the terminal to raw mode: {errno}")))?;
        Self::both_directions(device, true)
    }

    fn both_directions(device: File, serial: bool) -> Result<Self, BootError> {
        let output = device.try_clone().map_err(|error| BootError(format!("cannot duplicate the channel: {error}")))?;
        Ok(Self { input: device.into(), output: output.into(), serial })
    }
}

fn open_nonblocking(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)
}

/// The device of the port that the host gave this name.
fn virtio_port(name: &str) -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let port = ports
        .flatten()
        .find(|port| fs::read_to_string(port.path().join("name")).is_ok_and(|text| text.trim() == name))?;
    Some(Path::new("/dev").join(port.file_name()))
}

/// Waits until the host has connected to its end: before that, reads end and writes block.
fn wait_for_host(port: &File) -> Result<(), BootError> {
    let connected = || {
        let mut polled = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).ok()?;
        let hung_up = polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        (!hung_up).then_some(())
    };
    wait_up_to(HOST_WAIT, connected).ok_or_else(|| {
        BootError(format!("the host did not connect to the virtio port within {} s", HOST_WAIT.as_secs()))
    })
}

pub(super) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> Result<T, BootError> {
    wait_up_to(DEVICE_WAIT, look)
        .ok_or_else(|| BootError(format!("{what} did not appear within {} s", DEVICE_WAIT.as_secs())))
}

fn wait_up_to<T>(bound: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if started.elapsed() >= bound {
            return None;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_unknown_channel_is_refused_with_what_is_accepted() {
        let BootError(message) = Port::open("pigeon:coo").unwrap_err();
        assert!(message.contains("virtio:NAME"), "{message}");
    }

    #[test]
    fn a_socket_is_connected_to() {
        let path = std::env::temp_dir().join(format!("virtgauge-port-{}.socket", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let port = Port::at(&path).unwrap();
        let (mut host, _) = listener.accept().unwrap();
        File::from(port.output).write_all(b"x").unwrap();
        let mut byte = [0];
        host.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn waiting_is_bounded() {
        assert_eq!(wait_up_to(Duration::from_millis(5), || None::<()>), None);
        assert_eq!(wait_up_to(Duration::ZERO, || Some(1)), Some(1));
    }
}
