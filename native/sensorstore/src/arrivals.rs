//! The order in which a sensor's readings arrive: that of time, but for those that are late.
//!
//! A gateway that was out of reach keeps what it reads and sends it later: a run of readings that are late arrives
//! together, behind the `by` readings after it.  Which are late follows from the seed, so that whoever reads them knows.

use std::collections::VecDeque;

use serde::Deserialize;

use crate::failure::{Failure, Kind};
use crate::generator::{Data, mix};

/// The longest run.
const LONGEST: u64 = 1_000_000;

/// Which readings are late, how many together, and by how much.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// Of all readings, so many: in each `run / share` of a sensor's readings there is one run, at a place by chance.
    pub share: f64,
    /// Behind so many readings of the sensor after its last, but for those that are late as well, a run arrives.
    pub by: u64,
    /// Successive readings that were taken while the gateway was out of reach.
    pub run: u64,
}

impl Late {
    /// That it makes sense.
    ///
    /// # Errors
    /// `bad-request` names the field: where most readings were late, it would be the others that are out of order.
    pub fn check(&self) -> Result<(), Failure> {
        if (0.0..=0.5).contains(&self.share) && self.by > 0 && (1..=LONGEST).contains(&self.run) {
            return Ok(());
        }
        let message = format!("data.late: share is from 0 to 0.5, by at least 1, run from 1 to {LONGEST}");
        Err(Failure::new(Kind::BadRequest, message))
    }

    /// The last reading of the late run that a reading is of; `None` where it is not late.
    fn last_of_run(self, data: &Data, sensor: u64, number: u64) -> Option<u64> {
        // Without late readings the period is beyond any number.
        let period = (self.run as f64 / self.share).round() as u64;
        let which = number / period;
        let chance = mix(mix(data.seed ^ 0x1a7e).wrapping_add(sensor << 40).wrapping_add(which));
        let first = which.checked_mul(period)? + chance % (period - self.run).saturating_add(1);
        (self.share > 0.0 && (first..first + self.run).contains(&number)).then(|| first + self.run - 1)
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
    /// Late readings, each with the last of its run.
    late: VecDeque<(u64, u64)>,
}

impl Arrivals {
    /// From a reading on; before `end`, each arrives exactly once.
    #[must_use]
    pub fn new(data: &Data, sensor: u64, first: u64, end: u64) -> Self {
        Self { data: *data, sensor, next: first, end, late: VecDeque::new() }
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let due = self.late.front().zip(self.data.late);
            if due.is_some_and(|(&(_, last), late)| self.next >= self.end || self.next > last + late.by) {
                return self.late.pop_front().map(|(number, _)| number);
            }
            if self.next >= self.end {
                return None;
            }
            let number = self.next;
            self.next += 1;
            match self.data.late.and_then(|late| late.last_of_run(&self.data, self.sensor, number)) {
                Some(last) => self.late.push_back((number, last)),
                None => return Some(number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(share: f64, by: u64, run: u64) -> Data {
        Data { seed: 7, sensors: 2, step_ms: 1000, late: Some(Late { share, by, run }) }
    }

    #[test]
    fn every_reading_arrives_once_and_the_share_of_them_after_younger_ones() {
        const COUNT: u64 = 240_000;
        for (share, by, run) in [(0.05, 100, 1), (0.05, 5000, 600), (0.05, 10, 600), (0.5, 3, 1), (0.25, 500, 1000)] {
            let order: Vec<u64> = Arrivals::new(&data(share, by, run), 1, 0, COUNT).collect();
            let (mut youngest, mut late) = (0, 0);
            for &number in &order {
                late += u64::from(number < youngest);
                // Of those that are late as well, none follows.
                assert!(youngest <= number + run + 2 * by + run * (share * 8.0) as u64, "{youngest} before {number}");
                youngest = youngest.max(number);
            }
            let found = late as f64 / COUNT as f64;
            // Where what follows a run is late as well, it arrives behind nothing.
            assert!(found <= share + 1e-9 && found > 0.8 * share, "{found} of {share} by {by} in runs of {run}");
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..COUNT));
        }
    }

    #[test]
    fn a_run_arrives_together_behind_as_many_as_are_said() {
        let order: Vec<u64> = Arrivals::new(&data(0.05, 2000, 600), 0, 0, 120_000).collect();
        let backwards: Vec<usize> = (1..order.len()).filter(|&place| order[place] < order[place - 1]).collect();
        assert_eq!(backwards.len(), 10, "one outage in each 12,000 readings");
        for place in backwards {
            let first = order[place];
            assert!(order[place..place + 600].iter().copied().eq(first..first + 600));
            assert!(order.get(place + 600).is_none_or(|&next| next >= first + 600 + 2000), "behind {first}");
        }
    }

    /// Shares of the readings that are older than one of an earlier statement of so many, and of the statements that
    /// hold such a reading.
    fn across(data: &Data, values: usize) -> (f64, f64) {
        const STATEMENTS: usize = 2400;
        let order: Vec<u64> = Arrivals::new(data, 1, 0, u64::MAX).take(STATEMENTS * values).collect();
        let (mut youngest, mut rows, mut statements) = (0, 0, 0);
        for statement in order.chunks(values) {
            let late = statement.iter().filter(|&&number| number < youngest).count();
            (rows, statements) = (rows + late, statements + usize::from(late > 0));
            youngest = youngest.max(*statement.iter().max().unwrap());
        }
        (rows as f64 / order.len() as f64, statements as f64 / STATEMENTS as f64)
    }

    #[test]
    fn what_is_late_in_runs_by_more_than_a_statement_is_late_across_statements_and_leaves_most_of_them_in_order() {
        let (rows, statements) = across(&data(0.05, 2000, 600), 1000);
        assert!((rows - 0.05).abs() < 0.002, "{rows} of the rows");
        assert!((0.08..0.17).contains(&statements), "{statements} of the statements");
        // One by one and by less than a statement, it is in nearly each statement and yet sorted within it.
        let (rows, statements) = across(&data(0.05, 100, 1), 1000);
        assert!(rows < 0.006, "{rows} of the rows");
        assert!(statements > 0.9, "{statements} of the statements");
    }

    #[test]
    fn the_order_is_the_seeds_and_each_sensors_own_and_without_late_readings_that_of_time() {
        let order = |data: &Data, sensor| Arrivals::new(data, sensor, 0, u64::MAX).take(1000).collect::<Vec<_>>();
        let some = data(0.1, 10, 3);
        assert_eq!(order(&some, 0), order(&some, 0));
        assert_ne!(order(&some, 0), order(&some, 1));
        assert_ne!(order(&some, 0), order(&Data { seed: 8, ..some }, 0));
        assert!(order(&Data { late: None, ..some }, 0).into_iter().eq(0..1000));
        assert!(order(&data(0.0, 10, 3), 0).into_iter().eq(0..1000));
    }
}
