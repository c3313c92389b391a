//! `estimate`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use bandwidth::estimators::{Choices, Estimator, PACKET_BYTES};
use bandwidth::outcome::Progress;
use bandwidth::pacing::account::Counted;
use bandwidth::pacing::calibration::{self, Plan};
use bandwidth::pacing::sweep;
use bandwidth::transport::Transport;
use bandwidth::udp::transport::{Pacing, Settings, UdpTransport};
use failure::Failure;
use serde_json::{Map, Value, json};

use super::arguments::Arguments;
use super::{Error, say, sending, told_to_end};

const OPTIONS: [&str; 7] = ["estimator", "settings", "lowest", "highest", "instants", "rate", "calibration"];

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
    let mut event = known(&transport);
    transport.close();
    if let Some(error) = unheard {
        return Err(error);
    }
    let outcome = outcome.map_err(|failure| Error::Failure(failure, event.clone()))?;
    event.insert("event".into(), json!("result"));
    event.insert("settings".into(), json!(estimator));
    event.insert("outcome".into(), json!(outcome));
    event.insert("timing".into(), sending::timing(&waiter, placement));
    say(&event)
}

/// The estimator of a name, with what is chosen of it.
fn estimator(arguments: &Arguments) -> Result<Estimator, Error> {
    let given: Option<Value> = arguments.maybe("settings")?;
    let Value::Object(settings) = given.unwrap_or_else(|| json!({})) else {
        return Err(Error::Usage("--settings takes a JSON object".into()));
    };
    let choices = Choices {
        settings,
        packet_bytes: arguments.maybe("packet-bytes")?,
        lowest_bps: arguments.maybe("lowest")?,
        highest_bps: arguments.maybe("highest")?,
        instants: arguments.maybe("instants")?,
    };
    Ok(Estimator::chosen(&arguments.or("estimator", "kite2".to_owned())?, choices)?)
}

/// What this host paces, on its loopback; `None` where that does not work, or paces nothing.
fn calibrate(arguments: &Arguments, settings: &Settings, asked_bps: Option<f64>) -> Result<Option<Pacing>, Error> {
    let plan = Plan::before_estimate(settings, arguments.or("packet-bytes", PACKET_BYTES)?);
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
        "rungs": rungs.map(|rung| json!({"method": rung.method, "max_paced_bps": rung.max_paced_bps()})).collect::<Vec<_>>(),
        "unsupported": calibration.unsupported,
    }))?;
    if let Some(asked_bps) = asked_bps {
        sweep::require(asked_bps, &calibration.rungs)?;
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

/// What is known of the sender at the end, whether there is an estimate or not.
fn known(transport: &UdpTransport) -> Map<String, Value> {
    let account = transport.account();
    Map::from_iter([
        ("method".to_owned(), json!(transport.method())),
        ("stamp".to_owned(), json!(transport.stamp())),
        ("limits".to_owned(), json!(transport.limits())),
        ("tally".to_owned(), json!(transport.tally())),
        ("gaps".to_owned(), json!(Counted::of(&account.gaps, "permille"))),
        ("lateness".to_owned(), json!(Counted::of(&account.lateness, "ns"))),
    ])
}
