//! Estimates the available bandwidth of the path to a listener, as `virtgauge bandwidth estimate` does.

use std::net::Ipv4Addr;
use std::ops::ControlFlow;

use bandwidth::control::client;
use bandwidth::control::token::Token;
use bandwidth::estimators::{Choices, Estimator};
use bandwidth::outcome::{Outcome, Progress};
use bandwidth::pacing::calibration::{self, Plan};
use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::transport::{Limits, Stamp, Transport};
use bandwidth::udp::handover::Method;
use bandwidth::udp::packet::LONGEST_BYTES;
use bandwidth::udp::transport::{Pacing, Settings, Tally, UdpTransport};
use failure::PacingLimit;
use hptime::OsClock;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Measured, Probe, Trial};
use crate::distribution::Summary;
use crate::failure::Failure;
use crate::machine::UsageStart;
use crate::parameters::{Auto, Bps, Cpu, Fifo, Int, Parsed, Text, placement};

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    listener: Parsed<Ipv4Addr>,
    port: Int<1, 65_535>,
    token: Parsed<Token>,
    estimator: Text<64>,
    #[serde(default)]
    settings: Map<String, Value>,
    clock: Parsed<ClockChoice>,
    sleep: Parsed<SleepChoice>,
    pacing: Auto<Method>,
    instants: Int<1, 10_000>,
    packet_bytes: Int<64, { LONGEST_BYTES as u64 }>,
    cpu: Option<Cpu>,
    fifo: Option<Fifo>,
    lowest_bps: Option<Bps>,
    highest_bps: Option<Bps>,
}

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct BandwidthResult {
    estimator: &'static str,
    settings: Estimator,
    clock: ClockChoice,
    sleep: SleepChoice,
    margin_ns: i64,
    hptime_fallback_reason: Option<&'static str>,
    /// How bursts were handed over.
    method: Method,
    method_reason: Option<String>,
    stamp: Stamp,
    no_kernel_stamps: Option<String>,
    outcome: Option<Outcome>,
    refusal: Option<Refusal>,
    tally: Tally,
    limits: Limits,
    gaps: Option<Summary>,
    lateness: Option<Summary>,
}

/// The path carries more than this host paces.
#[derive(Debug, Serialize)]
struct Refusal {
    #[serde(flatten)]
    limit: PacingLimit,
    message: String,
}

impl Probe for BandwidthResult {
    const NAME: &'static str = "bandwidth";
    type Parameters = Asked;

    fn run(asked: Asked, trial: &mut Trial) -> Result<Measured<Self>, Failure> {
        let packet_bytes = asked.packet_bytes.0 as u32;
        let (estimator, mut sending) = asked.understood(trial)?;
        let waiter = sending.waiter;
        sending.pacing = paced(&sending, packet_bytes)?;
        // Before this thread is put anywhere, where a load's threads would follow it.
        let clocks_start = trial.start()?;
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
        let around = trial.end(clocks_start, &usage_start);
        if let Some(failure) = broken {
            transport.close();
            return Err(failure);
        }
        let (outcome, refusal) = match outcome {
            // The trace has a line for each stream.
            Ok(outcome) => (Some(Outcome { trace: Vec::new(), ..outcome }), None),
            Err(failure @ failure::Failure::CannotPace(limit)) => {
                (None, Some(Refusal { limit, message: failure.to_string() }))
            }
            Err(failure) => {
                transport.close();
                return Err(failure.into());
            }
        };
        let result = Self {
            estimator: estimator.name(),
            settings: estimator,
            clock: waiter.clock,
            sleep: waiter.sleep,
            margin_ns: waiter.margin_ns,
            hptime_fallback_reason: hptime::clock().fallback_reason().map(hptime::Fallback::text),
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
        };
        transport.close();
        Ok(around.of(result))
    }
}

/// What this guest paces on its own loopback; `None` where that cannot be known, so that it is seen of each stream.
fn paced(sending: &Settings, packet_bytes: u32) -> Result<Option<Pacing>, Failure> {
    match calibration::on_loopback(&Plan::before_estimate(sending, packet_bytes)) {
        Ok(calibration) => Ok(calibration.pacing()),
        Err(failure::Failure::Unsupported(_)) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

impl Asked {
    fn understood(self, trial: &Trial) -> Result<(Estimator, Settings), Failure> {
        let estimator = Estimator::chosen(
            &self.estimator.0,
            Choices {
                settings: self.settings,
                packet_bytes: Some(self.packet_bytes.0 as u32),
                lowest_bps: self.lowest_bps.map(|rate| rate.0),
                highest_bps: self.highest_bps.map(|rate| rate.0),
                instants: Some(self.instants.0 as u32),
            },
        )?;
        let listener = client::Settings {
            host: self.listener.0.to_string(),
            port: self.port.0 as u16,
            secret: Some(self.token.0),
            cancel: trial.cancellation.flag(),
        };
        let placement = placement(self.cpu, self.fifo);
        // Last, because it learns how late sleeps are.
        let waiter = Waiter::new(self.clock.0, self.sleep.0, None);
        Ok((estimator, Settings { listener, waiter, placement, method: self.pacing.0, pacing: None }))
    }
}
