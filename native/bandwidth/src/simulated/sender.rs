//! The sending machine: how punctual it is, and what it believes of it.

use crate::random::Random;
use crate::transport::{Sent, Spacing, Stream};

/// When the machine stands still.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Stalls {
    /// How often, per second of sending.
    pub per_second: f64,
    /// How long, in nanoseconds: the mean of an exponential distribution.
    pub mean_ns: f64,
    /// Share of the stalls that fall between the stamp and the departure, so that the sender does not see them.
    pub unseen: f64,
}

/// The sending machine.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Sender {
    /// Mean lateness of a burst, exponential, in nanoseconds.
    pub lateness_ns: f64,
    /// What handing over a burst costs, in nanoseconds.
    pub burst_cost_ns: f64,
    /// What each of its packets costs besides.
    pub packet_cost_ns: f64,
    /// When it stands still.
    pub stalls: Stalls,
    /// How fast its clock runs beyond the truth, in parts per million.
    pub drift_ppm: f64,
    /// Share of the packets that its own queue refuses.
    pub refusal: f64,
}

/// A packet on its way.
pub(super) struct Departure {
    pub(super) sequence: u32,
    /// True time of leaving, in nanoseconds.
    pub(super) leaves_ns: f64,
    pub(super) sent: Sent,
}

impl Sender {
    /// What the sender's clock shows at a true time.
    pub(super) fn clock_ns(&self, true_ns: f64) -> i64 {
        (true_ns * (1.0 + self.drift_ppm * 1e-6)).round() as i64
    }

    /// Sends a stream from a true time on.
    pub(super) fn send(&self, stream: &Stream, start_ns: f64, random: &mut Random) -> Vec<Departure> {
        let mut departures: Vec<Departure> = Vec::with_capacity(stream.packets as usize);
        let mut free_ns = start_ns;
        let mut reference_ns = start_ns;
        let burst_gap_ns = f64::from(stream.burst) * stream.gap_ps as f64 / 1e3;
        let mut stall_at_ns = self.next_stall(start_ns, random);
        let mut first = 0;
        while first < stream.packets {
            let burst = stream.burst.min(stream.packets - first);
            let due_ns = match stream.spacing {
                Spacing::Absolute => start_ns + stream.due_ns(first) as f64,
                Spacing::AfterPrevious if first == 0 => start_ns,
                Spacing::AfterPrevious => reference_ns + burst_gap_ns,
            };
            let mut stamped_ns = due_ns.max(free_ns);
            if self.lateness_ns > 0.0 {
                stamped_ns += random.exponential(self.lateness_ns);
            }
            let mut leaving_ns = stamped_ns;
            if stamped_ns >= stall_at_ns {
                let stall_ns = random.exponential(self.stalls.mean_ns);
                leaving_ns += stall_ns;
                if !random.happens(self.stalls.unseen) {
                    stamped_ns += stall_ns;
                }
                stall_at_ns = self.next_stall(leaving_ns, random);
            }
            reference_ns = leaving_ns;
            let planned_ns = self.clock_ns(due_ns);
            let actual_ns = self.clock_ns(stamped_ns);
            leaving_ns += self.burst_cost_ns;
            for sequence in first..first + burst {
                leaving_ns += self.packet_cost_ns;
                let left = !random.happens(self.refusal);
                departures.push(Departure {
                    sequence,
                    leaves_ns: leaving_ns,
                    sent: Sent { planned_ns, actual_ns, left },
                });
            }
            free_ns = leaving_ns;
            first += burst;
        }
        departures
    }

    fn next_stall(&self, after_ns: f64, random: &mut Random) -> f64 {
        if self.stalls.per_second > 0.0 {
            after_ns + random.exponential(1e9 / self.stalls.per_second)
        } else {
            f64::INFINITY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_adds_up_only_when_gaps_are_reckoned_from_the_packet_before() {
        let sender = Sender { lateness_ns: 1000.0, ..Sender::default() };
        let absolute = Stream::at_rate(1000, 1500, 1e9);
        let after = Stream { spacing: Spacing::AfterPrevious, ..absolute };
        let span = |stream| {
            let departures = sender.send(&stream, 0.0, &mut Random::new(1));
            departures[999].leaves_ns - departures[0].leaves_ns
        };
        assert!((span(absolute) - 999.0 * 12_000.0).abs() < 20_000.0);
        assert!((span(after) - 999.0 * 13_000.0).abs() < 200_000.0);
    }

    #[test]
    fn what_costs_more_than_the_gap_is_late_and_the_stamps_say_so() {
        let sender = Sender { burst_cost_ns: 2000.0, packet_cost_ns: 100.0, ..Sender::default() };
        let single = sender.send(&Stream::at_rate(100, 1500, 12e9), 0.0, &mut Random::new(1));
        assert_eq!(single[99].sent.actual_ns - single[99].sent.planned_ns, 99 * 1100);
        let bursts = sender.send(&Stream::at_rate(100, 1500, 12e9).in_bursts_of(4), 0.0, &mut Random::new(1));
        assert_eq!(bursts[99].sent.actual_ns, bursts[99].sent.planned_ns);
    }

    #[test]
    fn an_unseen_stall_moves_the_packet_but_not_its_stamp() {
        let stalls = Stalls { per_second: 1e9, mean_ns: 1e6, unseen: 1.0 };
        let sender = Sender { stalls, ..Sender::default() };
        let departures = sender.send(&Stream::at_rate(50, 1500, 1e9), 0.0, &mut Random::new(1));
        let latest = departures.iter().map(|d| d.leaves_ns - d.sent.actual_ns as f64).fold(0.0, f64::max);
        assert!(latest > 1e6, "{latest}");
    }
}
