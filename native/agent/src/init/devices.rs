//! Loading the drivers of whatever devices a machine has, where nobody could tell beforehand.
//!
//! Every device says in sysfs what it is (its `modalias`), and every module file which devices it drives (its aliases).
//! A driver may bring up a bus with more devices behind it, now or later: so this looks again until nothing new has
//! appeared for a while, and leaves a process behind that is told of later devices by the kernel, and sleeps till then.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use netlink_sys::{Socket, SocketAddr};
use nix::unistd::{ForkResult, fork};

use super::machine;
use super::modules::Modules;
use crate::failure::Failure;

const BUSES: &str = "/sys/bus";

/// How long nothing new must have appeared: a disk controller looks for its disks in the background.
const SETTLED: Duration = Duration::from_millis(150);

/// How long to wait for that at most: a bus may never come to rest.
const BOUND: Duration = Duration::from_secs(5);

const PAUSE: Duration = Duration::from_millis(10);

/// `NETLINK_KOBJECT_UEVENT`, and its group to which the kernel itself speaks.
const KERNEL_EVENTS: (isize, u32) = (15, 1);

/// Longer than the kernel's longest event (`UEVENT_BUFFER_SIZE` and its header).
const EVENT_BYTES: usize = 8192;

/// Which modules drive which devices, and which devices are served.
pub struct Drivers {
    modules: Modules,
    aliases: Vec<(CString, String)>,
    seen: HashSet<String>,
}

impl Drivers {
    /// Reads the aliases of all modules.
    pub fn of(modules: Modules) -> Result<Self, Failure> {
        let aliases = modules.aliases()?;
        let aliases = aliases.into_iter().filter_map(|(alias, name)| Some((CString::new(alias).ok()?, name))).collect();
        Ok(Self { modules, aliases, seen: HashSet::new() })
    }

    /// Names of the modules that drive a device.
    fn of_device(&self, modalias: &str) -> Vec<&str> {
        let Ok(device) = CString::new(modalias) else {
            return Vec::new();
        };
        // SAFETY: both are strings that end with a zero, and outlive the call.
        let fits = |alias: &CString| unsafe { libc::fnmatch(alias.as_ptr(), device.as_ptr(), 0) } == 0;
        self.aliases.iter().filter(|(alias, _)| fits(alias)).map(|(_, name)| name.as_str()).collect()
    }

    /// Loads the drivers of a device that was not seen before; whether it was new.
    fn serve(&mut self, modalias: &str) -> bool {
        if !self.seen.insert(modalias.to_owned()) {
            return false;
        }
        for name in self.of_device(modalias) {
            // The other devices are worth their drivers all the same.
            if let Err(error) = self.modules.load(std::iter::once(name)) {
                machine::say(&format!("{modalias}: {error}"));
            }
        }
        true
    }

    /// Serves every device that sysfs knows; whether one was new.
    fn serve_all(&mut self) -> bool {
        let mut new = false;
        for modalias in present(Path::new(BUSES)) {
            new |= self.serve(&modalias);
        }
        new
    }

    /// Serves every device of which the kernel tells from now on; never returns while it does.
    fn serve_later_ones(&mut self) -> std::io::Result<()> {
        let (protocol, group) = KERNEL_EVENTS;
        let mut socket = Socket::new(protocol)?;
        socket.bind(&SocketAddr::new(0, group))?;
        self.serve_all(); // what came before the kernel was listened to
        let mut event = Vec::with_capacity(EVENT_BYTES);
        loop {
            event.clear();
            match socket.recv(&mut event, 0) {
                Ok(_) => {
                    if let Some(modalias) = added(&event) {
                        self.serve(&modalias);
                    }
                }
                // Events were lost: what they told of is in sysfs.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.serve_all();
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Loads the drivers of all devices, and leaves a process behind that does so for later ones.
pub(super) fn drive(modules: Modules) -> Result<(), Failure> {
    let mut drivers = Drivers::of(modules)?;
    let started = Instant::now();
    let mut quiet_since = Instant::now();
    while quiet_since.elapsed() < SETTLED && started.elapsed() < BOUND {
        if drivers.serve_all() {
            quiet_since = Instant::now();
        }
        thread::sleep(PAUSE);
    }
    // SAFETY: no other thread exists yet, so the child may do whatever the parent could.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            let ended = drivers.serve_later_ones();
            if let Err(error) = ended {
                machine::say(&format!("later devices find no driver: {error}"));
            }
            std::process::exit(1);
        }
        Ok(ForkResult::Parent { .. }) => Ok(()),
        Err(errno) => Err(Failure::unsupported(format!("cannot fork: {errno}"))),
    }
}

/// What the devices below a folder of buses say they are.
fn present(buses: &Path) -> Vec<String> {
    let below = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let devices = below(buses).flat_map(|bus| below(&bus.join("devices")).collect::<Vec<_>>());
    let mut found: Vec<String> = devices
        .filter_map(|device| fs::read_to_string(device.join("modalias")).ok())
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect();
    found.sort(); // in the same order at every boot
    found
}

/// What a device that has just appeared says it is (kernel, `lib/kobject_uevent.c`: fields that end with a zero).
fn added(event: &[u8]) -> Option<String> {
    let fields: Vec<&[u8]> = event.split(|&byte| byte == 0).collect();
    let value = |key: &[u8]| fields.iter().find_map(|field| field.strip_prefix(key));
    (value(b"ACTION=")? == b"add").then(|| String::from_utf8(value(b"MODALIAS=")?.to_vec()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_kernel_tells_of_devices_is_read_or_passed_over() {
        fuzz::fuzz("uevent", include_str!("../../../fuzz/corpus/uevent.txt"), |input| {
            let _ = added(input);
        });
    }

    fn drivers(aliases: &[(&str, &str)]) -> Drivers {
        let folder = std::env::temp_dir().join(format!("virtgauge-devices-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let aliases = aliases.iter().map(|&(alias, name)| (CString::new(alias).unwrap(), name.to_owned())).collect();
        Drivers { modules: Modules::in_folder(&folder).unwrap(), aliases, seen: HashSet::new() }
    }

    const VMXNET3: &str = "pci:v000015ADd000007B0sv000015ADsd000007B0bc02sc00i00";

    #[test]
    fn a_device_is_driven_by_every_module_whose_pattern_fits() {
        let drivers = drivers(&[
            ("pci:v000015ADd000007B0sv*sd*bc*sc*i*", "vmxnet3"),
            ("pci:v00008086d0000100Esv*sd*bc*sc*i*", "e1000"),
            ("pci:v000015AD*bc0[12]*", "another"),
        ]);
        assert_eq!(drivers.of_device(VMXNET3), ["vmxnet3", "another"]);
        assert!(drivers.of_device("virtio:d00000001v00001AF4").is_empty());
        assert!(drivers.of_device("pci:\0").is_empty());
    }

    #[test]
    fn a_device_is_served_once() {
        let mut drivers = drivers(&[]);
        assert!(drivers.serve(VMXNET3));
        assert!(!drivers.serve(VMXNET3));
    }

    #[test]
    fn only_a_device_that_is_added_and_says_what_it_is_is_told_of() {
        let event = |action: &str| format!("{action}@/devices/x\0ACTION={action}\0SUBSYSTEM=pci\0MODALIAS={VMXNET3}\0");
        assert_eq!(added(event("add").as_bytes()), Some(VMXNET3.to_owned()));
        assert_eq!(added(event("remove").as_bytes()), None);
        assert_eq!(added(b"add@/devices/x\0ACTION=add\0"), None);
        assert_eq!(added(b""), None);
    }

    #[test]
    fn what_devices_say_is_read_from_every_bus() {
        let buses = std::env::temp_dir().join(format!("virtgauge-buses-{}", std::process::id()));
        for (bus, device, text) in [("pci", "0", "pci:b\n"), ("acpi", "1", "acpi:a\n"), ("pci", "2", "\n")] {
            let folder = buses.join(bus).join("devices").join(device);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("modalias"), text).unwrap();
        }
        fs::create_dir_all(buses.join("pci/devices/silent")).unwrap();
        let found = present(&buses);
        fs::remove_dir_all(&buses).unwrap();
        assert_eq!(found, ["acpi:a", "pci:b"]);
    }
}
