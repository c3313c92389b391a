//! What the words say about sending; and `stream`, which sends one stream and tells how it went, and `cross-traffic`,
//! which fills a part of a path for whoever measures what an estimator finds there.

use std::env;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bandwidth::control::client;
use bandwidth::control::token::Token;
use bandwidth::control::{PORT, TOOL_VERSION};
use bandwidth::cross_traffic::{self, CrossTraffic, Kind};
use bandwidth::estimators::PACKET_BYTES;
use bandwidth::pacing::placement::Placement;
use bandwidth::pacing::profile::Profile;
use bandwidth::pacing::timing::{ClockChoice, SleepChoice, Waiter};
use bandwidth::transport::{Stream, Transport};
use bandwidth::udp::transport::{Settings, UdpTransport};
use failure::Failure;
use serde_json::{Value, json};

use super::arguments::Arguments;
use super::{Error, say, told_to_end};

/// Options of a command that sends to a listener.
pub(crate) const OPTIONS: [&str; 9] =
    ["port", "token", "clock", "sleep", "margin-us", "method", "cpu", "fifo", "packet-bytes"];

/// Where the token is looked for that no option gives.
const TOKEN_VARIABLE: &str = "VIRTGAUGE_BANDWIDTH_TOKEN";

const TRAFFIC_OPTIONS: [&str; 7] = ["rate", "packet-bytes", "kind", "seconds", "cpu", "fifo", "seed"];

/// Packets of a stream where nobody chose another number.
const PACKETS: u32 = 1000;

/// Its rate where nobody chose another.
const RATE_BPS: f64 = 100e6;

/// The listener, which must be named.
pub(crate) fn listener(arguments: &Arguments, cancel: &Arc<AtomicBool>) -> Result<client::Settings, Error> {
    let host = arguments.rest(1)?.first().ok_or_else(|| Error::Usage("which HOST?".into()))?;
    Ok(client::Settings {
        host: host.clone(),
        port: arguments.or("port", PORT)?,
        secret: token(arguments)?,
        cancel: Arc::clone(cancel),
    })
}

/// The listener's secret: an option can be read in the machine's list of processes, the environment by its user only.
pub(crate) fn token(arguments: &Arguments) -> Result<Option<Token>, Error> {
    if let Some(token) = arguments.maybe("token")? {
        return Ok(Some(token));
    }
    let given = env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty());
    given.map(|token| token.parse().map_err(|error| format!("{TOKEN_VARIABLE}: {error}").into())).transpose()
}

/// The clock and the sleep; hptime's where nobody chose others.
pub(crate) fn waiter(arguments: &Arguments) -> Result<Waiter, Error> {
    let clock = arguments.or("clock", ClockChoice::Hptime)?;
    let sleep = arguments.or("sleep", SleepChoice::Hptime)?;
    let margin_us: Option<u32> = arguments.maybe("margin-us")?;
    Ok(Waiter::new(clock, sleep, margin_us.map(|us| i64::from(us) * 1000)))
}

/// Where the sending thread runs.
pub(crate) fn placement(arguments: &Arguments) -> Result<Placement, Error> {
    Ok(Placement { cpu: arguments.maybe("cpu")?, fifo: arguments.maybe("fifo")? })
}

/// A transport, as the words describe it.
pub(crate) fn settings(arguments: &Arguments, listener: client::Settings, waiter: Waiter) -> Result<Settings, Error> {
    Ok(Settings {
        listener,
        waiter,
        placement: placement(arguments)?,
        method: arguments.maybe("method")?,
        pacing: None,
    })
}

/// By what times are kept here.
pub(crate) fn timing(waiter: &Waiter, placement: Placement) -> Value {
    json!({
        "clock": waiter.clock,
        "sleep": waiter.sleep,
        "margin_ns": waiter.margin_ns,
        "placement": placement,
        "hptime_fallback_reason": hptime::clock().fallback_reason().map(hptime::Fallback::text),
        "tool_version": TOOL_VERSION,
    })
}

/// What the session is like.
pub(crate) fn session(transport: &UdpTransport) -> Value {
    let session = transport.session();
    json!({
        "event": "session",
        "peer": session.peer(),
        "listener_version": session.listener_version,
        "no_kernel_stamps": session.no_kernel_stamps,
        "listener_buffer_bytes": session.buffer_bytes,
        "round_trip_ns": session.round_trip.as_nanos() as u64,
        "method": transport.method(),
        "method_reason": transport.method_reason(),
    })
}

/// Refuses a rate that is none.
pub(crate) fn rate(arguments: &Arguments) -> Result<Option<f64>, Error> {
    let rate: Option<f64> = arguments.maybe("rate")?;
    match rate {
        Some(bps) if !(bps.is_finite() && (1e3..=1e12).contains(&bps)) => {
            let message = format!("a rate of {bps} bit/s: accepted are 1000 (1e3) to 1e12");
            Err(Failure::Invalid(message).into())
        }
        rate => Ok(rate),
    }
}

/// Sends one stream and tells how it went.
pub(crate) fn stream(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &[&OPTIONS[..], &["rate", "packets", "burst"]].concat())?;
    let cancel = told_to_end();
    let listener = listener(&arguments, &cancel)?;
    let waiter = waiter(&arguments)?;
    let rate_bps = rate(&arguments)?.unwrap_or(RATE_BPS);
    let packet_bytes = arguments.or("packet-bytes", PACKET_BYTES)?;
    let stream = Stream::at_rate(arguments.or("packets", PACKETS)?, packet_bytes, rate_bps)
        .in_bursts_of(arguments.or("burst", 1)?);
    let settings = settings(&arguments, listener, waiter)?;
    let placement = settings.placement;
    let mut transport = UdpTransport::open(settings)?;
    say(&session(&transport))?;
    let observation = transport.send(&stream)?;
    let gaps = observation.received.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns);
    say(&json!({
        "event": "result",
        "stream": stream,
        "sent": Profile::of_observation(&observation),
        "received": observation.received.len(),
        "lost": observation.lost(),
        "refused": observation.refused(),
        "reordered": observation.reordered(),
        "duplicates": observation.duplicates,
        "coalesced": observation.received.iter().filter(|received| received.coalesced).count(),
        "foreign_packets": observation.foreign_packets,
        "received_gaps_ns": gaps.collect::<Vec<i64>>(),
        "tally": transport.tally(),
        "timing": timing(&waiter, placement),
    }))?;
    transport.close();
    Ok(())
}

/// Sends cross traffic until it is told to end, or for some seconds.
pub(crate) fn cross_traffic(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &TRAFFIC_OPTIONS)?;
    let stop = told_to_end();
    let to = arguments.rest(1)?.first().ok_or_else(|| Error::Usage("which ADDRESS:PORT?".into()))?;
    let destination = to.parse().map_err(|error| format!("{to}: {error}; such as 192.0.2.1:9"))?;
    let rate_bps = rate(&arguments)?.ok_or_else(|| Error::Usage("which --rate?".into()))?;
    let seconds = arguments.maybe("seconds")?.map(|_: f64| arguments.number("seconds", 0.0, 0.0)).transpose()?;
    let traffic = CrossTraffic::open(cross_traffic::Settings {
        destination,
        rate_bps,
        packet_bytes: arguments.or("packet-bytes", PACKET_BYTES)?,
        kind: arguments.or("kind", Kind::Constant)?,
        seed: arguments.or("seed", 1)?,
    })?;
    placement(&arguments)?.apply()?;
    say(&json!({"event": "sending", "destination": destination}))?;
    let work = traffic.send(seconds.map(|seconds| (seconds * 1e9) as u64), &stop)?;
    say(&json!({"event": "result", "sent": work}))
}
