//! A UDP socket, what is set on it, and what the kernel says beside a packet that came through it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use failure::Failure;

/// Memory asked for packets that wait, in bytes: as the kernel counts, of some 14 000 full packets.
pub const BUFFER_BYTES: i32 = 32 << 20;

/// Index of the count of dropped packets in `SO_MEMINFO`, and the length of that array (`linux/sock_diag.h`).
const DROPS: usize = 8;
const MEMORY_FIGURES: usize = 9;

const SO_MEMINFO: i32 = 55;

/// Memory for what the kernel says beside one packet: a stamp of three times, and the length of the pieces.
pub(super) const CONTROL_BYTES: usize = 128;

/// A change between the kernel's two clocks that is a step: above what reading them together leaves in doubt.  Slewing
/// bends both alike.
const STEP_NS: i64 = 50_000;

/// Opens a socket.
pub fn bind(address: SocketAddr) -> Result<UdpSocket, Failure> {
    UdpSocket::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::Unsupported(format!(
            "UDP port {} is in use on {}; choose another port",
            address.port(),
            address.ip()
        )),
        _ => Failure::os(format!("opening a UDP socket on {address}"), error),
    })
}

/// Sets an option.
pub fn set<T>(socket: &UdpSocket, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: reads one value of its size.
    let answer = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size_of::<T>() as libc::socklen_t)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads an option that is an integer.
pub fn get(socket: &UdpSocket, level: i32, option: i32) -> io::Result<i32> {
    let mut value = [0];
    get_all(socket, level, option, &mut value)?;
    Ok(value[0])
}

fn get_all(socket: &UdpSocket, level: i32, option: i32, values: &mut [i32]) -> io::Result<()> {
    let mut length = size_of_val(values) as libc::socklen_t;
    // SAFETY: fills at most the integers that are given.
    let answer =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, values.as_mut_ptr().cast(), &raw mut length) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Asks for memory for packets to be sent or received, and says how much there is: who may not have more than the
/// system's limit gets that.
pub fn enlarge(socket: &UdpSocket, forced: i32, option: i32) -> io::Result<u64> {
    set(socket, libc::SOL_SOCKET, forced, &BUFFER_BYTES)
        .or_else(|_| set(socket, libc::SOL_SOCKET, option, &BUFFER_BYTES))?;
    Ok(get(socket, libc::SOL_SOCKET, option)?.max(0) as u64)
}

/// Packets that the kernel has dropped since the socket was opened because nobody read them; `None` where it does not say.
#[must_use]
pub fn dropped(socket: &UdpSocket) -> Option<u32> {
    let mut figures = [0; MEMORY_FIGURES];
    get_all(socket, libc::SOL_SOCKET, SO_MEMINFO, &mut figures).ok()?;
    Some(figures[DROPS] as u32)
}

/// Has the kernel refuse packets that the path cannot take in one piece, instead of sending them in several.
pub fn forbid_fragments(socket: &UdpSocket, address: &IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_DO),
        IpAddr::V6(_) => set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &libc::IP_PMTUDISC_DO),
    }
}

/// Longest IP packet that the path is known to take, of a connected socket; `None` where the kernel does not say.
#[must_use]
pub fn path_mtu(socket: &UdpSocket, address: &IpAddr) -> Option<u32> {
    let mtu = match address {
        IpAddr::V4(_) => get(socket, libc::IPPROTO_IP, libc::IP_MTU),
        IpAddr::V6(_) => get(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    };
    mtu.ok().and_then(|mtu| u32::try_from(mtu).ok())
}

/// What the kernel says beside a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// When it came, by `CLOCK_REALTIME`; `None` without a stamp.
    pub realtime_ns: Option<i64>,
    /// Length of each of the packets that come in one piece; `None` for a single one.
    pub piece_bytes: Option<usize>,
}

impl Beside {
    /// Reads it.
    ///
    /// # Safety
    /// The message's control memory and length must be as the kernel left them.
    pub(super) unsafe fn of(message: &libc::msghdr) -> Self {
        let mut beside = Self::default();
        // SAFETY: the caller's promise; the macros stay within the control memory, and what lies there may be unaligned.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(message);
            while !at.is_null() {
                let header = at.read_unaligned();
                let data = libc::CMSG_DATA(at);
                match (header.cmsg_level, header.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                        // The first of three is the software's.
                        let time = data.cast::<libc::timespec>().read_unaligned();
                        let ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
                        beside.realtime_ns = (ns != 0).then_some(ns);
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        beside.piece_bytes = usize::try_from(data.cast::<i32>().read_unaligned()).ok();
                    }
                    _ => {}
                }
                at = libc::CMSG_NXTHDR(message, at);
            }
        }
        beside
    }
}

/// How far the real-time clock was stepped between two readings of its lead; 0 if it was not.
pub(super) fn step_ns(before_ns: i64, after_ns: i64) -> i64 {
    let change = after_ns - before_ns;
    if change.abs() > STEP_NS { change } else { 0 }
}

#[cfg(test)]
mod tests {
    use packets::kernel::realtime_lead_ns;

    use super::*;

    #[test]
    fn what_nobody_reads_is_counted_where_the_kernel_drops_it() {
        let receiver = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        set(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF, &4096i32).unwrap();
        let sender = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        assert_eq!(dropped(&receiver), Some(0));
        (0..200).for_each(|_| assert_eq!(sender.send(&[0; 1000]).unwrap(), 1000));
        receiver.set_nonblocking(true).unwrap();
        let mut kept = 0;
        while receiver.recv(&mut [0; 1000]).is_ok() {
            kept += 1;
        }
        assert_eq!(dropped(&receiver), Some(200 - kept));
    }

    #[test]
    fn a_packet_longer_than_the_path_takes_is_refused_not_fragmented() {
        let address: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let sender = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        sender.connect(address).unwrap();
        forbid_fragments(&sender, &address.ip()).unwrap();
        let mtu = path_mtu(&sender, &address.ip()).unwrap();
        assert!((1280..=65536).contains(&mtu), "{mtu}");
    }

    #[test]
    fn a_port_in_use_is_named() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let message = bind(address).unwrap_err().to_string();
        assert!(message.contains(&address.port().to_string()), "{message}");
    }

    #[test]
    fn a_step_is_told_from_what_reading_two_clocks_leaves_in_doubt() {
        assert_eq!(step_ns(1_000, 41_000), 0);
        assert_eq!(step_ns(0, -3_600_000_000_000), -3_600_000_000_000);
        assert_eq!(step_ns(5, 1_000_005), 1_000_000);
    }

    #[test]
    fn the_lead_stays_while_nobody_steps_the_clock() {
        assert_eq!(step_ns(realtime_lead_ns(), realtime_lead_ns()), 0);
    }
}
