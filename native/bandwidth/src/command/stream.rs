//! `stream`: one stream, and how it went.

use bandwidth::estimators::choices::PACKET_BYTES;
use bandwidth::pacing::profile::Profile;
use bandwidth::transport::{Stream, Transport};
use bandwidth::udp::transport::UdpTransport;
use serde_json::json;

use super::arguments::Arguments;
use super::{Error, say, sending, told_to_end};

/// Packets where nobody chose another number.
const PACKETS: u32 = 1000;

/// Rate where nobody chose another.
const RATE_BPS: f64 = 100e6;

pub(crate) fn run(words: Vec<String>) -> Result<(), Error> {
    let arguments = Arguments::of(words, &[&sending::OPTIONS[..], &["rate", "packets", "burst"]].concat())?;
    let cancel = told_to_end();
    let listener = sending::listener(&arguments, &cancel)?;
    let waiter = sending::waiter(&arguments)?;
    let rate_bps = sending::rate(&arguments)?.unwrap_or(RATE_BPS);
    let packet_bytes = arguments.or("packet-bytes", PACKET_BYTES)?;
    let stream = Stream::at_rate(arguments.or("packets", PACKETS)?, packet_bytes, rate_bps)
        .in_bursts_of(arguments.or("burst", 1)?);
    let settings = sending::settings(&arguments, listener, waiter)?;
    let placement = settings.placement;
    let mut transport = UdpTransport::open(settings)?;
    say(&sending::session(&transport))?;
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
        "timing": sending::timing(&waiter, placement),
    }))?;
    transport.close();
    Ok(())
}
