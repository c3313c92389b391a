//! What the arrivals of a train tell, once packets that came in a batch are taken as one.

use crate::statistics::{self, Slope, median_in};
use crate::transport::Observation;

/// Packets closer together than this share of the least gap that the path can make did not come so, but were noticed
/// together: a quarter, so that neither a doubtful capacity nor noise makes batches of single packets.
const TOGETHER: f64 = 0.25;

/// Share of a train at either end whose delays are averaged for the rate.
const END: f64 = 0.125;

/// Lags at which the delay's increments are compared, as parts of the train.
const SHORT_LAG: usize = 16;
/// The longer of the two.
const LONG_LAG: usize = 6;

/// What a train went through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Passage {
    /// Received rate by sent rate.
    pub(crate) rate_ratio: f64,
    /// Growth of the one-way delay by the time of sending, without unit.
    pub(crate) delay: Slope,
    /// How much the delay wanders by itself over a train, by the train's duration, without unit.
    pub(crate) wander: f64,
}

/// A packet that came: when it was sent, by the sender's clock, and when it was stamped, by the receiver's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Arrival {
    sent_ns: i64,
    at_ns: i64,
}

/// Packets that were noticed together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Batch {
    first: Arrival,
    last: Arrival,
    packets: usize,
}

/// The batches, in order of arrival.  `only` chooses packets by number.
fn batches(observation: &Observation, least_gap_ns: f64, only: impl Fn(u32) -> bool) -> Vec<Batch> {
    let together_ns = (TOGETHER * least_gap_ns).max(f64::from(observation.resolution_ns));
    let mut batches: Vec<Batch> = Vec::with_capacity(observation.received.len());
    for received in observation.received.iter().filter(|received| only(received.sequence)) {
        let Some(sent) = observation.sent.get(received.sequence as usize) else { continue };
        let arrival = Arrival { sent_ns: sent.actual_ns, at_ns: received.at_ns };
        match batches.last_mut() {
            Some(batch) if received.coalesced || ((arrival.at_ns - batch.last.at_ns) as f64) < together_ns => {
                (batch.last, batch.packets) = (arrival, batch.packets + 1);
            }
            _ => batches.push(Batch { first: arrival, last: arrival, packets: 1 }),
        }
    }
    batches
}

/// What a paced train went through; `None` if too little of it came to say.
///
/// Of each burst only the last packet is looked at: the others waited for it on purpose.  Of each batch one packet stands
/// for all: the first if a timer ran from its arrival, so that all first ones waited equally long; otherwise the last,
/// which waited least.  Which one it is shows in how well the delays lie on a line.
pub(crate) fn passage(observation: &Observation, least_gap_ns: f64) -> Option<Passage> {
    let stream = &observation.stream;
    let last_of_burst = |packet: u32| packet % stream.burst == stream.burst - 1 || packet == stream.packets - 1;
    let batches = batches(observation, least_gap_ns, last_of_burst);
    if batches.iter().all(|batch| batch.packets == 1) {
        return passage_of(batches.iter().map(|batch| batch.last));
    }
    // The train may have begun and ended in the middle of a batch, whose outer packets then waited for nothing.
    let by_first = passage_of(batches.iter().skip(1).map(|batch| batch.first));
    let by_last = passage_of(batches[..batches.len() - 1].iter().map(|batch| batch.last));
    match (by_first, by_last) {
        (Some(first), Some(last)) if first.delay.standard_error < last.delay.standard_error => Some(first),
        _ => by_last,
    }
}

fn passage_of(arrivals: impl Iterator<Item = Arrival> + Clone) -> Option<Passage> {
    let origin = arrivals.clone().next()?;
    let mut points: Vec<(f64, f64)> = arrivals
        .map(|arrival| {
            let sent_ns = (arrival.sent_ns - origin.sent_ns) as f64;
            (sent_ns, (arrival.at_ns - origin.at_ns) as f64 - sent_ns)
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let delay = statistics::theil_sen(&points)?;
    Some(Passage { rate_ratio: rate_ratio(&points)?, delay, wander: wander(&points, delay.value) })
}

/// Received rate by sent rate, from how much longer the end of the train was under way than its beginning.
fn rate_ratio(points: &[(f64, f64)]) -> Option<f64> {
    let end = ((points.len() as f64 * END) as usize).max(1);
    if points.len() < 2 * end + 1 {
        return None;
    }
    let middle = |points: &[(f64, f64)]| {
        let mean_ns = points.iter().map(|point| point.0).sum::<f64>() / points.len() as f64;
        let mut delays: Vec<f64> = points.iter().map(|point| point.1).collect();
        Some((mean_ns, median_in(&mut delays)?))
    };
    let (head, tail) = (middle(&points[..end])?, middle(&points[points.len() - end..])?);
    let (sent_ns, grown_ns) = (tail.0 - head.0, tail.1 - head.1);
    (sent_ns > 0.0 && sent_ns + grown_ns > 0.0).then(|| sent_ns / (sent_ns + grown_ns))
}

/// How far the delay strays over the whole train like a random walk, by the train's duration.
///
/// The variance of the delay's increments grows by σ² per time where it wanders and not at all where it is only noisy, so
/// that stamps and batches do not count: σ² is its growth between two lags.  Over a train of duration D it strays σ·√D.
fn wander(points: &[(f64, f64)], slope: f64) -> f64 {
    let short = (points.len() / SHORT_LAG).max(1);
    let long = (points.len() / LONG_LAG).max(short + 1);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    let (Some(short), Some(long)) = (variance(points, short, slope), variance(points, long, slope)) else { return 0.0 };
    let (time_ns, train_ns) = (long.0 - short.0, last.0 - first.0);
    if time_ns <= 0.0 || train_ns <= 0.0 {
        return 0.0;
    }
    ((long.1 - short.1) / time_ns).max(0.0).sqrt() / train_ns.sqrt()
}

/// The mean time between points so many apart, and the variance of what happens in it beside the slope.
fn variance(points: &[(f64, f64)], lag: usize, slope: f64) -> Option<(f64, f64)> {
    let pairs = points.iter().zip(points.get(lag..)?);
    let (time, square) = pairs.fold((0.0, 0.0), |(time, square), (from, to)| {
        let passed = to.0 - from.0;
        (time + passed, square + (to.1 - from.1 - slope * passed).powi(2))
    });
    let count = (points.len() - lag) as f64;
    (count > 0.0).then(|| (time / count, square / count))
}

/// The rate at which packets that were sent back to back came, in bit/s of IP packets; `None` if they came in fewer than
/// `least` batches, so that it says more of the receiver than of the path.
pub(crate) fn dispersion_bps(observation: &Observation, least: usize) -> Option<f64> {
    let received = &observation.received;
    let span_ns = (received.last()?.at_ns - received.first()?.at_ns) as f64;
    let mean_gap_ns = span_ns / (received.len() - 1).max(1) as f64;
    let batches = batches(observation, mean_gap_ns, |_| true);
    if batches.len() < least.max(2) {
        return None;
    }
    let batches = if batches.iter().all(|batch| batch.packets == 1) { &batches } else { &batches[..batches.len() - 1] };
    // From the end of the first batch to that of the last, all but the first one came.
    let packets: usize = batches[1..].iter().map(|batch| batch.packets).sum();
    let between_ns = (batches.last()?.last.at_ns - batches.first()?.last.at_ns) as f64;
    (between_ns > 0.0).then(|| packets as f64 * f64::from(observation.stream.packet_bytes) * 8e9 / between_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::simulated::{Batching, CrossTraffic, Hop, Path, Receiver, SimulatedPath};
    use crate::transport::{Spacing, Stream, Transport};

    const HALF: CrossTraffic = CrossTraffic::Fluid { rate_bps: 500e6 };

    fn observed(path: Path, stream: &Stream) -> Observation {
        SimulatedPath::new(path, 1).send(stream).expect("the simulation sends")
    }

    fn back_to_back(packets: u32) -> Stream {
        Stream { packets, packet_bytes: 1500, gap_ps: 0, burst: 1, spacing: Spacing::Absolute }
    }

    #[test]
    fn delay_grows_as_the_theory_says_and_batches_do_not_hide_it() {
        // Wire rate 800 · 1538/1500; the queue grows by (R + X − C)/C.
        let expected = (800e6 * 1538.0 / 1500.0 + 500e6 - 1e9) / 1e9;
        let path = Path::of(Hop::ethernet(1e9).with(HALF));
        for batching in
            [Batching::None, Batching::FromFirst { period_ns: 60e3 }, Batching::Regular { period_ns: 100e3 }]
        {
            let receiver = Receiver { batching, batch_step_ns: 300.0, ..Receiver::default() };
            for burst in [1, 4] {
                let stream = Stream::at_rate(400, 1500, 800e6).in_bursts_of(burst);
                let found = passage(&observed(Path { receiver, ..path.clone() }, &stream), 12_300.0).expect("came");
                assert!((found.delay.value / expected - 1.0).abs() < 0.03, "{batching:?} {burst}: {found:?}");
                assert!((found.rate_ratio * (1.0 + expected) - 1.0).abs() < 0.03, "{batching:?} {burst}: {found:?}");
            }
        }
    }

    #[test]
    fn a_rate_that_is_available_leaves_no_trace() {
        let path = Path::of(Hop::ethernet(1e9).with(HALF));
        let found = passage(&observed(path, &Stream::at_rate(400, 1500, 480e6)), 12_300.0).expect("came");
        assert!(found.delay.value.abs() < 1e-6 && (found.rate_ratio - 1.0).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn back_to_back_packets_show_the_capacity_even_in_batches() {
        let path = Path::of(Hop::ethernet(1e9));
        let capacity = path.available_bps(1500);
        let alone = dispersion_bps(&observed(path.clone(), &back_to_back(100)), 5).expect("came");
        assert!((alone / capacity - 1.0).abs() < 1e-3, "{alone}");
        let batching = Batching::Regular { period_ns: 100e3 };
        let receiver = Receiver { batching, batch_step_ns: 300.0, ..Receiver::default() };
        let path = Path { receiver, ..path };
        let together = dispersion_bps(&observed(path.clone(), &back_to_back(300)), 5).expect("came");
        assert!((together / capacity - 1.0).abs() < 0.05, "{together}");
        assert_eq!(dispersion_bps(&observed(path, &back_to_back(20)), 5), None);
    }

    /// Mean of what is found in many trains of 1000 points, a nanosecond apart.
    fn mean_wander(mut delay: impl FnMut(&mut Random, f64) -> f64) -> f64 {
        let mut random = Random::new(9);
        let trains = 200;
        let total: f64 = (0..trains)
            .map(|_| {
                let mut now = 0.0;
                let points: Vec<(f64, f64)> = (0..1000)
                    .map(|i| {
                        now = delay(&mut random, now);
                        (f64::from(i), now)
                    })
                    .collect();
                wander(&points, 0.0)
            })
            .sum();
        total / f64::from(trains)
    }

    #[test]
    fn a_random_walk_strays_with_the_root_of_time() {
        // σ·√D/D with σ = 2 and D = 1000.
        let walk = mean_wander(|random, now| now + random.normal(2.0));
        assert!((walk / (2.0 / 1000.0f64.sqrt()) - 1.0).abs() < 0.1, "{walk}");
    }

    #[test]
    fn noise_does_not_stray() {
        let noise = mean_wander(|random, _| random.normal(2.0));
        assert!(noise < 0.1 * 2.0 / 1000.0f64.sqrt(), "{noise}");
        assert!(wander(&[], 0.0).abs() < f64::EPSILON && wander(&[(0.0, 1.0), (1.0, 2.0)], 0.0).abs() < f64::EPSILON);
    }
}
