//! Cross traffic for tests and benchmarks of the estimators: UDP packets at a rate, to an address where nobody listens.
//!
//!     cross_traffic HOST:PORT RATE_BPS PACKET_BYTES constant|poisson SECONDS CPU [FIFO_PRIORITY]
//!
//! Rate and length are of IP packets.  A packet that is over a millisecond late is not made up for: what was really sent is
//! for whoever counts at the path.  Its answer is one line, the packets sent.

use std::env;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;

use bandwidth::failure::Failure;
use bandwidth::pacing::placement::Placement;
use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::random::Random;

/// IPv4 and UDP.
const HEADER_BYTES: usize = 28;

/// A sender that is later than this goes on from now.
const LATEST_NS: f64 = 1e6;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match traffic(&words).map(|traffic| traffic.send()) {
        Some(Ok(packets)) => {
            println!("{packets}");
            ExitCode::SUCCESS
        }
        Some(Err(failure)) => {
            eprintln!("cross_traffic: {failure}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!(
                "usage: cross_traffic HOST:PORT RATE_BPS PACKET_BYTES constant|poisson SECONDS CPU [FIFO_PRIORITY]"
            );
            ExitCode::from(2)
        }
    }
}

struct Traffic {
    to: SocketAddr,
    mean_gap_ns: f64,
    payload_bytes: usize,
    poisson: bool,
    seconds: f64,
    placement: Placement,
}

fn traffic(words: &[String]) -> Option<Traffic> {
    let [to, rate_bps, packet_bytes, kind, seconds, cpu, fifo @ ..] = words else { return None };
    let fifo = match fifo {
        [] => None,
        [priority] => Some(priority.parse().ok()?),
        _ => return None,
    };
    let packet_bytes: usize = packet_bytes.parse().ok()?;
    let rate_bps: f64 = rate_bps.parse().ok().filter(|&bps| bps > 0.0)?;
    Some(Traffic {
        to: to.parse().ok()?,
        mean_gap_ns: packet_bytes as f64 * 8e9 / rate_bps,
        payload_bytes: packet_bytes.checked_sub(HEADER_BYTES)?,
        poisson: match kind.as_str() {
            "constant" => false,
            "poisson" => true,
            _ => return None,
        },
        seconds: seconds.parse().ok()?,
        placement: Placement { cpu: Some(cpu.parse().ok()?), fifo },
    })
}

impl Traffic {
    fn send(&self) -> Result<u64, Failure> {
        self.placement.apply()?;
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| Failure::os("opening a socket", error))?;
        let payload = vec![0; self.payload_bytes];
        let waiter = Waiter::new(ClockChoice::Hptime, SleepChoice::Hptime, None);
        let mut random = Random::new(1);
        let mut now_ns = waiter.now_ns();
        let (start_ns, end_ns) = (now_ns, self.seconds * 1e9);
        let (mut due_ns, mut packets) = (0.0, 0);
        while due_ns < end_ns {
            now_ns = waiter.wait_until(start_ns + due_ns as i64, now_ns)?;
            // A full queue is part of the traffic.
            packets += u64::from(socket.send_to(&payload, self.to).is_ok());
            let passed_ns = (now_ns - start_ns) as f64;
            if passed_ns > due_ns + LATEST_NS {
                due_ns = passed_ns;
            }
            due_ns += if self.poisson { random.exponential(self.mean_gap_ns) } else { self.mean_gap_ns };
        }
        Ok(packets)
    }
}
