//! The order in which a sensor's readings arrive: that of time, but for those that are late.
//!
//! A reading that is late arrives behind the `by` readings after it, as from a gateway that was out of reach and sends
//! later what it kept.  Which are late follows from the seed, so that whoever reads them knows.

use std::collections::VecDeque;

use serde::Deserialize;

use crate::failure::{Failure, Kind};
use crate::generator::{Data, mix};

/// Which readings are late, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// Of all readings, so many; each by chance of its own.
    pub share: f64,
    /// Behind so many readings of its sensor that were taken after it, but for those that are late as well, it arrives.
    pub by: u64,
}

impl Late {
    /// That it makes sense.
    ///
    /// # Errors
    /// `bad-request` names the field: where most readings were late, it would be the others that are out of order.
    pub fn check(&self) -> Result<(), Failure> {
        if (0.0..=0.5).contains(&self.share) && self.by > 0 {
            return Ok(());
        }
        Err(Failure::new(Kind::BadRequest, "data.late: share is from 0 to 0.5, by at least 1"))
    }
}

/// The numbers of a sensor's readings in the order in which they arrive.
#[derive(Clone, Debug)]
pub struct Arrivals {
    data: Data,
    sensor: u64,
    next: u64,
    /// Behind the last, where there is one; what is late by then arrives at last.
    end: u64,
    late: VecDeque<u64>,
}

impl Arrivals {
    /// From a reading on; before `end`, each arrives exactly once.
    #[must_use]
    pub fn new(data: &Data, sensor: u64, first: u64, end: u64) -> Self {
        Self { data: *data, sensor, next: first, end, late: VecDeque::new() }
    }

    fn is_late(&self, late: Late, number: u64) -> bool {
        let chance = mix(mix(self.data.seed ^ 0x1a7e).wrapping_add(self.sensor << 40).wrapping_add(number));
        (chance as f64) < late.share * (u64::MAX as f64)
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let due = self.late.front().zip(self.data.late);
            if due.is_some_and(|(first, late)| self.next >= self.end || self.next > first + late.by) {
                return self.late.pop_front();
            }
            if self.next >= self.end {
                return None;
            }
            let number = self.next;
            self.next += 1;
            match self.data.late {
                Some(late) if self.is_late(late, number) => self.late.push_back(number),
                _ => return Some(number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(share: f64, by: u64) -> Data {
        Data { seed: 7, sensors: 2, step_ms: 1000, late: Some(Late { share, by }) }
    }

    #[test]
    fn every_reading_arrives_once_and_the_share_of_them_after_younger_ones() {
        const COUNT: u64 = 100_000;
        for (share, by) in [(0.05, 100), (0.05, 1), (0.5, 3)] {
            let order: Vec<u64> = Arrivals::new(&data(share, by), 1, 40, 40 + COUNT).collect();
            let (mut youngest, mut late) = (0, Vec::new());
            for &number in &order {
                if number < youngest {
                    late.push(youngest - number);
                }
                youngest = youngest.max(number);
            }
            let found = late.len() as f64 / COUNT as f64;
            // Where many are late by little, those behind may all be late as well.
            let expected = share * (1.0 - share.powi(by as i32));
            assert!((found - expected).abs() < 0.005, "{found} of {share} by {by}");
            assert!(late.iter().all(|&after| after <= by), "by more than {by}");
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(40..40 + COUNT));
        }
    }

    #[test]
    fn a_reading_that_is_late_by_less_than_a_statement_mostly_arrives_in_that_of_its_neighbours() {
        for (by, expected) in [(100, 0.9), (1000, 0.05), (3000, 0.0)] {
            let order: Vec<u64> = Arrivals::new(&data(0.05, by), 1, 0, 1_000_000).collect();
            let (mut inside, mut late) = (0, 0);
            for (place, &number) in order.iter().enumerate() {
                if place > 0 && order[place - 1] > number + by / 2 {
                    late += 1;
                    inside += u32::from(place as u64 / 1000 == number / 1000); // of the statements of 1000
                }
            }
            let found = f64::from(inside) / f64::from(late);
            assert!((found - expected).abs() < 0.02, "{found} of those late by {by}");
        }
    }

    #[test]
    fn the_order_is_the_seeds_and_each_sensors_own_and_without_late_readings_that_of_time() {
        let order = |data: &Data, sensor| Arrivals::new(data, sensor, 0, u64::MAX).take(1000).collect::<Vec<_>>();
        let some = data(0.1, 10);
        assert_eq!(order(&some, 0), order(&some, 0));
        assert_ne!(order(&some, 0), order(&some, 1));
        assert_ne!(order(&some, 0), order(&Data { seed: 8, ..some }, 0));
        assert!(order(&Data { late: None, ..some }, 0).into_iter().eq(0..1000));
    }
}
