//! Cassandra, by a blocking client of our own in version 4 of its native protocol: one connection per client, prepared
//! statements, nothing asynchronous.  Beside the scylla crate on one server it took about half the client's processor
//! time: 15 to 21 against 25 to 50 µs for a single write, 52 to 70 against 112 to 143 µs for a read of a thousand rows.
//!
//! A sensor is a partition, in which the timestamps are in order: the table is its own index, as the paper says.

mod answer;
mod connection;
mod session;
pub(crate) mod wire;

use std::thread;
use std::time::{Duration, Instant};

use self::answer::Rows;
use self::connection::{Connection, Target};
use self::session::CassandraSession;
use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Schema, Session, Store};

/// Changes of the schema and work on a whole table may take so many times as long as a statement.
const PATIENCE: u32 = 10;

/// Between two looks at whether background work is over.
const SETTLING_STEP: Duration = Duration::from_millis(100);

/// So many looks in succession have to find none.
const SETTLED_LOOKS: u32 = 3;

struct CassandraStore {
    target: Target,
    durable_writes: bool,
}

/// A store on this server.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    let target = Target::new(spec)?;
    let durable_writes = spec.choice("durable_writes", &["true", "false"])? == "true";
    Ok(Box::new(CassandraStore { target, durable_writes }))
}

impl CassandraStore {
    fn patient(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::open(&self.target)?;
        connection.wait_for(self.target.timeout * PATIENCE)?;
        Ok(connection)
    }

    /// Makes the keyspace, or finds that the one that is there loses what a trial relies on to be kept, or the reverse.
    fn make_keyspace(&self, connection: &mut Connection) -> Result<(), Failure> {
        let (keyspace, durable) = (&self.target.keyspace, self.durable_writes);
        connection.query(&format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
             {{'class': 'SimpleStrategy', 'replication_factor': 1}} AND durable_writes = {durable}"
        ))?;
        let statement =
            format!("SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'");
        let body = connection.query(&statement)?;
        let found = Rows::new(body)?.next()?.and_then(|mut row| row.boolean());
        if found.is_some_and(|found| found != durable) {
            let message = format!("the keyspace {keyspace} is there and has durable_writes = {}", !durable);
            return Err(Failure::new(Kind::Schema, message));
        }
        Ok(())
    }

    /// Flushes and compactions that run or wait.
    fn background_work(connection: &mut Connection) -> Result<u64, Failure> {
        let statement = "SELECT name, active_tasks, pending_tasks FROM system_views.thread_pools";
        let mut rows = Rows::new(connection.query(statement)?)?;
        let mut tasks = 0;
        while let Some(mut row) = rows.next()? {
            if let Some("CompactionExecutor" | "MemtableFlushWriter" | "MutationStage") = row.text() {
                tasks += u64::from(row.int().unwrap_or(0)) + u64::from(row.int().unwrap_or(0));
            }
        }
        Ok(tasks)
    }
}

impl Store for CassandraStore {
    fn about(&self) -> Result<About, Failure> {
        let mut connection = Connection::open(&self.target)?;
        let mut about = About::default();
        let mut rows = Rows::new(connection.query("SELECT release_version FROM system.local")?)?;
        let version = rows.next()?.and_then(|mut row| row.text().map(str::to_owned));
        about.version = format!("Cassandra {}", version.as_deref().unwrap_or("of an unknown version"));
        about.settings.insert("durable_writes".into(), self.durable_writes.to_string());
        // Its settings are tables since version 4.
        match connection.query("SELECT name, value FROM system_views.settings") {
            Ok(body) => {
                let mut rows = Rows::new(body)?;
                while let Some(mut row) = rows.next()? {
                    let (Some(name), Some(value)) = (row.text().map(str::to_owned), row.text()) else { continue };
                    if name.starts_with("commitlog_") || name == "memtable_allocation_type" {
                        about.settings.insert(name, value.into());
                    }
                }
            }
            Err(failure) if matches!(failure.kind, Kind::Lost | Kind::Timeout) => return Err(failure),
            Err(failure) => drop(about.settings.insert("settings".into(), failure.message)),
        }
        Ok(about)
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        if !schema.index {
            return Err(Failure::new(Kind::Unsupported, "Cassandra's key is its index; there is no table without"));
        }
        let mut connection = self.patient()?;
        self.make_keyspace(&mut connection)?;
        let table = self.target.table_name();
        if schema.drop {
            connection.query(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        connection
            .query(&format!("CREATE TABLE {table} (sensor uuid, ts bigint, value double, PRIMARY KEY (sensor, ts))"))?;
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        let statement = format!("DROP TABLE IF EXISTS {}", self.target.table_name());
        match self.patient()?.query(&statement) {
            // Without its keyspace there is no table either.
            Err(failure) if failure.kind != Kind::Schema => Err(failure),
            _ => Ok(()),
        }
    }

    fn count(&self) -> Result<u64, Failure> {
        let statement = format!("SELECT COUNT(*) FROM {}", self.target.table_name());
        let mut connection = self.patient()?;
        let mut rows = Rows::new(connection.query(&statement)?)?;
        let count = rows.next()?.and_then(|mut row| row.long());
        count.and_then(|count| count.try_into().ok()).ok_or_else(|| answer::malformed("a count that is none"))
    }

    /// A statement of thousands of rows is one mutation, whose size the server limits.
    fn preload_rows(&self) -> u64 {
        1000
    }

    /// Until flushes and compactions are over.
    fn settle(&self) -> Result<(), Failure> {
        let mut connection = self.patient()?;
        let (begun, mut looks) = (Instant::now(), 0);
        while looks < SETTLED_LOOKS {
            if begun.elapsed() > self.target.timeout * PATIENCE {
                return Err(Failure::new(Kind::Timeout, "flushes and compactions do not come to an end"));
            }
            thread::sleep(SETTLING_STEP);
            let tasks = match Self::background_work(&mut connection) {
                // Servers before version 4 do not tell.
                Err(failure) if failure.kind == Kind::Schema => return Ok(()),
                tasks => tasks?,
            };
            looks = if tasks == 0 { looks + 1 } else { 0 };
        }
        Ok(())
    }

    /// A flush has no statement of its own, but a table may be flushed periodically: so it is, for a moment.
    fn rest(&self) -> Result<(), Failure> {
        let mut connection = self.patient()?;
        let mut flush_every = |period: Duration| {
            let (table, period) = (self.target.table_name(), period.as_millis());
            connection.query(&format!("ALTER TABLE {table} WITH memtable_flush_period_in_ms = {period}")).map(drop)
        };
        flush_every(SETTLING_STEP)?;
        thread::sleep(2 * SETTLING_STEP);
        flush_every(Duration::ZERO)?;
        self.settle()
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let connection = Connection::open(&self.target)?;
        Ok(Box::new(CassandraSession::new(connection, &self.target)?))
    }
}
