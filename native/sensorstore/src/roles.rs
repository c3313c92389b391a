//! Which client writes and reads what; measuring and auditing have to agree on it.

use crate::arrivals::Arrivals;
use crate::failure::{Failure, Kind};
use crate::generator::Data;
use crate::spec::{Operation, StreamSpec};

/// A client that writes.  Its `j`th statement holds the readings of its own sensor that arrive from the `j * values`th on,
/// behind those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Its place among all that write, over all streams.
    pub place: u64,
    /// Its sensor, and no one else's.
    pub sensor: u64,
    /// Readings per statement.
    pub values: u64,
    /// What is there already.
    pub preload: u64,
    /// Statements sent before the first answer is waited for.
    pub pipeline: u64,
}

impl Writer {
    /// Its readings, in the order in which it writes them.
    #[must_use]
    pub fn arrivals(&self, data: &Data) -> Arrivals {
        Arrivals::new(data, self.sensor, self.preload, u64::MAX)
    }
}

/// All that write, in the order of streams and clients.
///
/// # Errors
/// `bad-request` where the streams cannot be run.
pub fn writers(data: &Data, streams: &[StreamSpec]) -> Result<Vec<Writer>, Failure> {
    let refused = |message: String| Err(Failure::new(Kind::BadRequest, message));
    let mut all = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        if stream.clients == 0 || stream.values == 0 || stream.pipeline == 0 {
            return refused(format!("streams[{number}]: clients, values and pipeline are at least 1"));
        }
        if stream.operation != Operation::Write {
            if stream.pipeline != 1 {
                return refused(format!("streams[{number}]: reads are not pipelined"));
            }
            if stream.preload < stream.values {
                let (values, preload) = (stream.values, stream.preload);
                return refused(format!("streams[{number}]: reads of {values} need more than {preload} preloaded"));
            }
            continue;
        }
        for _ in 0..stream.clients {
            let place = all.len() as u64;
            all.push(Writer {
                place,
                sensor: place,
                values: stream.values,
                preload: stream.preload,
                pipeline: u64::from(stream.pipeline),
            });
        }
    }
    if all.len() as u64 > data.sensors.max(1) || data.sensors == 0 {
        let message = format!(
            "data.sensors is {}; every writing client needs its own, and there are {}",
            data.sensors,
            all.len()
        );
        return refused(message);
    }
    data.late.map_or(Ok(()), |late| late.check())?;
    if data.step_ms == 0 {
        return refused("data.step_ms is 0".into());
    }
    Ok(all)
}
