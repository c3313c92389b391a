//! When the statements of an open loop are to begin, whatever the answers do.

use std::sync::{Mutex, PoisonError};

use crate::failure::{Failure, Kind};
use crate::generator::mix;
use crate::spec::{Arrivals, Loop};

#[derive(Clone, Copy, Debug)]
enum Spread {
    Even { gap: f64 },
    Poisson { mean: f64 },
    Burst { every: f64, size: u64 },
}

#[derive(Debug)]
struct Queue {
    index: u64,
    seed: u64,
    /// Nanoseconds from the beginning to the next one; as a float, so that fractions add up.
    next: f64,
}

/// The moments at which statements are to begin, in their order.  One for all the clients of a stream: whichever is
/// free takes the next, as with a pool of connections.
#[derive(Debug)]
pub struct Schedule {
    spread: Spread,
    begin: u64,
    end: u64,
    queue: Mutex<Queue>,
}

impl Schedule {
    /// From `begin` until `end` of `CLOCK_MONOTONIC`; none for a closed loop.
    ///
    /// # Errors
    /// `bad-request` for a rate or burst that there cannot be.
    pub fn new(kind: Loop, begin: u64, end: u64, seed: u64) -> Result<Option<Self>, Failure> {
        let spread = match kind {
            Loop::Closed => return Ok(None),
            Loop::Open { rate_per_s, .. } if !(rate_per_s > 0.0 && rate_per_s <= 1e8) => {
                return Err(Failure::new(
                    Kind::BadRequest,
                    format!("loop.rate_per_s is {rate_per_s}; 0 < rate <= 1e8"),
                ));
            }
            Loop::Open { rate_per_s, arrivals: Arrivals::Even } => Spread::Even { gap: 1e9 / rate_per_s },
            Loop::Open { rate_per_s, arrivals: Arrivals::Poisson } => Spread::Poisson { mean: 1e9 / rate_per_s },
            Loop::Burst { every_ms, size } if !(every_ms > 0.0 && every_ms <= 1e9) || size == 0 => {
                let message = format!("a burst of {size} every {every_ms} ms; both have to be above 0");
                return Err(Failure::new(Kind::BadRequest, message));
            }
            Loop::Burst { every_ms, size } => Spread::Burst { every: every_ms * 1e6, size },
        };
        Ok(Some(Self { spread, begin, end, queue: Mutex::new(Queue { index: 0, seed, next: 0.0 }) }))
    }

    /// Takes the next, if there is one before the end.
    pub fn claim(&self) -> Option<u64> {
        self.claim_until(self.end)
    }

    /// Takes the next if it is before `limit` and before the end.
    pub fn claim_until(&self, limit: u64) -> Option<u64> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let moment = self.begin + queue.next as u64;
        if moment >= limit.min(self.end) {
            return None;
        }
        queue.index += 1;
        queue.next = match self.spread {
            Spread::Even { gap } => gap * queue.index as f64,
            Spread::Burst { every, size } => every * (queue.index / size) as f64,
            Spread::Poisson { mean } => {
                let uniform = ((mix(queue.seed.wrapping_add(queue.index)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
                queue.next - mean * uniform.ln()
            }
        };
        Some(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(kind: Loop) -> Vec<u64> {
        let schedule = Schedule::new(kind, 1000, 1_000_001_000, 3).unwrap().unwrap();
        std::iter::from_fn(|| schedule.claim()).collect()
    }

    #[test]
    fn even_arrivals_do_not_drift() {
        let moments = all(Loop::Open { rate_per_s: 3000.0, arrivals: Arrivals::Even });
        assert_eq!(moments.len(), 3000);
        assert_eq!(moments[0], 1000);
        assert_eq!(moments[2997], 1000 + 999_000_000);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_independent_gaps() {
        let moments = all(Loop::Open { rate_per_s: 10_000.0, arrivals: Arrivals::Poisson });
        assert!((9_600..10_400).contains(&moments.len()), "{}", moments.len());
        let gaps: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean; // 1 of an exponential distribution
        assert!((0.9..1.1).contains(&variation), "{variation}");
    }

    #[test]
    fn a_burst_is_due_at_once() {
        let moments = all(Loop::Burst { every_ms: 250.0, size: 3 });
        let at = |quarter: u64| 1000 + quarter * 250_000_000;
        assert_eq!(moments, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3].map(at));
    }

    #[test]
    fn a_rate_of_nothing_is_refused() {
        for rate_per_s in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let kind = Loop::Open { rate_per_s, arrivals: Arrivals::Even };
            assert_eq!(Schedule::new(kind, 0, 1, 0).unwrap_err().kind, Kind::BadRequest);
        }
    }
}
