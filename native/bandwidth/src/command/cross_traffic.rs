//! `cross-traffic`: fills a part of a path, for whoever measures what an estimator finds there.

use bandwidth::cross_traffic::{CrossTraffic, Kind, Settings};
use bandwidth::estimators::choices::PACKET_BYTES;
use serde_json::json;

use super::arguments::Arguments;
use super::{Error, say, sending, told_to_end};

const OPTIONS: [&str; 7] = ["rate", "packet-bytes", "kind", "seconds", "cpu", "fifo", "seed"];

pub(crate) fn run(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &OPTIONS)?;
    let stop = told_to_end();
    let to = arguments.rest(1)?.first().ok_or_else(|| Error::Usage("which ADDRESS:PORT?".into()))?;
    let destination = to.parse().map_err(|error| format!("{to}: {error}; such as 192.0.2.1:9"))?;
    let rate_bps = sending::rate(&arguments)?.ok_or_else(|| Error::Usage("which --rate?".into()))?;
    let seconds = arguments.maybe("seconds")?.map(|_: f64| arguments.number("seconds", 0.0, 0.0)).transpose()?;
    let traffic = CrossTraffic::open(Settings {
        destination,
        rate_bps,
        packet_bytes: arguments.or("packet-bytes", PACKET_BYTES)?,
        kind: arguments.or("kind", Kind::Constant)?,
        seed: arguments.or("seed", 1)?,
    })?;
    sending::placement(&arguments)?.apply()?;
    say(&json!({"event": "sending", "destination": destination}))?;
    let work = traffic.send(seconds.map(|seconds| (seconds * 1e9) as u64), &stop)?;
    say(&json!({"event": "result", "sent": work}))
}
