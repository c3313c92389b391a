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
                return Err(Failure::new(Kind::WrongAnswer, message));
            }
            Err(failure) if failure.kind != Kind::Unsupported => return Err(failure),
            _ => (),
        }
    }
    Ok(Prepared { rows, elapsed_ns: now() - begin })
}
