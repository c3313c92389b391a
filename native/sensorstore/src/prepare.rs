//! The table as a trial needs it.

use serde::Serialize;

use crate::arrivals::Arrivals;
use crate::clock::now;
use crate::failure::{Failure, Kind};
use crate::roles::writers;
use crate::spec::PrepareSpec;
use crate::store::{Schema, Store};

/// What `prepare` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Prepared {
    /// Readings that are in the table.
    pub rows: u64,
    /// How long it took.
    pub elapsed_ns: u64,
}

/// Makes the table and writes the readings that are to be there beforehand as they arrive, all sensors side by side.
///
/// # Errors
/// `exists` where there is a table that may not be dropped; `wrong-answer` where other than what was written is
/// counted; what the store says.
pub fn prepare(spec: &PrepareSpec, store: &dyn Store) -> Result<Prepared, Failure> {
    writers(&spec.data, &[])?;
    let begin = now();
    store.create(Schema { index: spec.index, drop: spec.drop })?;
    let rows = spec.preload * spec.data.sensors;
    if rows > 0 {
        fill(spec, store, rows).inspect_err(|_| {
            // The table is ours, made a moment ago; of the two failures the first one matters.
            let _ = store.drop_table();
        })?;
    }
    Ok(Prepared { rows, elapsed_ns: now() - begin })
}

fn fill(spec: &PrepareSpec, store: &dyn Store, rows: u64) -> Result<(), Failure> {
    let mut session = store.connect()?;
    let (mut first, mut readings) = (0, Vec::new());
    let new = |sensor| Arrivals::new(&spec.data, sensor, 0, spec.preload);
    let mut arrivals: Vec<Arrivals> = (0..spec.data.sensors).map(new).collect();
    while first < spec.preload {
        let count = store.preload_rows().clamp(1, spec.preload - first);
        for (sensor, arrivals) in (0..).zip(&mut arrivals) {
            readings.clear();
            readings.extend(arrivals.take(count as usize).map(|number| spec.data.reading(sensor, number)));
            session.write(spec.data.sensor(sensor), &readings)?;
        }
        first += count;
    }
    drop(session);
    store.settle()?;
    match store.count() {
        Ok(counted) if counted != rows => {
            let message = format!("{rows} readings were acknowledged, and {counted} are counted");
            Err(Failure::new(Kind::WrongAnswer, message))
        }
        Err(failure) if failure.kind != Kind::Unsupported => Err(failure),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::store::{About, Session};

    #[derive(Default)]
    struct Full {
        dropped: AtomicBool,
        exists: bool,
    }

    impl Store for Full {
        fn about(&self) -> Result<About, Failure> {
            Err(Failure::new(Kind::Full, "no space is left"))
        }

        fn create(&self, _: Schema) -> Result<(), Failure> {
            if self.exists { Err(Failure::new(Kind::Exists, "the table is there")) } else { Ok(()) }
        }

        fn drop_table(&self) -> Result<(), Failure> {
            self.dropped.store(true, Ordering::Relaxed);
            Err(Failure::new(Kind::Lost, "what fails afterwards does not matter"))
        }

        fn count(&self) -> Result<u64, Failure> {
            Ok(0)
        }

        fn connect(&self) -> Result<Box<dyn Session>, Failure> {
            Err(Failure::new(Kind::Full, "no space is left"))
        }
    }

    #[test]
    fn a_table_that_cannot_be_filled_is_dropped_and_one_that_was_there_is_not() {
        let spec = r#"{"store": {"driver": "none"}, "index": true, "drop": false, "data": {"seed": 1, "sensors": 1},
            "preload": 1}"#;
        let spec: PrepareSpec = serde_json::from_str(spec).unwrap();
        for (exists, kind) in [(false, Kind::Full), (true, Kind::Exists)] {
            let store = Full { exists, ..Full::default() };
            assert_eq!(prepare(&spec, &store).unwrap_err().kind, kind);
            assert_eq!(store.dropped.load(Ordering::Relaxed), !exists);
        }
    }
}
