//! The way to the controller: the channel's device inside a virtual machine, or the machine's own address, where its
//! agent calls through a network.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{ControlFlags, SetArg, cfmakeraw, tcgetattr, tcsetattr};

use crate::channel::bounded::Bounded;
use crate::failure::Failure;
use crate::network::{Interface, Route, configure};

/// How long a device may take to appear.
const DEVICE_WAIT: Duration = Duration::from_secs(10);

/// How long the host may take to connect to the other end.
const HOST_WAIT: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(2);

const INTERFACES: &str = "/sys/class/net";

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
    pub fn open(channel: &str) -> Result<Self, Failure> {
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
            _ => {
                let accepted = "virtio:NAME or serial:DEVICE";
                Err(Failure::bad_request(format!("virtgauge.channel is {channel:?}; accepted: {accepted}")))
            }
        }
    }

    /// Opens a device or connects to a socket, for an agent that is not the first process.
    pub fn at(path: &Path) -> io::Result<Self> {
        match open_nonblocking(path) {
            Ok(device) => Self::from_device(device).map_err(io::Error::other),
            // The answer to opening a socket as a file.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                let socket = std::os::unix::net::UnixStream::connect(path)?;
                Self::both_directions(File::from(OwnedFd::from(socket)), false).map_err(io::Error::other)
            }
            Err(error) => Err(error),
        }
    }

    /// A device, switched to pass every byte when it is a terminal.
    fn from_device(device: File) -> Result<Self, Failure> {
        let Ok(mut settings) = tcgetattr(&device) else {
            return Self::both_directions(device, false);
        };
        cfmakeraw(&mut settings);
        // The fastest that every UART has, emulated ones among them; a line that is none does not care.  (The function
        // that sets it is not in the static C library under the name that the bindings ask for.)
        settings.control_flags.remove(ControlFlags::CBAUD);
        settings.control_flags.insert(ControlFlags::from_bits_retain(libc::B115200));
        tcsetattr(&device, SetArg::TCSANOW, &settings)
            .map_err(|errno| Failure::unsupported(format!("cannot switch the terminal to raw mode: {errno}")))?;
        Self::both_directions(device, true)
    }

    fn both_directions(device: File, serial: bool) -> Result<Self, Failure> {
        let output = device.try_clone().map_err(|error| Failure::os("cannot duplicate the channel", &error))?;
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
fn wait_for_host(port: &File) -> Result<(), Failure> {
    let connected = || {
        let mut polled = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).ok()?;
        let hung_up = polled[0].revents().is_some_and(|events| events.contains(PollFlags::POLLHUP));
        (!hung_up).then_some(())
    };
    wait_up_to(HOST_WAIT, connected).ok_or_else(|| {
        Failure::unsupported(format!("the host did not connect to the virtio port within {} s", HOST_WAIT.as_secs()))
    })
}

pub(super) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    wait_up_to(DEVICE_WAIT, look)
        .ok_or_else(|| Failure::unsupported(format!("{what} did not appear within {} s", DEVICE_WAIT.as_secs())))
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

/// Sets the address that the settings name, on the interface that they name or on the first.
///
/// Without an address the kernel keeps what it has; a gateway or an interface alone mean nothing.
pub(super) fn set_address(settings: &HashMap<&str, &str>) -> Result<(), Failure> {
    let Some(&address) = settings.get("address") else {
        return Ok(());
    };
    let wanted = settings.get("nic").copied();
    let what = wanted.map_or_else(|| "a network interface".to_owned(), |mac| format!("a network interface {mac}"));
    let name = wait_for(&what, || interface(Path::new(INTERFACES), wanted))?;
    let routes = settings.get("gateway").map(|&via| Route { to: "default".into(), via: Some(via.into()) });
    let asked = Interface {
        name: Some(name),
        addresses: Bounded(vec![address.to_owned()]),
        routes: Bounded(routes.into_iter().collect()),
        ..Interface::default()
    };
    configure(&[asked], false)
        .map(drop)
        .map_err(|why| Failure { message: format!("virtgauge.address={address} cannot be set: {why}"), ..why })
}

/// The name of the interface with a hardware address, or of the first one but the loopback.
fn interface(folder: &Path, wanted: Option<&str>) -> Option<String> {
    let mut found: Vec<(String, String)> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let mac = fs::read_to_string(entry.path().join("address")).ok()?.trim().to_owned();
            Some((entry.file_name().into_string().ok()?, mac))
        })
        .filter(|(name, _)| name != "lo")
        .collect();
    found.sort();
    let fits = |mac: &str| wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(mac));
    found.into_iter().find(|(_, mac)| fits(mac)).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_unknown_channel_is_refused_with_what_is_accepted() {
        let message = Port::open("pigeon:coo").unwrap_err().message;
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

    #[test]
    fn the_interface_is_the_one_of_the_hardware_address_or_the_first() {
        let folder = std::env::temp_dir().join(format!("virtgauge-interfaces-{}", std::process::id()));
        for (name, mac) in [("eth1", "52:54:00:00:00:0b"), ("eth0", "52:54:00:00:00:0a"), ("lo", "00:00:00:00:00:00")] {
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("address"), format!("{mac}\n")).unwrap();
        }
        let found = [None, Some("52:54:00:00:00:0B"), Some("52:54:00:00:00:0c")].map(|mac| interface(&folder, mac));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found, [Some("eth0".to_owned()), Some("eth1".to_owned()), None]);
    }

    #[test]
    fn without_an_address_nothing_is_waited_for() {
        assert_eq!(set_address(&HashMap::from([("gateway", "10.0.0.1")])), Ok(()));
    }
}
