//! Sends test frames through one interface, takes them from another, and accounts for each one.

use std::net::Ipv4Addr;

use hptime::OsClock;
use packets::analyser::Tally;
use packets::frame::{CHECK_SEQUENCE, Flow};
use packets::interface::Counters;
use packets::port::{Choice, Kind, ReceiverLoss};
use packets::schedule::Pace;
use packets::transmission::Timed;
use packets::trial::{LATE_NS, Outcome, STRETCHED, Settings, Trial as PacketTrial};
use serde::Serialize;

use super::Trial;
use super::distribution::Summary;
use crate::clocks::{Clocks, Timebase};
use crate::failure::{Code, Failure};
use crate::loads::Stopped;
use crate::parameters::Parameters;
use crate::precise;
use crate::usage::{Usage, UsageStart};

/// Most frames of a trial: what a flow's account of sequence numbers takes 128 MiB for.
const MOST_FRAMES: u64 = 1 << 30;

/// Longest trial, and longest wait for stragglers.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Sending goes on for a quarter more than the time asked for, and this long, before what is left is given up: long enough
/// to see that the rate cannot be offered.
const PATIENCE_NS: u64 = 100_000_000;

/// Longest time that a burst may take.
const LONGEST_BURST_NS: u64 = 60_000_000_000;

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
    transmit_counters: CountersOnWire,
    receive_counters: CountersOnWire,
    backlog_dropped: Option<u64>,
    tx_cpu_ns: u64,
    rx_cpu_ns: u64,
    latency: Option<Summary>,
    gaps: Option<Summary>,
    lateness: Option<Summary>,
    flows: Vec<FlowResult>,
    clocks_start: Clocks,
    clocks_end: Clocks,
    usage: Usage,
    load: Option<Stopped>,
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

/// What an interface counted during the trial.
#[derive(Debug, Serialize)]
struct CountersOnWire {
    received: u64,
    receive_errors: u64,
    receive_dropped: u64,
    receive_overruns: u64,
    sent: u64,
    send_errors: u64,
    send_dropped: u64,
}

impl From<Counters> for CountersOnWire {
    fn from(counters: Counters) -> Self {
        let Counters { received, receive_errors, receive_dropped, receive_overruns, sent, send_errors, send_dropped } =
            counters;
        Self { received, receive_errors, receive_dropped, receive_overruns, sent, send_errors, send_dropped }
    }
}

impl From<packets::failure::Failure> for Failure {
    fn from(failure: packets::failure::Failure) -> Self {
        match failure {
            packets::failure::Failure::Unsupported(reason) => Self::unsupported(reason),
            packets::failure::Failure::Os { attempt, error } => Self::os(&attempt, &error),
            packets::failure::Failure::Cancelled => Self::cancelled(),
        }
    }
}

/// Runs the probe.
pub fn run(parameters: &Parameters, trial: &mut Trial) -> Result<PacketTrialResult, Failure> {
    let asked = asked(parameters)?;
    let (frames, burst, duration_ns) = (asked.settings.pace.frames, asked.burst, asked.duration_ns);
    precise::CLOCK.settle();
    let opened = PacketTrial::open(asked.settings, &precise::ADAPTIVE)?;
    let (port, port_reasons) = (opened.chosen().kind.name(), reasons(&opened));
    let clocks_start = trial.start(Timebase::get())?;
    let usage_start = UsageStart::now();
    let outcome = opened.run(|done| trial.still_wanted(done, OsClock::Monotonic.now_ns()))?;
    let load = trial.stop_load();
    let usage = usage_start.used();
    let clocks_end = Clocks::read(Timebase::get());
    let Outcome { transmission, analyser, receiver_loss, .. } = &outcome;
    let ReceiverLoss { ring_full, dropped } = *receiver_loss;
    let flows: Vec<FlowResult> =
        transmission.sent.iter().zip(analyser.flows()).map(|(&sent, tally)| FlowResult::new(sent, tally)).collect();
    let total = |figure: fn(&FlowResult) -> u64| flows.iter().map(figure).sum::<u64>();
    let elapsed_ns = transmission.end_ns.saturating_sub(transmission.start_ns).max(1);
    let span_ns = analyser.arrivals_ns().map(|(first, last)| last.saturating_sub(first)).filter(|&span| span > 0);
    Ok(PacketTrialResult {
        port,
        port_reasons,
        frames_planned: frames,
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
            && (elapsed_ns as f64 > duration_ns as f64 * (1.0 + STRETCHED) || transmission.total() < frames),
        elapsed_ns,
        offered_pps: transmission.total() as f64 / elapsed_ns as f64 * 1e9,
        // Gaps between arrivals are one fewer than frames.
        received_pps: span_ns.map(|span_ns| (total(|flow| flow.received) - 1) as f64 / span_ns as f64 * 1e9),
        refused: transmission.refused,
        receiver_ring_full: ring_full,
        receiver_dropped: dropped,
        transmit_counters: outcome.transmit_counters.into(),
        receive_counters: outcome.receive_counters.into(),
        backlog_dropped: outcome.backlog_dropped,
        tx_cpu_ns: outcome.tx_cpu_ns,
        rx_cpu_ns: outcome.rx_cpu_ns,
        latency: Summary::of_ns(&analyser.latency()),
        gaps: Summary::of_ns(&transmission.gaps),
        lateness: Summary::of_ns(&transmission.lateness),
        flows,
        clocks_start,
        clocks_end,
        usage,
        load,
    })
}

fn reasons(opened: &PacketTrial) -> Vec<PortReason> {
    let reasons = opened.chosen().reasons.iter();
    reasons.map(|(kind, reason)| PortReason { port: kind.name(), reason: reason.clone() }).collect()
}

/// The parameters, checked.
struct Asked {
    settings: Settings,
    burst: u64,
    duration_ns: u64,
}

fn asked(parameters: &Parameters) -> Result<Asked, Failure> {
    let port = parameters.choice(
        "port",
        &[
            ("auto", Choice::Auto),
            (Kind::XdpLive.name(), Choice::Only(Kind::XdpLive)),
            (Kind::AfXdp.name(), Choice::Only(Kind::AfXdp)),
            (Kind::AfPacket.name(), Choice::Only(Kind::AfPacket)),
        ],
    )?;
    let longest_name = libc::IFNAMSIZ - 1;
    let transmit = parameters.text("transmit", longest_name)?.to_owned();
    let receive = parameters.text("receive", longest_name)?.to_owned();
    let flows = flows(parameters)?;
    let frame_bytes = parameters.unsigned("frame_bytes", 64..=1518)? as usize;
    let rate_pps = parameters.real("rate_pps", 1.0..=1e8)?;
    let duration_ns = parameters.unsigned("duration_ns", 1_000_000..=LONGEST_NS)?;
    let burst = parameters.unsigned("burst", 0..=MOST_FRAMES)?;
    let pace = if burst > 0 { Pace::burst(burst) } else { Pace::new(rate_pps, duration_ns) };
    if pace.frames > MOST_FRAMES {
        return Err(Failure::bad_request(format!(
            "params.rate_pps and params.duration_ns make {} frames; accepted: at most {MOST_FRAMES}",
            pace.frames
        )));
    }
    let all = parameters.choice("latency", &[("all", true), ("one_tagged", false)])?;
    let cpu = |field| Ok::<_, Failure>(parameters.optional(field, 0..=1023)?.map(|cpu| cpu as usize));
    let settings = Settings {
        port,
        transmit,
        receive,
        flows,
        length: frame_bytes - CHECK_SEQUENCE,
        pace,
        timed: if all { Timed::All } else { Timed::One(pace.frames / 2) },
        give_up_ns: if burst > 0 { LONGEST_BURST_NS } else { duration_ns + duration_ns / 4 + PATIENCE_NS },
        drain_ns: parameters.unsigned("drain_ns", 0..=LONGEST_NS)?,
        tx_cpu: cpu("tx_cpu")?,
        rx_cpu: cpu("rx_cpu")?,
        seed: parameters.unsigned("seed", 0..=u64::MAX)?,
    };
    Ok(Asked { settings, burst, duration_ns })
}

fn flows(parameters: &Parameters) -> Result<Vec<(Flow, f64)>, Failure> {
    let records = parameters.records("flows")?;
    let mut flows = Vec::with_capacity(records.len());
    for (number, record) in records.iter().enumerate() {
        flows.push(flow(record).map_err(|mut failure| {
            failure.message = failure.message.replacen("params.", &format!("params.flows[{number}]."), 1);
            failure
        })?);
    }
    if flows.iter().all(|&(_, weight)| weight == 0.0) {
        return Err(Failure::bad_request("params.flows have no weight; accepted: at least one above 0"));
    }
    Ok(flows)
}

fn flow(record: &Parameters) -> Result<(Flow, f64), Failure> {
    let flow = Flow {
        source_mac: parsed(record, "source_mac", mac, "52:54:00:00:00:01")?,
        destination_mac: parsed(record, "destination_mac", mac, "52:54:00:00:00:01")?,
        source: parsed(record, "source", |text| text.parse().ok(), "10.0.0.1")?,
        destination: parsed(record, "destination", |text| text.parse::<Ipv4Addr>().ok(), "10.0.0.1")?,
    };
    Ok((flow, record.real("weight", 0.0..=1e12)?))
}

fn parsed<T>(record: &Parameters, field: &str, parse: impl Fn(&str) -> Option<T>, example: &str) -> Result<T, Failure> {
    let text = record.text(field, 64)?;
    parse(text).ok_or_else(|| {
        Failure::new(Code::BadRequest, format!("params.{field} is {text:?}; accepted: such as {example:?}"))
    })
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_six_pairs_of_digits() {
        assert_eq!(mac("52:54:00:00:ff:0a"), Some([0x52, 0x54, 0, 0, 0xff, 0x0a]));
        for wrong in ["", "52:54:00:00:ff", "52:54:00:00:ff:0a:00", "52:54:0:00:ff:0a", "+2:54:00:00:ff:0g"] {
            assert_eq!(mac(wrong), None, "{wrong}");
        }
    }
}
