//! Estimates the available bandwidth of the path to a listener, as `virtgauge bandwidth estimate` does.

use std::net::Ipv4Addr;
use std::ops::ControlFlow;

use bandwidth::control::client;
use bandwidth::estimators::Estimator;
use bandwidth::estimators::choices::Choices;
use bandwidth::failure::Failure as BandwidthFailure;
use bandwidth::outcome::{Estimate, Instant, Outcome, Progress};
use bandwidth::pacing::calibration::{self, Plan};
use bandwidth::pacing::placement::{HIGHEST_PRIORITY, Placement};
use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::transport::{Limits, Stamp, Transport};
use bandwidth::udp::handover::Method;
use bandwidth::udp::packet::LONGEST_BYTES;
use bandwidth::udp::transport::{Pacing, Settings, Tally, UdpTransport};
use hptime::OsClock;
use serde::Serialize;
use serde_json::Value;

use super::Trial;
use super::distribution::Summary;
use crate::clocks::{Clocks, Timebase};
use crate::failure::{Code, Failure};
use crate::loads::Stopped;
use crate::parameters::Parameters;
use crate::usage::{Usage, UsageStart};

/// Most searches of one trial.
const MOST_INSTANTS: u64 = 10_000;

/// Rates that may be tried, in bit/s.
const RATES_BPS: std::ops::RangeInclusive<f64> = 1e3..=1e12;

/// Longest text of a parameter.
const LONGEST_TEXT: usize = 64;

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct BandwidthResult {
    estimator: &'static str,
    settings: Estimator,
    clock: ClockChoice,
    sleep: SleepChoice,
    margin_ns: i64,
    hptime_refusal: Option<&'static str>,
    /// How bursts were handed over.
    method: Method,
    method_reason: Option<String>,
    stamp: Stamp,
    no_kernel_stamps: Option<String>,
    outcome: Option<Found>,
    refusal: Option<Refusal>,
    tally: Tally,
    limits: Limits,
    gaps: Option<Summary>,
    lateness: Option<Summary>,
    clocks_start: Clocks,
    clocks_end: Clocks,
    usage: Usage,
    load: Option<Stopped>,
}

/// An outcome without its trace, which has a line for each stream.
#[derive(Debug, Serialize)]
struct Found {
    estimate: Estimate,
    instants: Vec<Instant>,
    capacity_hint_bps: Option<f64>,
    bytes: u64,
    packets: u64,
    duration_ns: u64,
    discarded: u32,
    stalled: u32,
    strangers: u64,
}

impl From<Outcome> for Found {
    fn from(outcome: Outcome) -> Self {
        let Outcome {
            estimate,
            instants,
            capacity_hint_bps,
            bytes,
            packets,
            duration_ns,
            discarded,
            stalled,
            strangers,
            trace: _,
        } = outcome;
        Self { estimate, instants, capacity_hint_bps, bytes, packets, duration_ns, discarded, stalled, strangers }
    }
}

/// The path carries more than this host paces.
#[derive(Debug, Serialize)]
struct Refusal {
    asked_bps: f64,
    honest_bps: f64,
    undisturbed_bps: Option<f64>,
    carried_bps: Option<f64>,
    message: String,
}

/// The parameters, checked.
struct Asked {
    estimator: Estimator,
    sending: Settings,
    packet_bytes: u32,
}

/// Runs the probe.
pub fn run(parameters: &Parameters, trial: &mut Trial) -> Result<BandwidthResult, Failure> {
    let Asked { estimator, mut sending, packet_bytes } = asked(parameters, trial)?;
    let waiter = sending.waiter;
    sending.pacing = paced(&sending, packet_bytes)?;
    // Before this thread is put anywhere, where a load's threads would follow it.
    let clocks_start = trial.start(Timebase::get())?;
    let mut transport = UdpTransport::open(sending)?;
    let usage_start = UsageStart::now();
    let mut broken = None;
    let mut watch = |progress: &Progress| {
        let done = f64::from(progress.instants_done) / f64::from(progress.instants.max(1));
        match trial.still_wanted(done, OsClock::Monotonic.now_ns()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                broken = Some(failure);
                ControlFlow::Break(())
            }
        }
    };
    let outcome = estimator.estimate(&mut transport, &mut watch);
    let load = trial.stop_load();
    let usage = usage_start.used();
    let clocks_end = Clocks::read(Timebase::get());
    if let Some(failure) = broken {
        transport.close();
        return Err(failure);
    }
    let (outcome, refusal) = match outcome {
        Ok(outcome) => (Some(outcome.into()), None),
        Err(failure @ BandwidthFailure::CannotPace(limit)) => {
            let message = failure.to_string();
            let (asked_bps, honest_bps) = (limit.asked_bps, limit.honest_bps);
            let (undisturbed_bps, carried_bps) = (limit.undisturbed_bps, limit.carried_bps);
            (None, Some(Refusal { asked_bps, honest_bps, undisturbed_bps, carried_bps, message }))
        }
        Err(failure) => return Err(failure.into()),
    };
    let result = BandwidthResult {
        estimator: estimator.name(),
        settings: estimator,
        clock: waiter.clock,
        sleep: waiter.sleep,
        margin_ns: waiter.margin_ns,
        hptime_refusal: hptime::clock().refusal().map(hptime::Refusal::text),
        method: transport.method(),
        method_reason: transport.method_reason().map(str::to_owned),
        stamp: transport.stamp(),
        no_kernel_stamps: transport.session().no_kernel_stamps.clone(),
        outcome,
        refusal,
        tally: transport.tally(),
        limits: transport.limits(),
        gaps: Summary::of(&transport.account().gaps, "permille"),
        lateness: Summary::of(&transport.account().lateness, "ns"),
        clocks_start,
        clocks_end,
        usage,
        load,
    };
    transport.close();
    Ok(result)
}

/// What this guest paces on its own loopback; `None` where that cannot be known, so that it is seen of each stream.
fn paced(sending: &Settings, packet_bytes: u32) -> Result<Option<Pacing>, Failure> {
    match calibration::on_loopback(&Plan::before_estimate(sending, packet_bytes)) {
        Ok(calibration) => Ok(calibration.pacing()),
        Err(BandwidthFailure::Unsupported(_)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

fn asked(parameters: &Parameters, trial: &Trial) -> Result<Asked, Failure> {
    let names = Estimator::NAMES.map(|name| (name, name));
    let name = parameters.choice("estimator", &names)?;
    let packet_bytes = parameters.unsigned("packet_bytes", 64..=u64::from(LONGEST_BYTES))? as u32;
    let Ok(Value::Object(settings)) = serde_json::to_value(parameters.record("settings")?) else {
        return Err(Failure::bad_request("params.settings hold what is no setting; accepted: texts, numbers and maps"));
    };
    let estimator = Estimator::chosen(
        name,
        Choices {
            settings,
            packet_bytes: Some(packet_bytes),
            lowest_bps: parameters.optional_real("lowest_bps", RATES_BPS)?,
            highest_bps: parameters.optional_real("highest_bps", RATES_BPS)?,
            instants: Some(parameters.unsigned("instants", 1..=MOST_INSTANTS)? as u32),
        },
    )?;
    let methods = [("auto", None)].into_iter().chain(Method::ALL.map(|method| (method.name(), Some(method))));
    let method = parameters.choice("pacing", &methods.collect::<Vec<_>>())?;
    let host = parameters.text("listener", LONGEST_TEXT)?;
    let address: Ipv4Addr = host.parse().map_err(|_| {
        Failure::bad_request(format!("params.listener is {host:?}; accepted: an IPv4 address, such as \"10.0.0.1\""))
    })?;
    let listener = client::Settings {
        host: address.to_string(),
        port: parameters.unsigned("port", 1..=65535)? as u16,
        secret: Some(parameters.text("token", LONGEST_TEXT)?.parse()?),
        cancel: trial.cancellation.flag(),
    };
    let clock = parameters.choice("clock", &ClockChoice::NAMES)?;
    let sleep = parameters.choice("sleep", &SleepChoice::NAMES)?;
    let placement = placement(parameters)?;
    // Last, because it learns how late sleeps are.
    let waiter = Waiter::new(clock, sleep, None);
    Ok(Asked { estimator, sending: Settings { listener, waiter, placement, method, pacing: None }, packet_bytes })
}

/// Where a thread shall run, by the parameters `cpu` and `fifo`.
pub(crate) fn placement(parameters: &Parameters) -> Result<Placement, Failure> {
    Ok(Placement {
        cpu: parameters.optional("cpu", 0..=1023)?.map(|cpu| cpu as usize),
        fifo: parameters.optional("fifo", 1..=u64::from(HIGHEST_PRIORITY))?.map(|priority| priority as u8),
    })
}

impl From<BandwidthFailure> for Failure {
    fn from(failure: BandwidthFailure) -> Self {
        let message = failure.to_string();
        match failure {
            BandwidthFailure::Invalid(_) => Self::bad_request(message),
            BandwidthFailure::Unsupported(_) | BandwidthFailure::CannotPace(_) => Self::unsupported(message),
            BandwidthFailure::PeerLost(_) => Self::new(Code::PeerLost, message),
            BandwidthFailure::Protocol(_) => Self::new(Code::PeerVersion, message),
            BandwidthFailure::ClockStep { .. } => Self::new(Code::ClockStep, message),
            BandwidthFailure::NoAnswer(_) => Self::new(Code::NoAnswer, message),
            BandwidthFailure::Os { attempt, error } => Self::os(&attempt, &error),
            BandwidthFailure::Cancelled => Self::cancelled(),
        }
    }
}
