//! The readings: all follow from a seed, so that whoever reads one knows what it has to be.

use std::collections::HashMap;

use serde::Deserialize;
use uuid::Uuid;

use crate::arrivals::Late;
use crate::store::Reading;

/// When the first reading of every sensor was sensed: 2020-01-01, in milliseconds since 1970.  In the past, because
/// some databases refuse what is yet to come.
pub const FIRST_TIMESTAMP: i64 = 1_577_836_800_000;

/// Which readings there are.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Another seed, other sensors and values.
    pub seed: u64,
    /// How many sensors.
    pub sensors: u64,
    /// From one reading of a sensor to its next, in milliseconds.
    #[serde(default = "one_second")]
    pub step_ms: u64,
    /// Which of them arrive late; none where this is not given.
    #[serde(default)]
    pub late: Option<Late>,
}

fn one_second() -> u64 {
    1000
}

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): spreads a counter over all 64 bits.
#[must_use]
pub fn mix(counter: u64) -> u64 {
    let mut bits = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Data {
    /// The identifier of a sensor: a version 4 UUID.
    #[must_use]
    pub fn sensor(&self, number: u64) -> Uuid {
        let high = mix(mix(self.seed).wrapping_add(2 * number));
        let low = mix(mix(self.seed).wrapping_add(2 * number + 1));
        uuid::Builder::from_random_bytes((u128::from(high) << 64 | u128::from(low)).to_be_bytes()).into_uuid()
    }

    /// When the `number`th reading of any sensor was sensed.
    #[must_use]
    pub fn timestamp(&self, number: u64) -> i64 {
        FIRST_TIMESTAMP + (number * self.step_ms) as i64
    }

    /// What a sensor's `number`th reading says: thousandths, below a million, so that nine decimal digits hold it
    /// exactly wherever a database keeps or sends decimal digits.
    #[must_use]
    pub fn value(&self, sensor: u64, number: u64) -> f64 {
        let bits = mix(mix(self.seed ^ 0x5eed).wrapping_add(sensor << 40).wrapping_add(number));
        (bits % 1_000_000_000) as f64 / 1000.0
    }

    /// A sensor's `number`th reading.
    #[must_use]
    pub fn reading(&self, sensor: u64, number: u64) -> Reading {
        Reading { timestamp: self.timestamp(number), value: self.value(sensor, number) }
    }

    /// Consecutive readings of a sensor, into an emptied `into`.
    pub fn readings(&self, sensor: u64, first: u64, count: u64, into: &mut Vec<Reading>) {
        into.clear();
        into.extend((first..first + count).map(|number| self.reading(sensor, number)));
    }
}

/// Answers reads without a database: what would be there if everything had been written.
#[derive(Clone, Debug)]
pub struct Answers {
    data: Data,
    sensors: HashMap<Uuid, u64>,
}

impl Answers {
    /// Of these readings.
    #[must_use]
    pub fn new(data: Data) -> Self {
        Self { data, sensors: (0..data.sensors).map(|number| (data.sensor(number), number)).collect() }
    }

    /// The readings of a sensor from `from` to `to`, both included, into an emptied `into`; none of a sensor that
    /// there is not.
    pub fn read(&self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) {
        into.clear();
        let Some(&sensor) = self.sensors.get(&sensor) else { return };
        let step = self.data.step_ms as i64;
        let first = (from - FIRST_TIMESTAMP + step - 1).div_euclid(step).max(0);
        let behind = (to - FIRST_TIMESTAMP).div_euclid(step) + 1;
        into.extend((first..behind).map(|number| self.data.reading(sensor, number as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Data = Data { seed: 7, sensors: 50, step_ms: 1000, late: None };

    #[test]
    fn sensors_differ_from_each_other_and_between_seeds() {
        let other = Data { seed: 8, ..DATA };
        let all: std::collections::HashSet<_> = (0..50).flat_map(|n| [DATA.sensor(n), other.sensor(n)]).collect();
        assert_eq!(all.len(), 100);
        assert_eq!(DATA.sensor(3).get_version_num(), 4);
    }

    #[test]
    fn values_survive_being_written_in_decimal() {
        for number in 0..10_000 {
            let value = DATA.value(number % 50, number);
            assert_eq!(format!("{value}").parse::<f64>().unwrap().to_bits(), value.to_bits());
            assert_eq!(format!("{value:.3}").parse::<f64>().unwrap().to_bits(), value.to_bits());
        }
    }

    #[test]
    fn answers_are_the_readings_of_the_interval() {
        let (answers, mut read, mut made) = (Answers::new(DATA), Vec::new(), Vec::new());
        answers.read(DATA.sensor(4), DATA.timestamp(10), DATA.timestamp(19), &mut read);
        DATA.readings(4, 10, 10, &mut made);
        assert_eq!(read, made);
        answers.read(DATA.sensor(4), DATA.timestamp(10) + 1, DATA.timestamp(12) - 1, &mut read);
        assert_eq!(read, made[1..2]);
        answers.read(Uuid::nil(), 0, i64::MAX / 2, &mut read);
        assert!(read.is_empty());
    }
}
