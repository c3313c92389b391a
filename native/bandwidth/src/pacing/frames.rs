//! The pacing sweep's rungs below the sockets: whole frames through `AF_XDP`, or made by an XDP program in the kernel.
//!
//! They are sent by the tester of packet forwarding, to a host that nobody is, and only paced: its frames carry no probe's
//! head and its ports take no other, so that estimates are made over sockets.

use std::net::Ipv4Addr;

use failure::Failure;
use hptime::Sleeper;
use packets::frame::{Flow, LONGEST};
use packets::interface::Counters;
use packets::port::Kind;
use packets::schedule::Pace;
use packets::transmission::Timed;
use packets::trial::{self, Settings};

use crate::pacing::profile::{Measured, Profile};
use crate::pacing::sweep::{self, Rung};

static SLEEPER: Sleeper<'static> = Sleeper::new(hptime::clock());

/// Ethernet's header.
const ETHERNET_BYTES: u32 = 14;

/// Frames that are sent as fast as possible to see how fast that is.
const FLAT_OUT_FRAMES: u64 = 100_000;

/// A try that has not ended after so many times its duration is given up.
const PATIENCE: u64 = 2;

/// Where frames go.
#[derive(Clone, Debug)]
pub struct Link {
    /// Interface to send through, in a network namespace made for the purpose.
    pub interface: String,
    /// Ethernet address of the other end.
    pub destination_mac: [u8; 6],
    /// Processor of the sending thread.
    pub cpu: Option<usize>,
}

/// The highest rate that a port paces on this link.
///
/// # Errors
/// [`Failure::Unsupported`] where the port does not work, or for packets longer than its frames.
pub fn climb(kind: Kind, link: &Link, packet_bytes: u32, duration_ns: u64) -> Result<Rung, Failure> {
    let length = (packet_bytes + ETHERNET_BYTES) as usize;
    if length > LONGEST {
        let longest = LONGEST as u32 - ETHERNET_BYTES;
        return Err(Failure::Unsupported(format!("frames hold IP packets of at most {longest} B, not {packet_bytes}")));
    }
    sweep::climb(kind.name(), packet_bytes, |rate_bps| measure(kind, link, length, packet_bytes, rate_bps, duration_ns))
}

fn measure(
    kind: Kind,
    link: &Link,
    length: usize,
    packet_bytes: u32,
    rate_bps: Option<f64>,
    duration_ns: u64,
) -> Result<Profile, Failure> {
    let packet_bits = f64::from(packet_bytes) * 8.0;
    let pace = rate_bps.map_or(Pace::burst(FLAT_OUT_FRAMES), |rate| Pace::new(rate / packet_bits, duration_ns));
    let flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: link.destination_mac,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 1, 0, 2),
    };
    let settings = Settings {
        port: Some(kind),
        transmit: link.interface.clone(),
        receive: link.interface.clone(),
        flows: vec![(flow, 1.0)],
        length,
        pace,
        timed: Timed::All,
        give_up_ns: PATIENCE * duration_ns,
        drain_ns: 0,
        tx_cpu: link.cpu,
        rx_cpu: None,
        seed: 0,
    };
    let before = Counters::read(&link.interface)?;
    let (transmission, cpu_ns) = trial::send_only(&settings, &SLEEPER)?;
    let dropped = Counters::read(&link.interface)?.since(&before).send_dropped;
    let sent = transmission.total();
    // What the interface drops, a port may have counted as refused already.
    let refused = transmission.refused.max(dropped).min(sent);
    let elapsed_ns = (transmission.end_ns - transmission.start_ns).max(1) as f64;
    Ok(Profile::from_measured(&Measured {
        asked_bps: rate_bps,
        achieved_bps: (sent - refused).saturating_sub(1) as f64 * packet_bits / elapsed_ns * 1e9,
        burst: 1,
        interval_ns: rate_bps.map_or(0, |rate| (packet_bits / rate * 1e9) as u64),
        bursts: sent,
        refused,
        gaps: transmission.gaps,
        lateness: transmission.lateness,
        busy_share: None,
        cpu_share: cpu_ns as f64 / elapsed_ns,
        complete: sent == pace.frames,
    }))
}
