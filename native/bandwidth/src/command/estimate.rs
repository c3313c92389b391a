//! `estimate`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bandwidth::estimators::Estimator;
use bandwidth::failure::Failure;
use bandwidth::outcome::Progress;
use bandwidth::pacing::calibration::{self, Plan};
use bandwidth::pacing::ladder;
use bandwidth::transport::Transport;
use bandwidth::udp::handover::Method;
use bandwidth::udp::transport::{Pacing, Settings, UdpTransport};
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{Error, say, sending, told_to_end};

const OPTIONS: [&str; 4] = ["estimator", "settings", "rate", "calibration"];

/// How long each try of the calibration sends.
const CALIBRATION_NS: u64 = 20_000_000;

/// Least time between two lines of progress.
const PROGRESS: Duration = Duration::from_millis(200);

pub(crate) fn run(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &[&sending::OPTIONS[..], &OPTIONS].concat())?;
    let cancel = told_to_end();
    let listener = sending::listener(&arguments, &cancel)?;
    let estimator = estimator(&arguments)?;
    let asked_bps = sending::rate(&arguments)?;
    let waiter = sending::waiter(&arguments)?;
    let mut settings = sending::settings(&arguments, listener, waiter)?;
    settings.pacing = match arguments.or("calibration", "loopback".to_owned())?.as_str() {
        "loopback" => calibrate(&arguments, &settings, asked_bps)?,
        "none" if asked_bps.is_none() => None,
        "none" => return Err(Error::Usage("--rate needs the calibration".into())),
        other => return Err(Error::Usage(format!("--calibration {other}: accepted are loopback and none"))),
    };
    let placement = settings.placement;
    let mut transport = UdpTransport::open(settings)?;
    say(&sending::session(&transport))?;
    let mut told = Instant::now();
    let mut unheard = None;
    let mut watch = |progress: &Progress| {
        if told.elapsed() < PROGRESS {
            return ControlFlow::Continue(());
        }
        told = Instant::now();
        match say(&event(progress)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                unheard = Some(error);
                ControlFlow::Break(())
            }
        }
    };
    let outcome = estimator.estimate(&mut transport, &mut watch);
    let (limits, tally) = (limits(&transport), transport.tally());
    transport.close();
    if let Some(error) = unheard {
        return Err(error);
    }
    say(&json!({
        "event": "result",
        "settings": estimator,
        "outcome": outcome?,
        "limits": limits,
        "tally": tally,
        "timing": sending::timing(&waiter, placement),
    }))
}

/// The estimator of a name, with those of its settings that are given.
fn estimator(arguments: &Arguments) -> Result<Estimator, Error> {
    let name = arguments.or("estimator", "kite2".to_owned())?;
    if !Estimator::NAMES.contains(&name.as_str()) {
        let known = Estimator::NAMES.join(", ");
        return Err(Failure::Invalid(format!("there is no estimator {name:?}: accepted are {known}")).into());
    }
    let given: Option<Value> = arguments.maybe("settings")?;
    let Value::Object(mut settings) = given.unwrap_or_else(|| json!({})) else {
        return Err(Error::Usage("--settings takes a JSON object".into()));
    };
    if let Some(packet_bytes) = arguments.maybe::<u32>("packet-bytes")? {
        settings.insert("packet_bytes".into(), json!(packet_bytes));
    }
    settings.insert("estimator".into(), json!(name));
    serde_json::from_value(Value::Object(settings))
        .map_err(|error| Failure::Invalid(format!("settings of {name}: {error}")).into())
}

/// What this host paces, on its loopback; `None` where that does not work, or paces nothing.
fn calibrate(arguments: &Arguments, settings: &Settings, asked_bps: Option<f64>) -> Result<Option<Pacing>, Error> {
    let methods = settings.method.map_or(vec![Method::Send, Method::Gso, Method::Sendmmsg], |method| {
        if method == Method::Send { vec![Method::Send] } else { vec![Method::Send, method] }
    });
    let plan = Plan {
        waiter: settings.waiter,
        placement: settings.placement,
        packet_bytes: arguments.or("packet-bytes", sending::PACKET_BYTES)?,
        duration_ns: CALIBRATION_NS,
        methods,
        cancel: settings.listener.cancel.clone(),
    };
    let calibration = match calibration::on_loopback(&plan) {
        // What is not known beforehand is seen of each stream, unless somebody must know it.
        Err(Failure::Unsupported(reason)) if asked_bps.is_none() => {
            say(&json!({"event": "pacing", "pacing": null, "reason": reason}))?;
            return Ok(None);
        }
        calibration => calibration?,
    };
    let pacing = calibration.pacing();
    let rungs = calibration.rungs.iter();
    say(&json!({
        "event": "pacing",
        "pacing": pacing,
        "rungs": rungs.map(|rung| json!({"method": rung.method, "honest_bps": rung.honest_bps()})).collect::<Vec<_>>(),
        "unsupported": calibration.unsupported,
    }))?;
    if let Some(asked_bps) = asked_bps {
        ladder::require(asked_bps, &calibration.rungs)?;
    }
    Ok(pacing)
}

fn event(progress: &Progress) -> Value {
    json!({
        "event": "progress",
        "instants_done": progress.instants_done,
        "instants": progress.instants,
        "streams": progress.streams,
        "bytes": progress.bytes,
        "rate_bps": progress.rate_bps,
        "verdict": progress.verdict,
    })
}

fn limits(transport: &UdpTransport) -> Value {
    let limits = transport.limits();
    json!({
        "longest_bytes": limits.longest_bytes,
        "burst_cost_ns": limits.burst_cost_ns,
        "packet_cost_ns": limits.packet_cost_ns,
        "honest_bps": limits.honest_bps,
    })
}
