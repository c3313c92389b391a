//! Sends test frames through one interface, takes them from another, and accounts for each one.

use std::net::Ipv4Addr;
use std::str::FromStr;

use hptime::OsClock;
use packets::analyser::Tally;
use packets::frame::{CHECK_SEQUENCE, Flow};
use packets::interface::Counters;
use packets::port::{Kind, ReceiverLoss};
use packets::schedule::Pace;
use packets::transmission::Timed;
use packets::trial::{LATE_NS, Outcome, STRETCHED, Settings, Trial as PacketTrial};
use serde::{Deserialize, Serialize};

use super::{Measured, Probe, Trial};
use crate::distribution::Summary;
use crate::failure::Failure;
use crate::machine::UsageStart;
use crate::parameters::{Auto, Cpu, Int, List, Parsed, Real, Seed, Text};
use crate::precise;

/// Most frames of a trial: what a flow's account of sequence numbers takes 128 MiB for.
const MOST_FRAMES: u64 = 1 << 30;

/// Longest trial, and longest wait for stragglers.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Sending goes on for a quarter more than the time asked for, and this long, before what is left is given up: long enough
/// to see that the rate cannot be offered.
const PATIENCE_NS: u64 = 100_000_000;

/// Longest time that a burst may take.
const LONGEST_BURST_NS: u64 = 60_000_000_000;

/// Longest name of an interface.
const LONGEST_NAME: usize = libc::IFNAMSIZ - 1;

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    port: Auto<Kind>,
    transmit: Text<LONGEST_NAME>,
    receive: Text<LONGEST_NAME>,
    flows: List<AskedFlow, 256>,
    frame_bytes: Int<64, 1518>,
    rate_pps: Real<1, 100_000_000>,
    duration_ns: Int<1_000_000, LONGEST_NS>,
    burst: Int<0, MOST_FRAMES>,
    drain_ns: Int<0, LONGEST_NS>,
    latency: WhichTimed,
    tx_cpu: Option<Cpu>,
    rx_cpu: Option<Cpu>,
    seed: Seed,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WhichTimed {
    All,
    OneTagged,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedFlow {
    source_mac: Parsed<Mac>,
    destination_mac: Parsed<Mac>,
    source: Parsed<Ipv4Addr>,
    destination: Parsed<Ipv4Addr>,
    weight: Real<0, 1_000_000_000_000>,
}

impl From<AskedFlow> for (Flow, f64) {
    fn from(asked: AskedFlow) -> Self {
        let flow = Flow {
            source_mac: asked.source_mac.0.0,
            destination_mac: asked.destination_mac.0.0,
            source: asked.source.0,
            destination: asked.destination.0,
        };
        (flow, asked.weight.0)
    }
}

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct PacketTrialResult {
    port: &'static str,
    port_reasons: Vec<PortReason>,
    frames_planned: u64,
    sent: u64,
    received: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    foreign: u64,
    corrupted: u64,
    late: u64,
    late_limit_ns: u64,
    stretched: bool,
    elapsed_ns: u64,
    offered_pps: f64,
    received_pps: Option<f64>,
    refused: u64,
    receiver_ring_full: u64,
    receiver_dropped: u64,
    transmit_counters: Counters,
    receive_counters: Counters,
    backlog_dropped: Option<u64>,
    tx_cpu_ns: u64,
    rx_cpu_ns: u64,
    latency: Option<Summary>,
    gaps: Option<Summary>,
    lateness: Option<Summary>,
    flows: Vec<FlowResult>,
}

#[derive(Debug, Serialize)]
struct PortReason {
    port: &'static str,
    reason: String,
}

#[derive(Debug, Serialize)]
struct FlowResult {
    sent: u64,
    received: u64,
    lost: u64,
    duplicates: u64,
    reordered: u64,
    reordering_extent: u64,
    latency: Option<Summary>,
}

impl FlowResult {
    fn new(sent: u64, tally: &Tally) -> Self {
        Self {
            sent,
            received: tally.received,
            // A duplicate of a frame that the generator did not count would be a defect, not a negative loss.
            lost: sent.saturating_sub(tally.received),
            duplicates: tally.duplicates,
            reordered: tally.reordered,
            reordering_extent: tally.reordering_extent,
            latency: Summary::of_ns(&tally.latency),
        }
    }
}

impl Probe for PacketTrialResult {
    const NAME: &'static str = "packet_trial";
    type Parameters = Asked;

    fn run(asked: Asked, trial: &mut Trial) -> Result<Measured<Self>, Failure> {
        let (burst, duration_ns) = (asked.burst.0, asked.duration_ns.0);
        let settings = Settings::try_from(asked)?;
        let pace = settings.pace;
        let opened = PacketTrial::open(settings, precise::anew())?;
        let (port, port_reasons) = (opened.chosen().kind.name(), reasons(&opened));
        let clocks_start = trial.start()?;
        let usage_start = UsageStart::now();
        let outcome = opened.run(|done| trial.still_wanted(done, OsClock::Monotonic.now_ns()))?;
        let around = trial.end(clocks_start, &usage_start);
        let Outcome { transmission, analyser, receiver_loss, .. } = &outcome;
        let ReceiverLoss { ring_full, dropped } = *receiver_loss;
        let flows: Vec<FlowResult> =
            transmission.sent.iter().zip(analyser.flows()).map(|(&sent, tally)| FlowResult::new(sent, tally)).collect();
        let total = |figure: fn(&FlowResult) -> u64| flows.iter().map(figure).sum::<u64>();
        let sending_ns = transmission.end_ns.saturating_sub(transmission.start_ns);
        let elapsed_ns = transmission.elapsed_ns(&pace).max(1);
        let span_ns = analyser.arrivals_ns().map(|(first, last)| last.saturating_sub(first)).filter(|&span| span > 0);
        Ok(around.of(Self {
            port,
            port_reasons,
            frames_planned: pace.frames,
            sent: total(|flow| flow.sent),
            received: total(|flow| flow.received),
            lost: total(|flow| flow.lost),
            duplicates: total(|flow| flow.duplicates),
            reordered: total(|flow| flow.reordered),
            foreign: analyser.foreign(),
            corrupted: analyser.corrupted(),
            late: transmission.late,
            late_limit_ns: LATE_NS,
            stretched: burst == 0
                && (sending_ns as f64 > duration_ns as f64 * (1.0 + STRETCHED) || transmission.total() < pace.frames),
            elapsed_ns,
            offered_pps: transmission.total() as f64 / elapsed_ns as f64 * 1e9,
            // Gaps between arrivals are one fewer than frames.
            received_pps: span_ns.map(|span_ns| (total(|flow| flow.received) - 1) as f64 / span_ns as f64 * 1e9),
            refused: transmission.refused,
            receiver_ring_full: ring_full,
            receiver_dropped: dropped,
            transmit_counters: outcome.transmit_counters,
            receive_counters: outcome.receive_counters,
            backlog_dropped: outcome.backlog_dropped,
            tx_cpu_ns: outcome.tx_cpu_ns,
            rx_cpu_ns: outcome.rx_cpu_ns,
            latency: Summary::of_ns(&analyser.latency()),
            gaps: Summary::of_ns(&transmission.gaps),
            lateness: Summary::of_ns(&transmission.lateness),
            flows,
        }))
    }
}

fn reasons(opened: &PacketTrial) -> Vec<PortReason> {
    let reasons = opened.chosen().reasons.iter();
    reasons.map(|(kind, reason)| PortReason { port: kind.name(), reason: reason.clone() }).collect()
}

impl TryFrom<Asked> for Settings {
    type Error = Failure;

    fn try_from(asked: Asked) -> Result<Self, Failure> {
        let (burst, duration_ns) = (asked.burst.0, asked.duration_ns.0);
        let flows: Vec<(Flow, f64)> = asked.flows.0.into_iter().map(Into::into).collect();
        if flows.iter().all(|&(_, weight)| weight == 0.0) {
            return Err(Failure::bad_request("params.flows have no weight; accepted: at least one above 0"));
        }
        let paced = Pace::new(asked.rate_pps.0, duration_ns);
        let pace = if burst > 0 { Pace { frames: burst, ..paced } } else { paced };
        if pace.frames > MOST_FRAMES {
            return Err(Failure::bad_request(format!(
                "params.rate_pps and params.duration_ns make {} frames; accepted: at most {MOST_FRAMES}",
                pace.frames
            )));
        }
        let cpu = |cpu: Option<Cpu>| cpu.map(|cpu| cpu.0 as usize);
        Ok(Self {
            port: asked.port.0,
            transmit: asked.transmit.0,
            receive: asked.receive.0,
            flows,
            length: asked.frame_bytes.0 as usize - CHECK_SEQUENCE,
            pace,
            timed: match asked.latency {
                WhichTimed::All => Timed::All,
                WhichTimed::OneTagged => Timed::One(pace.frames / 2),
            },
            give_up_ns: if burst > 0 { LONGEST_BURST_NS } else { duration_ns + duration_ns / 4 + PATIENCE_NS },
            drain_ns: asked.drain_ns.0,
            tx_cpu: cpu(asked.tx_cpu),
            rx_cpu: cpu(asked.rx_cpu),
            seed: asked.seed.0,
        })
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mac([u8; 6]);

impl FromStr for Mac {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let mut mac = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut mac {
            let part = parts.next().filter(|part| part.len() == 2);
            *byte = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or("such as 52:54:00:00:00:01")?;
        }
        if parts.next().is_none() { Ok(Self(mac)) } else { Err("more than six pairs of digits") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_six_pairs_of_digits() {
        assert_eq!("52:54:00:00:ff:0a".parse(), Ok(Mac([0x52, 0x54, 0, 0, 0xff, 0x0a])));
        for wrong in ["", "52:54:00:00:ff", "52:54:00:00:ff:0a:00", "52:54:0:00:ff:0a", "+2:54:00:00:ff:0g"] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
