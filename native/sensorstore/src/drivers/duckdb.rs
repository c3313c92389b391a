//! DuckDB, embedded: one database in this process, a connection per client.
//!
//! It flushes before each acknowledgement, unless `fsync_mode` (since 2.0) tells it never to.

mod library;
mod session;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Schema, Session, Store};
use library::{Connection, Database, Interface};
use session::DuckdbSession;

struct Duckdb {
    interface: Arc<Interface>,
    path: PathBuf,
    table: String,
    /// `standard`, each commit flushes; `none`, nothing ever does.
    fsync_mode: String,
    /// Opened once, because a file can be open in one database at a time.
    database: Mutex<Option<Arc<Database>>>,
}

/// A database in one file, by the library that `library` names.  Option: `fsync_mode`, as DuckDB has it: `standard` or
/// `none`.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification; `unsupported` where the library is not DuckDB.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&["fsync_mode"])?;
    let missing = || Failure::new(Kind::BadRequest, "store.library is missing");
    let library = spec.library.as_deref().ok_or_else(missing)?;
    Ok(Box::new(Duckdb {
        path: spec.path()?.to_path_buf(),
        table: spec.table()?.to_owned(),
        fsync_mode: spec.choice("fsync_mode", &["standard", "none"])?.to_owned(),
        interface: Interface::load(library)?,
        database: Mutex::default(),
    }))
}

impl Duckdb {
    fn connection(&self) -> Result<Connection, Failure> {
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*database {
            return Connection::open(open);
        }
        let opened = self.interface.open(&self.path)?;
        let connection = Connection::open(&opened)?;
        if self.fsync_mode != "standard" {
            run(&connection, &format!("SET fsync_mode = '{}'", self.fsync_mode))?;
        }
        *database = Some(opened);
        Ok(connection)
    }

    fn table_exists(&self, connection: &Connection) -> Result<bool, Failure> {
        let sql = format!("SELECT count(*) FROM duckdb_tables() WHERE table_name = '{}'", self.table);
        Ok(connection.number(&sql)? > 0)
    }
}

fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    connection.query(sql, &mut |_| ())
}

impl Store for Duckdb {
    fn about(&self) -> Result<About, Failure> {
        let connection = self.connection()?;
        // SAFETY: takes nothing, gives text that lives on.
        let version = Interface::text(unsafe { (self.interface.library_version)() });
        let mut about = About { version: format!("DuckDB {}", version.trim_start_matches('v')), ..About::default() };
        let threads = connection.number("SELECT current_setting('threads')::BIGINT")?;
        about.settings.insert("threads".into(), threads.to_string());
        about.settings.insert("fsync_mode".into(), self.fsync_mode.clone());
        Ok(about)
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        let (connection, table) = (self.connection()?, &self.table);
        if self.table_exists(&connection)? {
            if !schema.drop {
                let message = format!("{} has a table {table} already", self.path.display());
                return Err(Failure::new(Kind::Exists, message));
            }
            run(&connection, &format!("DROP TABLE {table}"))?;
        }
        let columns = "(sensor UUID NOT NULL, timestamp BIGINT NOT NULL, value DOUBLE NOT NULL)";
        run(&connection, &format!("CREATE TABLE {table} {columns}"))?;
        if schema.index {
            run(&connection, &format!("CREATE INDEX {table}_index ON {table} (sensor, timestamp)"))?;
        }
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        run(&self.connection()?, &format!("DROP TABLE IF EXISTS {}", self.table))
    }

    fn count(&self) -> Result<u64, Failure> {
        Ok(self.connection()?.number(&format!("SELECT count(*) FROM {}", self.table))? as u64)
    }

    fn preload_rows(&self) -> u64 {
        100_000
    }

    /// Moves the log into the database.
    fn settle(&self) -> Result<(), Failure> {
        run(&self.connection()?, "CHECKPOINT")
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(DuckdbSession::new(self.connection()?, &self.table)?))
    }
}
