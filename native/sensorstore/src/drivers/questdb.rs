//! QuestDB, by PostgreSQL's protocol; on request written by the line protocol over HTTP.

use std::thread::sleep;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::SET_UP_FACTOR;
use super::http::Http;
use super::influxdb::put_lines;
use super::postgres::dialect::Dialect;
use super::postgres::session::{PostgresSession, WriteMode};
use super::postgres::wire::{Connection, Target};
use super::uri::{self, Server};
use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Reading, Schema, Session, Store, Window};

/// What bears on durability, and on when rows become visible.
const SETTINGS: [&str; 4] =
    ["cairo.commit.mode", "cairo.wal.enabled.default", "cairo.max.uncommitted.rows", "cairo.wal.apply.enabled"];

/// From one question whether all is applied to the next.
const POLL: Duration = Duration::from_millis(5);

struct Questdb {
    target: Target,
    table: String,
    mode: WriteMode,
    /// Where the line protocol is taken, if it is used.
    lines: Option<Server>,
}

/// A store on this server.  Options: `write_mode`, how readings are written: `insert`, a prepared statement for each of
/// them in one round trip and one transaction; `values`, one statement as text; `lines`, the line protocol over HTTP,
/// to `http_port` (9000).
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&["write_mode", "http_port"])?;
    let write_mode = spec.choice("write_mode", &["insert", "values", "lines"])?;
    let mode = match write_mode {
        "values" => WriteMode::Values,
        _ => WriteMode::Insert,
    };
    let server = uri::server(spec, &["questdb", "postgresql"], 8812)?;
    let http_port = spec.number("http_port")?.unwrap_or(9000);
    let http_port = u16::try_from(http_port).map_err(|_| {
        Failure::new(Kind::BadRequest, format!("store.options.http_port is {http_port}, which is no port"))
    })?;
    let lines = (write_mode == "lines").then(|| Server { port: http_port, ..server.clone() });
    let target = Target {
        host: server.host,
        port: server.port,
        // QuestDB's own defaults.
        user: server.user.unwrap_or_else(|| "admin".into()),
        password: server.password.unwrap_or_else(|| "quest".into()),
        database: server.database,
        settings: std::collections::BTreeMap::new(),
        timeout: spec.timeout(),
    };
    Ok(Box::new(Questdb { target, table: spec.table()?.into(), mode, lines }))
}

impl Store for Questdb {
    fn about(&self) -> Result<About, Failure> {
        let mut connection = Connection::open(&self.target)?;
        let build = connection.query("SELECT build()")?.into_iter().flatten().flatten().next().unwrap_or_default();
        let names = SETTINGS.map(|name| format!("'{name}'")).join(", ");
        let parameters = format!("SELECT property_path, value FROM (SHOW PARAMETERS) WHERE property_path IN ({names})");
        let settings = connection.query(&parameters)?.into_iter().filter_map(|row| match row.as_slice() {
            [Some(name), value] => Some((name.clone(), value.clone().unwrap_or_default())),
            _ => None,
        });
        // "Build Information: QuestDB 9.3.4, JDK 17.0.15, Commit Hash …"
        let version = build.trim_start_matches("Build Information: ").split(',').next().unwrap_or_default();
        Ok(About { version: version.into(), settings: settings.collect() })
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        let table = &self.table;
        let mut connection = Connection::patient(&self.target)?;
        if schema.drop {
            connection.query(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        let index = if schema.index { " INDEX" } else { "" };
        let columns = format!("ts TIMESTAMP, sensor SYMBOL{index}, value DOUBLE");
        let statement = format!("CREATE TABLE {table} ({columns}) TIMESTAMP(ts) PARTITION BY DAY WAL");
        connection.query(&statement).map(drop)
    }

    fn drop_table(&self) -> Result<(), Failure> {
        Connection::patient(&self.target)?.query(&format!("DROP TABLE {}", self.table)).map(drop)
    }

    /// Of all that is acknowledged: what is in the log only does not show in a count yet.
    fn count(&self) -> Result<u64, Failure> {
        self.settle()?;
        Connection::patient(&self.target)?.count(&format!("SELECT count() FROM {}", self.table))
    }

    /// Waits until the write-ahead log is applied to the table.
    fn settle(&self) -> Result<(), Failure> {
        let mut connection = Connection::open(&self.target)?;
        let statement =
            format!("SELECT suspended, writerTxn, sequencerTxn FROM wal_tables() WHERE name = '{}'", self.table);
        let (begun, limit) = (Instant::now(), self.target.timeout * SET_UP_FACTOR);
        loop {
            let rows = connection.query(&statement)?;
            let [Some(suspended), Some(applied), Some(written)] = rows.first().map_or(&[][..], Vec::as_slice) else {
                return Err(Failure::new(Kind::Schema, format!("there is no table {} with a log", self.table)));
            };
            if suspended.starts_with('t') {
                let message = format!("QuestDB has suspended the table {}: its log cannot be applied", self.table);
                return Err(Failure::new(Kind::Database, message));
            }
            if applied == written {
                return Ok(());
            }
            if begun.elapsed() > limit {
                let message = format!("of {written} transactions, {applied} are applied after {limit:?}");
                return Err(Failure::new(Kind::Timeout, message));
            }
            sleep(POLL);
        }
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let connection = Connection::open(&self.target)?;
        let session = PostgresSession::new(connection, &self.table, self.mode, Dialect::Questdb)?;
        let Some(server) = &self.lines else { return Ok(Box::new(session)) };
        let http = Http::connect(server, self.target.timeout)?;
        Ok(Box::new(LinesSession { http, table: self.table.clone(), lines: Vec::new(), session }))
    }
}

/// Writes by the line protocol, which is acknowledged when the readings are in the log; reads as any other.
struct LinesSession {
    http: Http,
    table: String,
    lines: Vec<u8>,
    session: PostgresSession,
}

impl Session for LinesSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.lines.clear();
        put_lines(&self.table, sensor, readings, &mut self.lines);
        self.http.ask("POST", "/write?precision=ms", &self.lines)?.successful().map(drop)
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.session.read(sensor, from, to, into)
    }

    fn last_value(&mut self, sensor: Uuid, now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.session.last_value(sensor, now, into)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        self.session.window(sensor, from, to)
    }
}
