//! Whether everything that was acknowledged is there, after a crash.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::acknowledged::Left;
use crate::failure::Failure;
use crate::generator::Data;
use crate::roles::{Writer, writers};
use crate::spec::AuditSpec;
use crate::store::{Reading, Session, Store};

/// Readings that are read at a time.
const PAGE: u64 = 10_000;
/// Readings behind the last acknowledged one within which unacknowledged ones are looked for, beyond what was on its way.
const BEYOND: u64 = 10_000;

/// What `audit` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audited {
    /// Readings that the database had acknowledged.
    pub acknowledged_rows: u64,
    /// Those of them that are not there.
    pub missing_rows: u64,
    /// Readings that are there otherwise than they were written: another value, twice, or never written.
    pub wrong_rows: u64,
    /// Readings that are there, rightly, though never acknowledged.
    pub unacknowledged_rows: u64,
    /// The first that is missing, in words.
    pub first_missing: Option<String>,
    /// How long before the last acknowledgement the oldest missing one had been acknowledged, to 10 ms.
    pub oldest_lost_ms: Option<u64>,
    /// Likewise the newest missing one.
    pub newest_lost_ms: Option<u64>,
}

/// Reads all that the writing clients wrote and compares.
///
/// # Errors
/// `bad-request` where the file is not of these streams; what the store says.
pub fn audit(spec: &AuditSpec, store: &dyn Store) -> Result<Audited, Failure> {
    let writers = writers(&spec.data, &spec.streams)?;
    let left = Left::read(&spec.acknowledged, writers.len() as u64)?;
    // What a log holds and a restarted database has yet to apply is not lost.
    store.settle()?;
    let mut session = store.connect()?;
    let mut audited = Audited::default();
    for (writer, statements) in writers.iter().zip(left.statements()) {
        audited.acknowledged_rows += statements * writer.values;
        audit_writer(&spec.data, writer, statements, &left, session.as_mut(), &mut audited)?;
    }
    Ok(audited)
}

fn audit_writer(
    data: &Data,
    writer: &Writer,
    statements: u64,
    left: &Left,
    session: &mut dyn Session,
    audited: &mut Audited,
) -> Result<(), Failure> {
    let mut acknowledged = BTreeMap::new(); // by reading, the statement that wrote it
    for (place, number) in (0..statements * writer.values).zip(writer.arrivals(data)) {
        acknowledged.insert(number, place / writer.values);
    }
    let reached = acknowledged.last_key_value().map_or(writer.preload, |(number, _)| number + 1);
    let late = data.late.map_or(0, |late| late.by);
    let behind = reached + late + 2 * writer.pipeline * writer.values + BEYOND;
    let (mut answer, mut missing) = (Vec::new(), None);
    let mut first = writer.preload;
    while first < behind {
        let count = PAGE.min(behind - first);
        let (from, to) = (data.timestamp(first), data.timestamp(first + count) - 1);
        session.read(data.sensor(writer.sensor), from, to, &mut answer)?;
        let there = compare(data, writer.sensor, first, count, &answer);
        audited.wrong_rows += there.wrong;
        for (number, there) in (first..).zip(there.found) {
            match acknowledged.get(&number) {
                None => audited.unacknowledged_rows += u64::from(there),
                Some(_) if there => (),
                Some(&by) => {
                    audited.missing_rows += 1;
                    let (first, oldest, newest) = missing.unwrap_or((number, by, by));
                    missing = Some((first, oldest.min(by), newest.max(by)));
                }
            }
        }
        first += count;
    }
    let Some((first, oldest, newest)) = missing else { return Ok(()) };
    let age = |statement| left.age_ms(writer.place as usize, statement);
    let least = |known: Option<u64>, age: u64| Some(known.map_or(age, |known| known.min(age)));
    audited.oldest_lost_ms = audited.oldest_lost_ms.max(age(oldest));
    audited.newest_lost_ms = age(newest).map_or(audited.newest_lost_ms, |age| least(audited.newest_lost_ms, age));
    audited.first_missing.get_or_insert_with(|| {
        let (sensor, time) = (data.sensor(writer.sensor), data.timestamp(first));
        format!("reading {first} of sensor {sensor}, at {time}")
    });
    Ok(())
}

struct There {
    /// For each of the readings asked for, whether it is there, if perhaps with another value.
    found: Vec<bool>,
    wrong: u64,
}

fn compare(data: &Data, sensor: u64, first: u64, count: u64, answer: &[Reading]) -> There {
    let mut there = There { found: vec![false; count as usize], wrong: 0 };
    for reading in answer {
        let since = reading.timestamp - data.timestamp(first);
        let step = data.step_ms as i64;
        let place = usize::try_from(since / step).ok().filter(|_| since >= 0 && since % step == 0);
        match place.and_then(|place| Some((place, there.found.get_mut(place)?))) {
            Some((place, found)) if !*found => {
                *found = true;
                let written = data.value(sensor, first + place as u64);
                there.wrong += u64::from(written.to_bits() != reading.value.to_bits());
            }
            _ => there.wrong += 1, // never written, or twice
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_was_changed_doubled_or_never_written_is_wrong_and_one_that_is_gone_is_missed() {
        let data = Data { seed: 5, sensors: 1, step_ms: 1000, late: None };
        let mut answer = Vec::new();
        data.readings(0, 20, 6, &mut answer);
        answer[1].value += 1.0;
        answer[3] = answer[2];
        answer[5].timestamp += 1;
        let there = compare(&data, 0, 20, 6, &answer);
        assert_eq!(there.found, [true, true, true, false, true, false]);
        assert_eq!(there.wrong, 3);
    }
}
