//! The table as a trial needs it.

use serde::Serialize;

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

/// Makes the table and writes the readings that are to be there beforehand, all sensors side by side in time.
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
        while first < spec.preload {
            let count = store.preload_rows().clamp(1, spec.preload - first);
            for sensor in 0..spec.data.sensors {
                spec.data.readings(sensor, first, count, &mut readings);
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
