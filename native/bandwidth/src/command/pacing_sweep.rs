//! `pacing sweep`: how fast this host can send, and how fast it can do so on time.

use bandwidth::estimators::PACKET_BYTES;
use bandwidth::pacing::calibration::{self, Plan};
use bandwidth::pacing::frames::{self, Link};
use bandwidth::pacing::sweep;
use bandwidth::udp::handover::Method;
use bandwidth::udp::transport::UdpTransport;
use failure::Failure;
use packets::port::Kind;
use serde_json::json;

use super::arguments::Arguments;
use super::{Error, say, sending, told_to_end};

const OPTIONS: [&str; 5] = ["methods", "duration-ms", "rate", "interface", "destination-mac"];

/// How long each try sends.
const DURATION_MS: f64 = 100.0;

pub(crate) fn run(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &[&sending::OPTIONS[..], &OPTIONS].concat())?;
    let cancel = told_to_end();
    let waiter = sending::waiter(&arguments)?;
    let names = arguments.or("methods", "send,sendmmsg,gso".to_owned())?;
    let methods: Result<Vec<Method>, Failure> =
        names.split(',').filter(|name| !name.is_empty()).map(str::parse).collect();
    let plan = Plan {
        waiter,
        placement: sending::placement(&arguments)?,
        packet_bytes: arguments.or("packet-bytes", PACKET_BYTES)?,
        duration_ns: (arguments.number("duration-ms", DURATION_MS, 1.0)? * 1e6) as u64,
        methods: methods?,
        cancel: cancel.clone(),
    };
    let asked_bps = sending::rate(&arguments)?;
    let link = link(&arguments)?;
    let mut calibration = if arguments.rest(1)?.is_empty() {
        calibration::on_loopback(&plan)?
    } else {
        let listener = sending::listener(&arguments, &cancel)?;
        let mut transport = UdpTransport::open(sending::settings(&arguments, listener, waiter)?)?;
        say(&sending::session(&transport))?;
        let calibration = calibration::over(&mut transport, &plan)?;
        transport.close();
        calibration
    };
    let pacing = calibration.pacing();
    for (method, reason) in &calibration.unsupported {
        say(&json!({"event": "unsupported", "method": method, "reason": reason}))?;
    }
    if let Some(link) = link {
        for kind in [Kind::AfXdp, Kind::XdpLive] {
            match frames::climb(kind, &link, plan.packet_bytes, plan.duration_ns) {
                Ok(rung) => calibration.rungs.push(rung),
                Err(Failure::Unsupported(reason)) => {
                    say(&json!({"event": "unsupported", "method": kind.name(), "reason": reason}))?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }
    for rung in &calibration.rungs {
        say(&json!({"event": "rung", "rung": rung}))?;
    }
    if let Some(asked_bps) = asked_bps {
        sweep::require(asked_bps, &calibration.rungs)?;
    }
    say(&json!({
        "event": "result",
        "packet_bytes": plan.packet_bytes,
        "max_paced_bps": calibration.max_paced_bps(),
        "sockets": pacing,
        "timing": sending::timing(&waiter, plan.placement),
    }))
}

fn link(arguments: &Arguments) -> Result<Option<Link>, Error> {
    let interface: Option<String> = arguments.maybe("interface")?;
    let mac: Option<String> = arguments.maybe("destination-mac")?;
    match (interface, mac) {
        (None, None) => Ok(None),
        (Some(interface), Some(mac)) => {
            let destination_mac = mac_in(&mac)
                .ok_or_else(|| Error::Usage(format!("--destination-mac {mac}: such as 02:00:00:00:00:01")))?;
            Ok(Some(Link { interface, destination_mac, cpu: arguments.maybe("cpu")? }))
        }
        _ => Err(Error::Usage("--interface and --destination-mac go together".into())),
    }
}

fn mac_in(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| (byte.len() == 2).then(|| u8::from_str_radix(byte, 16).ok()).flatten()).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_has_six_bytes() {
        assert_eq!(mac_in("02:00:00:0a:FF:01"), Some([2, 0, 0, 10, 255, 1]));
        for wrong in
            ["", "02:00:00:0a:ff", "02:00:00:0a:ff:01:02", "2:0:0:a:f:1", "02-00-00-0a-ff-01", "02:00:00:0a:fg:01"]
        {
            assert_eq!(mac_in(wrong), None, "{wrong}");
        }
    }
}
