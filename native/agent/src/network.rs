//! Addresses, routes and neighbours of this guest's interfaces, set through netlink.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::catch_unwind;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use serde::{Deserialize, Serialize};

use crate::channel::bounded::{Bounded, excerpt};
use crate::failure::{Code, Failure};

/// What one interface shall become.  What is not mentioned stays as it is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Interface {
    /// Its hardware address, `52:54:00:00:00:01`; this or the name.
    pub mac: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Addresses with prefix length, `10.0.0.1/24`.
    pub addresses: Bounded<String>,
    /// Routes through it.
    pub routes: Bounded<Route>,
    /// Permanent neighbours on it.
    pub neighbours: Bounded<Neighbour>,
    /// Its largest packet, in bytes.
    pub mtu: Option<u32>,
    /// Whether it shall be up; it is brought up when this is not given.
    pub up: Option<bool>,
}

/// A route.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Route {
    /// Destination with prefix length, or `default`.
    pub to: String,
    /// The next router; without one the destination is on the link.
    #[serde(default)]
    pub via: Option<String>,
}

/// A neighbour whose hardware address is known.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Neighbour {
    /// Its IP address.
    pub address: String,
    /// Its hardware address.
    pub mac: String,
}

/// The interfaces that were configured, by name, in the order of the request.
#[derive(Debug, Serialize)]
pub struct Configured {
    interfaces: Vec<String>,
}

/// Configures all interfaces, then forwarding.  Stops at the first failure; what was done before it stays.
pub fn configure(interfaces: &[Interface], forwarding: bool) -> Result<Configured, Failure> {
    let mut names = Vec::new();
    if !interfaces.is_empty() {
        let mut netlink = Netlink::open().map_err(|error| Failure::os("opening a netlink socket", &error))?;
        let links = netlink.links().map_err(|error| Failure::os("listing the interfaces", &error))?;
        for interface in interfaces {
            let link = find(&links, interface)?;
            netlink.configure(link, interface)?;
            names.push(link.name.clone());
        }
    }
    set_forwarding(forwarding)?;
    Ok(Configured { interfaces: names })
}

fn set_forwarding(on: bool) -> Result<(), Failure> {
    const SWITCH: &str = "/proc/sys/net/ipv4/ip_forward";
    let wanted = if on { "1" } else { "0" };
    // A sandbox may show the switch read-only at the value that is wanted.
    if fs::read_to_string(SWITCH).is_ok_and(|now| now.trim() == wanted) {
        return Ok(());
    }
    fs::write(SWITCH, wanted).map_err(|error| Failure::os(&format!("writing {wanted} to {SWITCH}"), &error))
}

#[derive(Clone, Debug)]
struct Link {
    index: u32,
    name: String,
    mac: Vec<u8>,
}

fn find<'a>(links: &'a [Link], wanted: &Interface) -> Result<&'a Link, Failure> {
    let mac = wanted.mac.as_deref().map(|text| parse_mac("interfaces.mac", text)).transpose()?;
    if mac.is_none() && wanted.name.is_none() {
        return Err(Failure::bad_request("interfaces: an entry has neither mac nor name; accepted: one of them"));
    }
    let matches = |link: &&Link| {
        mac.as_ref().is_none_or(|mac| link.mac == mac) && wanted.name.as_ref().is_none_or(|name| &link.name == name)
    };
    links.iter().find(matches).ok_or_else(|| {
        let present: Vec<String> =
            links.iter().map(|link| format!("{} ({})", link.name, mac_text(&link.mac))).collect();
        let asked = wanted.mac.as_deref().or(wanted.name.as_deref()).unwrap_or_default();
        Failure::new(Code::NotFound, format!("no interface {}; there are: {}", excerpt(asked), present.join(", ")))
    })
}

fn mac_text(mac: &[u8]) -> String {
    mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn parse_mac(field: &str, text: &str) -> Result<[u8; 6], Failure> {
    let refusal =
        || Failure::bad_request(format!("{field} is {:?}; accepted: six hex bytes, 52:54:00:00:00:01", excerpt(text)));
    let bytes: Result<Vec<u8>, _> = text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes.ok().and_then(|bytes| bytes.try_into().ok()).ok_or_else(refusal)
}

fn parse_ip(field: &str, text: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|_| Failure::bad_request(format!("{field} is {:?}; accepted: an IP address", excerpt(text))))
}

fn parse_prefix(field: &str, text: &str) -> Result<(IpAddr, u8), Failure> {
    let parsed = || {
        let (address, length) = text.split_once('/')?;
        let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
    };
    let refusal = || {
        Failure::bad_request(format!(
            "{field} is {:?}; accepted: an IP address and a prefix length, 10.0.0.1/24",
            excerpt(text)
        ))
    };
    parsed().ok_or_else(refusal)
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    fn configure(&mut self, link: &Link, wanted: &Interface) -> Result<(), Failure> {
        let name = &link.name;
        let up = wanted.up.unwrap_or(true);
        self.change(
            &format!("setting {name} up or its mtu"),
            RouteNetlinkMessage::SetLink(link_message(link, up, wanted.mtu)),
        )?;
        for text in &wanted.addresses.0 {
            let (address, length) = parse_prefix("interfaces.addresses", text)?;
            let message = address_message(link, address, length);
            self.change(&format!("giving {name} the address {text}"), RouteNetlinkMessage::NewAddress(message))?;
        }
        for route in &wanted.routes.0 {
            let message = route_message(link, route)?;
            self.change(
                &format!("routing {} through {name}", excerpt(&route.to)),
                RouteNetlinkMessage::NewRoute(message),
            )?;
        }
        for neighbour in &wanted.neighbours.0 {
            let message = neighbour_message(link, neighbour)?;
            let attempt = format!("making {} a neighbour on {name}", excerpt(&neighbour.address));
            self.change(&attempt, RouteNetlinkMessage::NewNeighbour(message))?;
        }
        Ok(())
    }

    fn change(&mut self, attempt: &str, message: RouteNetlinkMessage) -> Result<(), Failure> {
        let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        self.exchange(message, flags, |_| ()).map_err(|error| Failure::os(attempt, &error))
    }

    fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        self.exchange(request, NLM_F_REQUEST | NLM_F_DUMP, |answer| {
            if let RouteNetlinkMessage::NewLink(message) = answer {
                let mut link = Link { index: message.header.index, name: String::new(), mac: Vec::new() };
                for attribute in message.attributes {
                    match attribute {
                        LinkAttribute::IfName(name) => link.name = name,
                        LinkAttribute::Address(mac) => link.mac = mac,
                        _ => {}
                    }
                }
                links.push(link);
            }
        })?;
        Ok(links)
    }

    /// Sends one request and reads until the kernel says that it is done.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if answers(&datagram, self.sequence, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Hands on what of a datagram answers this request; whether the answer ends with it.
fn answers(mut rest: &[u8], sequence: u32, each: &mut impl FnMut(RouteNetlinkMessage)) -> io::Result<bool> {
    while !rest.is_empty() {
        let answer = decoded(rest)?;
        let length = (answer.header.length as usize).next_multiple_of(4).max(16);
        rest = rest.get(length..).unwrap_or_default();
        if answer.header.sequence_number != sequence {
            continue;
        }
        match answer.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => {
                return error
                    .code
                    .map_or(Ok(true), |code| Err(io::Error::from_raw_os_error(code.get().wrapping_neg())));
            }
            NetlinkPayload::InnerMessage(message) => each(message),
            _ => {}
        }
    }
    Ok(false)
}

/// The first message of some bytes.
fn decoded(bytes: &[u8]) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
    // The library's own checks of lengths have gaps, which end in a panic.
    let decoded = catch_unwind(|| NetlinkMessage::deserialize(bytes));
    decoded.map_err(|_| io::Error::other("the kernel's message is too short"))?.map_err(io::Error::other)
}

fn link_message(link: &Link, up: bool, mtu: Option<u32>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link.index;
    message.header.change_mask = LinkFlags::Up;
    if up {
        message.header.flags = LinkFlags::Up;
    }
    message.attributes.extend(mtu.map(LinkAttribute::Mtu));
    message
}

fn address_message(link: &Link, address: IpAddr, length: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = length;
    message.header.index = link.index;
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    if let (IpAddr::V4(address), ..31) = (address, length) {
        let broadcast = u32::from(address) | u32::MAX.checked_shr(u32::from(length)).unwrap_or(0);
        message.attributes.push(AddressAttribute::Broadcast(Ipv4Addr::from(broadcast)));
    }
    message
}

fn route_message(link: &Link, route: &Route) -> Result<RouteMessage, Failure> {
    let via = route.via.as_deref().map(|text| parse_ip("interfaces.routes.via", text)).transpose()?;
    let destination = match route.to.as_str() {
        "default" => None,
        text => Some(parse_prefix("interfaces.routes.to", text)?),
    };
    let mut message = RouteMessage::default();
    message.header.address_family = destination.map(|(address, _)| address).or(via).map_or(AddressFamily::Inet, family);
    message.header.destination_prefix_length = destination.map_or(0, |(_, length)| length);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = if via.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Oif(link.index));
    message.attributes.extend(destination.map(|(address, _)| RouteAttribute::Destination(route_address(address))));
    message.attributes.extend(via.map(|address| RouteAttribute::Gateway(route_address(address))));
    Ok(message)
}

fn neighbour_message(link: &Link, neighbour: &Neighbour) -> Result<NeighbourMessage, Failure> {
    let address = parse_ip("interfaces.neighbours.address", &neighbour.address)?;
    let mac = parse_mac("interfaces.neighbours.mac", &neighbour.mac)?;
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = link.index;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unicast;
    let address = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes =
        vec![NeighbourAttribute::Destination(address), NeighbourAttribute::LinkLocalAddress(mac.to_vec())];
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_kernel_dumps_is_an_answer_or_an_error() {
        fuzz::fuzz("netlink", include_str!("../../fuzz/corpus/netlink.txt"), |input| {
            let _ = answers(input, 1, &mut |message| drop(std::hint::black_box(message)));
        });
    }

    fn refused(result: Result<impl std::fmt::Debug, Failure>) -> bool {
        matches!(result, Err(failure) if failure.code == Code::BadRequest)
    }

    #[test]
    fn addresses_outside_their_family_are_refused() {
        assert_eq!(parse_prefix("x", "10.0.0.1/24").unwrap(), (Ipv4Addr::new(10, 0, 0, 1).into(), 24));
        for text in ["10.0.0.1", "10.0.0.1/33", "10.0.0.256/8", "fe80::1/129", "/8", "x/8", "10.0.0.1/-1"] {
            assert!(refused(parse_prefix("x", text)), "{text}");
        }
        assert_eq!(parse_mac("x", "52:54:00:ab:CD:ef").unwrap(), [0x52, 0x54, 0, 0xab, 0xcd, 0xef]);
        for text in ["", "52:54", "52:54:00:ab:cd:ef:01", "52:54:00:ab:cd:fff", "g0:54:00:ab:cd:ef"] {
            assert!(refused(parse_mac("x", text)), "{text}");
        }
    }

    #[test]
    fn an_interface_is_found_by_address_or_name_and_a_missing_one_names_those_present() {
        let links = [Link { index: 2, name: "eth0".into(), mac: vec![2, 0, 0, 0, 0, 1] }];
        let by = |mac: Option<&str>, name: Option<&str>| Interface {
            mac: mac.map(str::to_owned),
            name: name.map(str::to_owned),
            ..Interface::default()
        };
        assert_eq!(find(&links, &by(Some("02:00:00:00:00:01"), None)).unwrap().index, 2);
        assert_eq!(find(&links, &by(None, Some("eth0"))).unwrap().index, 2);
        let missing = find(&links, &by(None, Some("eth9"))).unwrap_err();
        assert_eq!((missing.code, missing.message.contains("eth0")), (Code::NotFound, true));
        assert!(refused(find(&links, &by(None, None))));
    }

    #[test]
    fn the_loopback_interface_is_listed() {
        let links = Netlink::open().unwrap().links().unwrap();
        assert!(links.iter().any(|link| link.name == "lo"), "{links:?}");
    }
}
