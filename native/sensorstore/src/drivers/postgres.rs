//! PostgreSQL, by a client of our own: see [`wire`] for why.

pub(crate) mod dialect;
pub(super) mod session;
mod sqlstate;
pub(crate) mod wire;

use std::collections::BTreeMap;

use dialect::Dialect;
use session::{PostgresSession, WriteMode};
use wire::{Connection, Target};

use super::uri;
use crate::failure::Failure;
use crate::spec::StoreSpec;
use crate::store::{About, Schema, Session, Store};

/// What bears on durability, and on what a write costs for it.
const SETTINGS: [&str; 11] = [
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "wal_writer_delay",
    "wal_writer_flush_after",
    "full_page_writes",
    "data_checksums",
    "commit_delay",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
];

struct Postgres {
    target: Target,
    table: String,
    mode: WriteMode,
}

/// A store on this server.  Options: `write_mode` (how several readings are written), and any setting of a session
/// under PostgreSQL's name of it (`synchronous_commit`, …).
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    let server = uri::server(spec, &["postgresql", "postgres"], 5432)?;
    let mode = match spec.choice("write_mode", &["unnest", "copy", "insert", "values"])? {
        "copy" => WriteMode::Copy,
        "insert" => WriteMode::Insert,
        "values" => WriteMode::Values,
        _ => WriteMode::Unnest,
    };
    let mut settings: BTreeMap<_, _> = spec.options.clone();
    settings.remove("write_mode");
    let target = Target {
        host: server.host,
        port: server.port,
        user: server.user.unwrap_or_else(|| "virtgauge".into()),
        password: server.password.unwrap_or_default(),
        database: server.database,
        settings,
        timeout: spec.timeout(),
    };
    Ok(Box::new(Postgres { target, table: spec.table()?.into(), mode }))
}

impl Store for Postgres {
    fn about(&self) -> Result<About, Failure> {
        let mut connection = Connection::open(&self.target)?;
        let names = SETTINGS.map(|name| format!("'{name}'")).join(", ");
        let statement = format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('server_version', {names}) ORDER BY 1"
        );
        let mut settings = BTreeMap::new();
        for row in connection.query(&statement)? {
            if let [Some(name), Some(value)] = row.as_slice() {
                settings.insert(name.clone(), value.clone());
            }
        }
        let version = settings.remove("server_version").unwrap_or_default();
        Ok(About { version: format!("PostgreSQL {version}"), settings })
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        let table = &self.table;
        let mut connection = Connection::patient(&self.target)?;
        if schema.drop {
            connection.query(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        // Without a primary key: with and without the index, nothing else shall differ.
        let columns = "sensor uuid NOT NULL, ts bigint NOT NULL, value double precision NOT NULL";
        connection.query(&format!("CREATE TABLE {table} ({columns})"))?;
        if schema.index {
            connection.query(&format!("CREATE INDEX ON {table} USING btree (sensor, ts)"))?;
        }
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        Connection::patient(&self.target)?.query(&format!("DROP TABLE {}", self.table)).map(drop)
    }

    fn count(&self) -> Result<u64, Failure> {
        Connection::patient(&self.target)?.count(&format!("SELECT count(*) FROM {}", self.table))
    }

    /// Statistics for the planner, and the marks of commit that the first read would have to set otherwise; both come by
    /// themselves in time (autovacuum), in the middle of a trial.
    fn settle(&self) -> Result<(), Failure> {
        Connection::patient(&self.target)?.query(&format!("VACUUM (ANALYZE) {}", self.table)).map(drop)
    }

    fn rest(&self) -> Result<(), Failure> {
        Connection::patient(&self.target)?.query("CHECKPOINT").map(drop)
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let connection = Connection::open(&self.target)?;
        Ok(Box::new(PostgresSession::new(connection, &self.table, self.mode, Dialect::Postgres)?))
    }
}
