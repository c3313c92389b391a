//! A first idea of the path's capacity, from how far it pulls back-to-back packets apart.

use failure::Failure;

use crate::estimators::kite2::Settings;
use crate::outcome::{Verdict, Why};
use crate::probing::{Note, Probing};
use crate::statistics;
use crate::train::arrivals;
use crate::transport::{Spacing, Stream};

/// Trains that the hint is the median of.
const TRAINS: usize = 5;

/// Packets in the first train.
const FIRST_PACKETS: u32 = 64;

/// Arrivals in fewer batches than this say more of the receiver than of the path.
const LEAST_BATCHES: usize = 8;

/// Rest before each train, in nanoseconds: there is no rate yet to reckon it from.
const MEAN_REST_NS: f64 = 5e6;

/// The rate at which back-to-back packets come, in bit/s of IP packets; `None` if even long trains came in few batches.
///
/// It lies between what is available and the capacity (Dovrolis, Ramanathan, Moore 2004: the asymptotic dispersion rate).
pub(super) fn capacity_bps(probing: &mut Probing<'_>, settings: &Settings) -> Result<Option<f64>, Failure> {
    let mut packets = FIRST_PACKETS.min(settings.most_packets);
    let mut found = Vec::with_capacity(TRAINS);
    while found.len() < TRAINS {
        let stream = Stream {
            packets,
            packet_bytes: settings.packet_bytes,
            gap_ps: 0,
            burst: probing.limits().most_burst.max(1),
            spacing: Spacing::Absolute,
        };
        let (observation, pacing) = probing.send(&stream, MEAN_REST_NS)?;
        let dispersion_bps = arrivals::dispersion_bps(&observation, LEAST_BATCHES);
        let why = if dispersion_bps.is_some() { Why::Dispersion } else { Why::Nothing };
        probing.note(&observation, &pacing, Note::new(Verdict::Measured, why))?;
        match dispersion_bps {
            Some(bps) => found.push(bps),
            None if packets < settings.most_packets => packets = (2 * packets).min(settings.most_packets),
            None => break,
        }
    }
    Ok(statistics::median(&found))
}
