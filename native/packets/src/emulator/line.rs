//! The rule by which an emulated link lets frames go: a queue, a rate, a delay and a loss.

use std::collections::VecDeque;

use crate::random::Random;

/// What a link is like, in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// In bit/s of frames without their check sequence, as Linux's shapers count; `None` for no limit.
    pub rate_bps: Option<f64>,
    /// From the end of a frame's transmission to its departure, in nanoseconds.
    pub delay_ns: u64,
    /// The share of frames that is lost, each by itself.
    pub loss: f64,
    /// Bytes that are held at most, waiting or under way.
    pub queue_bytes: u64,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It leaves at this time.
    Leaves(u64),
    /// It is lost.
    Lost,
    /// It finds the queue full.
    Overflows,
}

/// One direction of a link, and what is on it.
#[derive(Debug)]
pub struct Line {
    shape: Shape,
    random: Random,
    origin_ns: u64,
    /// When the last frame's transmission ends, after the origin.
    free_ns: f64,
    /// When each of the frames leaves that are held, and its length.
    held: VecDeque<(u64, u64)>,
    held_bytes: u64,
}

impl Line {
    /// An empty one.  No frame comes before the origin.
    #[must_use]
    pub fn new(shape: Shape, origin_ns: u64, seed: u64) -> Self {
        Self { shape, random: Random::new(seed), origin_ns, free_ns: 0.0, held: VecDeque::new(), held_bytes: 0 }
    }

    /// A frame comes.  Frames leave in the order in which they come, however late their times are told.
    pub fn admit(&mut self, at_ns: u64, bytes: usize) -> Fate {
        while let Some(&(_, bytes)) = self.held.front().filter(|&&(leaves_ns, _)| leaves_ns <= at_ns) {
            self.held.pop_front();
            self.held_bytes -= bytes;
        }
        if self.shape.loss > 0.0 && self.random.happens(self.shape.loss) {
            return Fate::Lost;
        }
        let bytes = bytes as u64;
        if self.held_bytes + bytes > self.shape.queue_bytes {
            return Fate::Overflows;
        }
        let begins_ns = self.free_ns.max(at_ns.saturating_sub(self.origin_ns) as f64);
        let takes_ns = self.shape.rate_bps.map_or(0.0, |rate_bps| bytes as f64 * 8e9 / rate_bps);
        self.free_ns = begins_ns + takes_ns;
        let leaves_ns = self.origin_ns + self.free_ns.ceil() as u64 + self.shape.delay_ns;
        self.held.push_back((leaves_ns, bytes));
        self.held_bytes += bytes;
        Fate::Leaves(leaves_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BARE: Shape = Shape { rate_bps: None, delay_ns: 0, loss: 0.0, queue_bytes: u64::MAX };

    #[test]
    fn a_delay_moves_every_frame_by_itself() {
        let mut line = Line::new(Shape { delay_ns: 10_000_000, ..BARE }, 1_000, 1);
        for at_ns in [1_000, 1_001, 5_000_000] {
            assert_eq!(line.admit(at_ns, 1514), Fate::Leaves(at_ns + 10_000_000));
        }
    }

    #[test]
    fn a_rate_lets_frames_leave_one_after_the_other_and_rests_while_nothing_comes() {
        // 1250 B take 10 µs.
        let mut line = Line::new(Shape { rate_bps: Some(1e9), delay_ns: 500, ..BARE }, 0, 1);
        let leave: Vec<Fate> = [0, 0, 1_000, 100_000].map(|at_ns| line.admit(at_ns, 1250)).to_vec();
        assert_eq!(leave, [10_500, 20_500, 30_500, 110_500].map(Fate::Leaves));
    }

    #[test]
    fn gaps_that_are_no_whole_nanoseconds_do_not_add_up() {
        // 1514 B take 12.112 µs; a million of them 12.112 s.
        let mut line = Line::new(Shape { rate_bps: Some(1e9), ..BARE }, 7, 1);
        let last = (0..1_000_000).map(|_| line.admit(7, 1514)).last();
        let Some(Fate::Leaves(leaves_ns)) = last else { panic!("{last:?}") };
        assert!((leaves_ns as f64 - 7.0 - 12.112e9).abs() < 10.0, "{leaves_ns}");
    }

    #[test]
    fn what_the_queue_does_not_hold_is_dropped_until_something_has_left() {
        let mut line = Line::new(Shape { rate_bps: Some(8e6), queue_bytes: 3_000, ..BARE }, 0, 1);
        let fates: Vec<Fate> = [0, 0, 0, 0, 999_999, 1_000_000].map(|at_ns| line.admit(at_ns, 1000)).to_vec();
        let [one, two, three] = [1_000_000, 2_000_000, 3_000_000].map(Fate::Leaves);
        assert_eq!(fates, [one, two, three, Fate::Overflows, Fate::Overflows, Fate::Leaves(4_000_000)]);
    }

    #[test]
    fn as_many_are_lost_as_was_asked_for_and_a_seed_repeats_which() {
        let lost = |loss, seed| {
            let mut line = Line::new(Shape { loss, ..BARE }, 0, seed);
            (0..100_000).map(|at_ns| line.admit(at_ns, 60) == Fate::Lost).collect::<Vec<bool>>()
        };
        for loss in [0.0, 0.01, 0.5, 1.0] {
            let counted = lost(loss, 1).iter().filter(|&&lost| lost).count() as f64;
            // Five standard deviations.
            assert!((counted - 1e5 * loss).abs() <= 5.0 * (1e5 * loss * (1.0 - loss)).sqrt(), "{loss} {counted}");
        }
        assert_eq!(lost(0.1, 1), lost(0.1, 1));
        assert_ne!(lost(0.1, 1), lost(0.1, 2));
    }

    proptest! {
        #[test]
        fn nothing_leaves_before_its_time_or_out_of_turn(
            gaps in proptest::collection::vec(0u64..50_000, 1..200), rate_bps in 1e6f64..1e10, delay_ns in 0u64..1_000_000,
        ) {
            let shape = Shape { rate_bps: Some(rate_bps), delay_ns, loss: 0.1, queue_bytes: 20_000 };
            let mut line = Line::new(shape, 100, 5);
            let (mut at_ns, mut before_ns) = (100, 0.0);
            for gap_ns in gaps {
                at_ns += gap_ns;
                if let Fate::Leaves(leaves_ns) = line.admit(at_ns, 1000) {
                    let takes_ns = 8e12 / rate_bps;
                    prop_assert!(leaves_ns as f64 >= at_ns as f64 + takes_ns + delay_ns as f64 - 0.01);
                    prop_assert!(leaves_ns as f64 >= before_ns + takes_ns - 1.01);
                    before_ns = leaves_ns as f64;
                }
            }
        }
    }
}
