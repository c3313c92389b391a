//! Cross traffic: UDP packets at a rate, to an address where nobody need listen.
//!
//! A packet that is over a millisecond late is not made up for: what was really sent is for whoever counts at the path.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use failure::Failure;
use hptime::OsClock;
use packets::histogram::Histogram;
use serde::Serialize;

use crate::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use crate::random::Random;
use crate::udp::{packet, socket};

/// A sender that is later than this goes on from now.
const LATEST_NS: f64 = 1e6;

/// Longest wait before an end is looked for that somebody asked for.
const LOOK_NS: i64 = 20_000_000;

/// Niceness of the sending thread: before all others, but for those in real time.  `SCHED_FIFO` itself would stop it for a
/// twentieth of each second where it waits awake all the time (`sched_rt_runtime_us`).
const NICENESS: i32 = -20;

/// Lowest and highest rate, in bit/s.
const RATES_BPS: std::ops::RangeInclusive<f64> = 1e3..=1e12;

/// When packets are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// At even gaps.
    Constant,
    /// At exponential gaps.
    Poisson,
}

impl Kind {
    /// All, with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("constant", Self::Constant), ("poisson", Self::Poisson)];
}

impl FromStr for Kind {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        let found = Self::NAMES.into_iter().find(|&(known, _)| known == name);
        found.map(|(_, kind)| kind).ok_or_else(|| {
            Failure::Invalid(format!("there is no cross traffic {name:?}: accepted are constant and poisson"))
        })
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Where to.
    pub destination: SocketAddr,
    /// Mean rate, in bit/s of IP packets.
    pub rate_bps: f64,
    /// Length of each IP packet.
    pub packet_bytes: u32,
    /// When.
    pub kind: Kind,
    /// Decides the gaps of Poisson traffic.
    pub seed: u64,
}

/// Cross traffic that can be sent.
#[derive(Debug)]
pub struct CrossTraffic {
    settings: Settings,
    socket: UdpSocket,
    payload: Vec<u8>,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Packets that this host took.
    pub packets: u64,
    /// Bytes of these IP packets.
    pub bytes: u64,
    /// Packets that this host refused, most of them for a full queue.
    pub refused: u64,
    /// 99 of 100 packets were handed over no later than this after they were due; nil without any.
    pub late_p99_ns: Option<u64>,
    /// How long it was sent.
    pub elapsed_ns: u64,
    /// CPU time of the sending thread; waiting awake is CPU time.
    pub cpu_ns: u64,
}

impl CrossTraffic {
    /// Checks what is asked for, and opens a socket.
    ///
    /// # Errors
    /// [`Failure::Invalid`] for a rate or a length out of range.
    pub fn open(settings: Settings) -> Result<Self, Failure> {
        let Settings { destination, rate_bps, packet_bytes, .. } = settings;
        if !RATES_BPS.contains(&rate_bps) {
            let (least, most) = RATES_BPS.into_inner();
            return Err(Failure::Invalid(format!("a rate of {rate_bps} bit/s: accepted are {least} to {most:e}")));
        }
        let payload = vec![0; packet::payload_bytes(packet_bytes, &destination.ip())? as usize];
        let any = match destination.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let socket = socket::bind(SocketAddr::new(any, 0))?;
        Ok(Self { settings, socket, payload })
    }

    /// Sends until the time is over or `stop` is set, on the calling thread, which goes before others from now on if it may.
    ///
    /// # Errors
    /// [`Failure::PeerLost`] when there is no way to the destination, or what else stands in the way of all packets.
    pub fn send(&self, duration_ns: Option<u64>, stop: &AtomicBool) -> Result<Work, Failure> {
        let Settings { destination, rate_bps, packet_bytes, kind, seed } = self.settings;
        // SAFETY: no memory is involved.  Who may not do this sends at the usual priority.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
        let mean_gap_ns = f64::from(packet_bytes) * 8e9 / rate_bps;
        let end_ns = duration_ns.map_or(f64::INFINITY, |duration_ns| duration_ns as f64);
        let waiter = Waiter::new(ClockChoice::Hptime, SleepChoice::Hptime, None);
        let mut random = Random::new(seed);
        let mut lateness = Histogram::new();
        let (mut packets, mut refused) = (0, 0);
        let cpu_before_ns = OsClock::ThreadCpu.now_ns();
        let start_ns = waiter.now_ns();
        let (mut now_ns, mut due_ns) = (start_ns, 0.0);
        while due_ns < end_ns && !stop.load(Ordering::Relaxed) {
            let due_at_ns = start_ns + due_ns as i64;
            if due_at_ns - now_ns > LOOK_NS {
                now_ns = waiter.wait_until(now_ns + LOOK_NS, now_ns)?;
                continue;
            }
            now_ns = waiter.wait_until(due_at_ns, now_ns)?;
            lateness.record(now_ns.saturating_sub(due_at_ns).max(0) as u64);
            match self.socket.send_to(&self.payload, destination) {
                Ok(_) => packets += 1,
                // A full queue is part of the traffic.
                Err(error) if matters_not(&error) => refused += 1,
                Err(error) => return Err(not_sent(destination, error)),
            }
            let passed_ns = (now_ns - start_ns) as f64;
            if passed_ns > due_ns + LATEST_NS {
                due_ns = passed_ns;
            }
            due_ns += match kind {
                Kind::Constant => mean_gap_ns,
                Kind::Poisson => random.exponential(mean_gap_ns),
            };
        }
        Ok(Work {
            packets,
            bytes: packets * u64::from(packet_bytes),
            refused,
            late_p99_ns: lateness.quantile(0.99),
            elapsed_ns: (waiter.now_ns() - start_ns).max(0) as u64,
            cpu_ns: OsClock::ThreadCpu.now_ns() - cpu_before_ns,
        })
    }
}

fn matters_not(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

fn not_sent(destination: SocketAddr, error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => Failure::PeerLost(format!(
            "there is no way to {destination} ({error}); check the address, the routes, and that the interface is up"
        )),
        _ => Failure::os(format!("sending cross traffic to {destination}"), error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn to(destination: SocketAddr, kind: Kind) -> Settings {
        Settings { destination, rate_bps: 8e6, packet_bytes: 500, kind, seed: 3 }
    }

    /// Packets and bytes of payload that wait at a socket.
    fn drained(socket: &UdpSocket) -> (u64, usize) {
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (mut packets, mut bytes) = (0, 0);
        while let Ok(length) = socket.recv(&mut [0; 1500]) {
            packets += 1;
            bytes += length;
        }
        (packets, bytes)
    }

    #[test]
    fn what_is_said_to_have_been_sent_has_come() {
        for (_, kind) in Kind::NAMES {
            let receiver = socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let traffic = CrossTraffic::open(to(receiver.local_addr().unwrap(), kind)).unwrap();
            let work = traffic.send(Some(50_000_000), &GO_ON).unwrap();
            let (packets, bytes) = drained(&receiver);
            assert_eq!((work.packets, work.bytes, work.refused), (packets, packets * 500, 0));
            assert_eq!(bytes as u64, packets * (500 - 28));
            // 2000 a second; a machine that is busy sends fewer, and none sends more but by chance.
            assert!((1..=140).contains(&packets), "{packets}");
            assert!(work.late_p99_ns.is_some() && work.elapsed_ns > 0);
        }
    }

    #[test]
    fn an_end_that_is_asked_for_comes_though_the_next_packet_is_not_due() {
        let settings =
            Settings { rate_bps: 1e3, packet_bytes: 1500, ..to("127.0.0.1:9".parse().unwrap(), Kind::Constant) };
        let (traffic, stop) = (CrossTraffic::open(settings).unwrap(), AtomicBool::new(false));
        let work = std::thread::scope(|scope| {
            let sending = scope.spawn(|| traffic.send(None, &stop));
            std::thread::sleep(Duration::from_millis(60));
            stop.store(true, Ordering::Relaxed);
            sending.join().unwrap().unwrap()
        });
        // The second is due after twelve seconds.
        assert_eq!(work.packets + work.refused, 1);
        assert!(work.elapsed_ns < 11_000_000_000);
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_anything_is() {
        let destination = "127.0.0.1:9".parse().unwrap();
        for rate_bps in [0.0, -1.0, f64::NAN, 1e13] {
            let failure = CrossTraffic::open(Settings { rate_bps, ..to(destination, Kind::Constant) }).unwrap_err();
            assert!(matches!(failure, Failure::Invalid(_)), "{failure}");
        }
        for packet_bytes in [0, 63, 9001] {
            let failure = CrossTraffic::open(Settings { packet_bytes, ..to(destination, Kind::Constant) }).unwrap_err();
            assert!(failure.to_string().contains("64 to 9000"), "{failure}");
        }
        assert!("fast".parse::<Kind>().is_err());
    }
}
