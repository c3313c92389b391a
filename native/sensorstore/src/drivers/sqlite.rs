//! SQLite, embedded: a connection per client, write-ahead log.
//!
//! Options: `synchronous` = `full` (a flush before each acknowledgement), `normal` (flushes at checkpoints only), `off`;
//! `checkpoint_ms`, how often a checkpoint is begun, beside those that SQLite begins by itself.
//!
//! SQLite lets one connection write at a time.  The writers of this process queue at a lock of their own, as an
//! application's would: polling the file's lock, which is what SQLite does, would measure the poll's period.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Params, Transaction, TransactionBehavior, params};
use uuid::Uuid;

use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Reading, Schema, Session, Store, Window};

struct Sqlite {
    place: Place,
    writers: Arc<Mutex<()>>,
    checkpoints: Mutex<Option<Checkpoints>>,
}

#[derive(Clone)]
struct Place {
    path: PathBuf,
    table: String,
    synchronous: String,
    timeout: Duration,
    checkpoint: Option<Duration>,
}

/// A database in one file.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&["synchronous", "checkpoint_ms"])?;
    let place = Place {
        path: spec.path()?.to_path_buf(),
        table: spec.table()?.to_owned(),
        synchronous: spec.choice("synchronous", &["full", "normal", "off"])?.to_owned(),
        timeout: spec.timeout(),
        checkpoint: spec.number("checkpoint_ms")?.map(|period| Duration::from_millis(period.max(1))),
    };
    Ok(Box::new(Sqlite { place, writers: Arc::default(), checkpoints: Mutex::default() }))
}

fn failure(error: &rusqlite::Error) -> Failure {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Kind::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Kind::Timeout,
        Some(ErrorCode::CannotOpen | ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Kind::Schema,
        Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => Kind::Denied,
        Some(ErrorCode::Unknown) if error.to_string().contains("no such table") => Kind::Schema,
        _ => Kind::Database,
    };
    Failure::new(kind, format!("SQLite: {error}"))
}

trait OrFailure<T> {
    fn or_failure(self) -> Result<T, Failure>;
}

impl<T> OrFailure<T> for rusqlite::Result<T> {
    fn or_failure(self) -> Result<T, Failure> {
        self.map_err(|error| failure(&error))
    }
}

impl Place {
    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.timeout)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", &self.synchronous)?;
        Ok(connection)
    }

    fn table_exists(&self, connection: &Connection) -> rusqlite::Result<bool> {
        connection.table_exists(None, self.table.as_str())
    }
}

impl Store for Sqlite {
    fn about(&self) -> Result<About, Failure> {
        let connection = self.place.connect().or_failure()?;
        let mut about = About { version: format!("SQLite {}", rusqlite::version()), ..About::default() };
        for name in ["journal_mode", "synchronous", "wal_autocheckpoint", "page_size"] {
            let value = connection.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0));
            let text = match value.or_failure()? {
                rusqlite::types::Value::Integer(number) => number.to_string(),
                rusqlite::types::Value::Text(text) => text,
                other => format!("{other:?}"),
            };
            about.settings.insert(name.into(), text);
        }
        if let Some(period) = self.place.checkpoint {
            about.settings.insert("checkpoint_ms".into(), period.as_millis().to_string());
        }
        Ok(about)
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        let connection = self.place.connect().or_failure()?;
        let table = &self.place.table;
        if self.place.table_exists(&connection).or_failure()? {
            if !schema.drop {
                let message = format!("{} has a table {table} already", self.place.path.display());
                return Err(Failure::new(Kind::Exists, message));
            }
            connection.execute_batch(&format!("DROP TABLE {table}")).or_failure()?;
        }
        let columns = "(sensor BLOB NOT NULL, timestamp INTEGER NOT NULL, value REAL NOT NULL)";
        connection.execute_batch(&format!("CREATE TABLE {table} {columns}")).or_failure()?;
        if schema.index {
            let index = format!("CREATE INDEX {table}_index ON {table} (sensor, timestamp)");
            connection.execute_batch(&index).or_failure()?;
        }
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        let connection = self.place.connect().or_failure()?;
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {}", self.place.table)).or_failure()
    }

    fn count(&self) -> Result<u64, Failure> {
        let connection = self.place.connect().or_failure()?;
        let count = format!("SELECT count(*) FROM {}", self.place.table);
        connection.query_row(&count, (), |row| row.get::<_, i64>(0)).map(|count| count as u64).or_failure()
    }

    /// Moves the log into the database, so that reads do not begin by searching it.
    fn settle(&self) -> Result<(), Failure> {
        let connection = self.place.connect().or_failure()?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).or_failure()
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let connection = self.place.connect().or_failure()?;
        let table = &self.place.table;
        if !self.place.table_exists(&connection).or_failure()? {
            let message = format!("{} has no table {table}", self.place.path.display());
            return Err(Failure::new(Kind::Schema, message));
        }
        let insert = format!("INSERT INTO {table} (sensor, timestamp, value) VALUES (?1, ?2, ?3)");
        let select = format!(
            "SELECT timestamp, value FROM {table} WHERE sensor = ?1 AND timestamp BETWEEN ?2 AND ?3 ORDER BY timestamp"
        );
        let newest =
            format!("SELECT timestamp, value FROM {table} WHERE sensor = ?1 ORDER BY timestamp DESC LIMIT 1");
        let window = format!(
            "SELECT count(*), avg(value), min(value), max(value) FROM {table} \
             WHERE sensor = ?1 AND timestamp BETWEEN ?2 AND ?3"
        );
        for statement in [&insert, &select, &newest, &window] {
            connection.prepare_cached(statement).or_failure()?;
        }
        let mut checkpoints = self.checkpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(period), None) = (self.place.checkpoint, &*checkpoints) {
            *checkpoints = Some(Checkpoints::begin(self.place.connect().or_failure()?, period));
        }
        let writers = Arc::clone(&self.writers);
        Ok(Box::new(SqliteSession { connection, writers, insert, select, newest, window }))
    }
}

struct SqliteSession {
    connection: Connection,
    writers: Arc<Mutex<()>>,
    insert: String,
    select: String,
    newest: String,
    window: String,
}

impl SqliteSession {
    fn insert(&self, sensor: Uuid, readings: &[Reading]) -> rusqlite::Result<()> {
        let _turn = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut statement = self.connection.prepare_cached(&self.insert)?;
        if let [reading] = readings {
            statement.execute(params![sensor.as_bytes(), reading.timestamp, reading.value])?;
            return Ok(());
        }
        let transaction = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        for reading in readings {
            statement.execute(params![sensor.as_bytes(), reading.timestamp, reading.value])?;
        }
        transaction.commit()
    }

    fn select(&self, sql: &str, parameters: impl Params, into: &mut Vec<Reading>) -> rusqlite::Result<()> {
        into.clear();
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            into.push(Reading { timestamp: row.get(0)?, value: row.get(1)? });
        }
        Ok(())
    }
}

impl Session for SqliteSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.insert(sensor, readings).or_failure()
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.select(&self.select, params![sensor.as_bytes(), from, to], into).or_failure()
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.select(&self.newest, params![sensor.as_bytes()], into).or_failure()
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        let mut statement = self.connection.prepare_cached(&self.window).or_failure()?;
        let reckoned = statement.query_row(params![sensor.as_bytes(), from, to], |row| {
            let number = |column| row.get(column).map(|number: Option<f64>| number.unwrap_or(f64::NAN));
            Ok(Window { count: row.get::<_, i64>(0)? as u64, mean: number(1)?, min: number(2)?, max: number(3)? })
        });
        reckoned.or_failure()
    }
}

/// A thread that begins a checkpoint every so often, until it is dropped.
struct Checkpoints {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    fn begin(connection: Connection, period: Duration) -> Self {
        let (over, ending) = channel();
        let thread = std::thread::spawn(move || {
            while ending.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                // One that finds the log in use is complete the next time; a full disk is what the writers meet.
                let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()));
            }
        });
        Self { over: Some(over), thread: Some(thread) }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
