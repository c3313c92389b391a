//! What a database is to the load generator: a store that sessions are opened on.

use uuid::Uuid;

use crate::failure::Failure;

/// One measurement of a sensor: Table I of van der Veen et al. 2012, without the sensor's identifier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// When it was sensed, in milliseconds since 1970.
    pub timestamp: i64,
    /// What was sensed.
    pub value: f64,
}

/// What a database says of a sensor's readings in a span of time without naming each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// How many they are; where they are none, the others say nothing.
    pub count: u64,
    /// The mean of their values.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// What a store is asked to have before a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schema {
    /// With an index on (sensor, timestamp).
    pub index: bool,
    /// What is there already may be dropped.
    pub drop: bool,
}

/// A database.  Setting up is never measured.
pub trait Store: Send + Sync {
    /// Waits for nothing: one attempt to reach the server, and what it tells of itself.
    ///
    /// # Errors
    /// `refused` (nothing listens, yet), `denied` (user, password), `schema` (no such database), or what else it says.
    fn about(&self) -> Result<About, Failure>;

    /// Makes the empty table.
    ///
    /// # Errors
    /// `exists` where there is one already that may not be dropped; it has not been touched.
    fn create(&self, schema: Schema) -> Result<(), Failure>;

    /// Drops the table that [`Store::create`] made.
    fn drop_table(&self) -> Result<(), Failure>;

    /// All the readings that are kept, in no order: how many.
    fn count(&self) -> Result<u64, Failure>;

    /// How many readings one statement of `prepare` should write: the most that is fast and that the database takes.
    fn preload_rows(&self) -> u64 {
        10_000
    }

    /// Makes whatever was written visible to reads and settles background work, where a database puts that off;
    /// called between the rows that a read trial needs and its first read, and before an audit.
    fn settle(&self) -> Result<(), Failure> {
        Ok(())
    }

    /// Brings everything to rest in the files in which the database keeps it, as a checkpoint does: what is in memory or
    /// only in the log.  Of a server that was started for the trial; it may take more than a user's rights.
    fn rest(&self) -> Result<(), Failure> {
        self.settle()
    }

    /// A connection of its own for one client; blocking, used from one thread.
    fn connect(&self) -> Result<Box<dyn Session>, Failure>;
}

/// One client's connection.
pub trait Session: Send {
    /// Writes the readings of one sensor in one statement; returns when the database has acknowledged it.
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure>;

    /// Reads the readings of a sensor from `from` to `to`, both included, in the order of their timestamps, into an
    /// emptied `into`.
    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure>;

    /// Reads the newest reading of a sensor, which the database has to find, into an emptied `into`.  It is asked for at
    /// the time `now` of the readings, at which the next one is due; who looks back by a span does so from there.
    fn last_value(&mut self, sensor: Uuid, now: i64, into: &mut Vec<Reading>) -> Result<(), Failure>;

    /// Has the database reckon over the readings of a sensor from `from` to `to`, both included.
    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure>;

    /// Sends all these writes before it waits for the first acknowledgement; `acknowledged(i)` is called as write `i`
    /// is acknowledged, in whatever order and whatever became of others.  Without pipelining, one after another.
    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        for (number, (sensor, readings)) in writes.iter().enumerate() {
            self.write(*sensor, readings)?;
            acknowledged(number);
        }
        Ok(())
    }
}

/// What a database tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct About {
    /// Product and version.
    pub version: String,
    /// Settings that bear on durability, as the server reports them.
    pub settings: std::collections::BTreeMap<String, String>,
}
