//! The machine's own address, where its agent calls the controller through a network.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::channel::bounded::Bounded;
use crate::network::{Interface, Route, configure};

use super::BootError;
use super::port::wait_for;

const INTERFACES: &str = "/sys/class/net";

/// Sets the address that the settings name, on the interface that they name or on the first.
///
/// Without an address the kernel keeps what it has; a gateway or an interface alone mean nothing.
pub(super) fn set(settings: &HashMap<&str, &str>) -> Result<(), BootError> {
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
        .map_err(|failure| BootError(format!("virtgauge.address={address} cannot be set: {}", failure.message)))
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
    use super::*;

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
        assert_eq!(set(&HashMap::from([("gateway", "10.0.0.1")])), Ok(()));
    }
}
