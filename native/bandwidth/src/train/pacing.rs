//! Whether a train was sent as it was asked for.

use crate::outcome::Why;
use crate::statistics::median_in;
use crate::transport::Observation;

/// A rate that was missed by more than this share is not the rate that was asked for.
const SLOW: f64 = 0.01;

/// A packet this much later than usual, as a share of the train's duration, is a stall.
const STALL_OF_TRAIN: f64 = 0.02;

/// Lateness below this is no stall, however short the train, in nanoseconds: the path's own queues do as much.
const LEAST_STALL_NS: f64 = 10_000.0;

/// How a train was sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pacing {
    /// Mean gap, in nanoseconds, from the first packet to the last burst; `None` for a train of one burst.
    pub(crate) gap_ns: Option<f64>,
    /// How much later than usual the latest burst was, in nanoseconds.
    pub(crate) stall_ns: f64,
    /// Why the train is not what was asked for.
    pub(crate) fault: Option<Why>,
}

impl Pacing {
    /// Looks at how a train was sent.
    pub(crate) fn of(observation: &Observation) -> Self {
        let stream = &observation.stream;
        let heads: Vec<_> = observation.sent.iter().step_by(stream.burst.max(1) as usize).collect();
        let gap_ns = match (heads.first(), heads.last()) {
            (Some(first), Some(last)) if heads.len() > 1 => {
                let packets = (heads.len() - 1) as f64 * f64::from(stream.burst);
                Some((last.actual_ns - first.actual_ns) as f64 / packets)
            }
            _ => None,
        };
        let mut lateness: Vec<f64> = heads.iter().map(|sent| (sent.actual_ns - sent.planned_ns) as f64).collect();
        let latest = lateness.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let stall_ns = median_in(&mut lateness).map_or(0.0, |usual| latest - usual);

        let asked_ns = stream.gap_ps as f64 / 1e3;
        let tolerated_ns = (STALL_OF_TRAIN * stream.duration_ns() as f64)
            .max(2.0 * asked_ns * f64::from(stream.burst))
            .max(LEAST_STALL_NS);
        let off_ns = |gap_ns: f64| (gap_ns - asked_ns).abs() * f64::from(stream.packets);
        let slow = gap_ns.is_some_and(|gap_ns| off_ns(gap_ns) > LEAST_STALL_NS.max(SLOW * stream.duration_ns() as f64));
        let fault = if observation.refused() > 0 || observation.sent.len() < stream.packets as usize {
            Some(Why::SenderRefused)
        } else if stall_ns > tolerated_ns && !steadily_late(observation) {
            Some(Why::SenderStalled)
        } else if slow {
            Some(Why::SenderSlow)
        } else {
            None
        };
        Self { gap_ns, stall_ns, fault }
    }

    /// The rate at which it was sent, in bit/s of IP packets.
    pub(crate) fn sent_bps(&self, packet_bytes: u32) -> Option<f64> {
        self.gap_ns.filter(|&gap_ns| gap_ns > 0.0).map(|gap_ns| f64::from(packet_bytes) * 8e9 / gap_ns)
    }
}

/// Whether lateness grew all along the train, so that the host is too slow for the rate rather than interrupted.
fn steadily_late(observation: &Observation) -> bool {
    let lateness: Vec<i64> = observation.sent.iter().map(|sent| sent.actual_ns - sent.planned_ns).collect();
    let quarter = lateness.len() / 4;
    if quarter == 0 {
        return false;
    }
    let growth: Vec<i64> =
        (1..4).map(|part| lateness[part * quarter + quarter - 1] - lateness[part * quarter - 1]).collect();
    let (least, most) = (growth.iter().min(), growth.iter().max());
    matches!((least, most), (Some(&least), Some(&most)) if least > 0 && most < 3 * least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Hop, Path, Sender, SimulatedPath, Stalls};
    use crate::transport::{Stream, Transport};

    fn pacing(sender: Sender, stream: Stream) -> Pacing {
        let path = Path { sender, ..Path::of(Hop::ethernet(100e9)) };
        Pacing::of(&SimulatedPath::new(path, 1).send(&stream).expect("the simulation sends"))
    }

    #[test]
    fn a_punctual_train_is_faultless() {
        let found = pacing(Sender { lateness_ns: 500.0, ..Sender::default() }, Stream::at_rate(400, 1500, 1e9));
        assert_eq!(found.fault, None);
        assert!((found.sent_bps(1500).expect("a rate") / 1e9 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_stall_and_a_slow_host_are_told_apart() {
        let stalls = Stalls { per_second: 300.0, mean_ns: 2e6, unseen: 0.0 };
        let stalled = pacing(Sender { stalls, ..Sender::default() }, Stream::at_rate(400, 1500, 1e9));
        assert_eq!(stalled.fault, Some(Why::SenderStalled));
        assert!(stalled.stall_ns > 100_000.0);
        let slow = pacing(Sender { packet_cost_ns: 1500.0, ..Sender::default() }, Stream::at_rate(2000, 1500, 10e9));
        assert_eq!(slow.fault, Some(Why::SenderSlow));
        assert!((slow.sent_bps(1500).expect("a rate") / 8e9 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn a_refused_packet_is_the_hosts_fault() {
        let found = pacing(Sender { refusal: 0.1, ..Sender::default() }, Stream::at_rate(100, 1500, 1e9));
        assert_eq!(found.fault, Some(Why::SenderRefused));
    }
}
