//! MariaDB by a blocking client of our own: one connection per client, prepared statements, and for several
//! readings MariaDB's own bulk execution, which is one statement and one transaction.
//!
//! Options: `write_mode` = `bulk`, or `values` (one INSERT as text that holds all the readings, as the paper did it).

mod wire;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use uuid::Uuid;

use self::wire::{Connection, Statement, command, malformed, put_bytes};
use super::{SET_UP_FACTOR, uri};
use crate::failure::Failure;
use crate::spec::StoreSpec;
use crate::store::{About, Reading, Schema, Session, Store, Window};

/// What bears on durability, and on what a write costs for it.
const SETTINGS: [&str; 11] = [
    "innodb_buffer_pool_size",
    "innodb_doublewrite",
    "innodb_file_per_table",
    "innodb_flush_log_at_timeout",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_log_file_size",
    "innodb_log_file_buffering",
    "innodb_page_size",
    "log_bin",
    "sync_binlog",
];

/// Where a server is, and as whom to speak to it.
struct Target {
    host: String,
    port: u16,
    user: String,
    password: String,
    database: String,
    timeout: Duration,
}

struct MariaDb {
    target: Target,
    table: String,
    as_text: bool,
}

/// A store on this server.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&["write_mode"])?;
    let server = uri::server(spec, &["mariadb", "mysql"], 3306)?;
    let target = Target {
        host: server.host,
        port: server.port,
        user: server.user.unwrap_or_else(|| "virtgauge".into()),
        password: server.password.unwrap_or_default(),
        database: server.database,
        timeout: spec.timeout(),
    };
    let as_text = spec.choice("write_mode", &["bulk", "values"])? == "values";
    Ok(Box::new(MariaDb { target, table: spec.table()?.into(), as_text }))
}

impl MariaDb {
    fn patient(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::open(&self.target)?;
        connection.wait_for(self.target.timeout * SET_UP_FACTOR)?;
        Ok(connection)
    }
}

impl Store for MariaDb {
    fn about(&self) -> Result<About, Failure> {
        let mut connection = Connection::open(&self.target)?;
        let names = SETTINGS.map(|name| format!("'{name}'")).join(", ");
        let mut settings = BTreeMap::new();
        let statement = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', {names})");
        for row in connection.query(&statement)? {
            if let [name, value] = row.as_slice() {
                settings.insert(name.clone(), value.clone());
            }
        }
        let version = settings.remove("version").unwrap_or_default();
        Ok(About { version: format!("MariaDB {}", version.split('-').next().unwrap_or_default()), settings })
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        let table = &self.table;
        let mut connection = self.patient()?;
        if schema.drop {
            connection.query(&format!("DROP TABLE IF EXISTS {table}"))?;
        }
        // Without a primary key of its own: with and without the index, nothing else shall differ.
        let index = if schema.index { ", INDEX (sensor, ts)" } else { "" };
        let columns = "sensor BINARY(16) NOT NULL, ts BIGINT NOT NULL, value DOUBLE NOT NULL";
        connection.query(&format!("CREATE TABLE {table} ({columns}{index}) ENGINE=InnoDB")).map(drop)
    }

    fn drop_table(&self) -> Result<(), Failure> {
        self.patient()?.query(&format!("DROP TABLE {}", self.table)).map(drop)
    }

    fn count(&self) -> Result<u64, Failure> {
        let rows = self.patient()?.query(&format!("SELECT COUNT(*) FROM {}", self.table))?;
        let count = rows.first().and_then(|row| row.first()).and_then(|count| count.parse().ok());
        count.ok_or_else(|| malformed("a count that is none"))
    }

    /// Statistics for the planner, which otherwise come by themselves in the middle of a trial.
    fn settle(&self) -> Result<(), Failure> {
        self.patient()?.query(&format!("ANALYZE TABLE {}", self.table)).map(drop)
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let connection = Connection::open(&self.target)?;
        Ok(Box::new(MariaDbSession::over(connection, &self.table, self.as_text)?))
    }
}

// The protocol's numbers of the parameters' types, each with a byte of flags.
const BYTES: [u8; 2] = [0xFD, 0];
const BIGINT: [u8; 2] = [8, 0];
const DOUBLE: [u8; 2] = [5, 0];

struct MariaDbSession {
    connection: Connection,
    insert: String,
    one: Statement,
    select: Statement,
    newest: Statement,
    window: Statement,
    as_text: bool,
}

impl MariaDbSession {
    /// Prepares what a client asks.
    fn over(mut connection: Connection, table: &str, as_text: bool) -> Result<Self, Failure> {
        let insert = format!("INSERT INTO {table} (sensor, ts, value) VALUES ");
        let one = connection.prepare(&format!("{insert}(?, ?, ?)"))?;
        let select = format!("SELECT ts, value FROM {table} WHERE sensor = ? AND ts BETWEEN ? AND ? ORDER BY ts");
        let select = connection.prepare(&select)?;
        let newest = format!("SELECT ts, value FROM {table} WHERE sensor = ? ORDER BY ts DESC LIMIT 1");
        let newest = connection.prepare(&newest)?;
        let window = connection.prepare(&format!(
            "SELECT COUNT(*), AVG(value), MIN(value), MAX(value) FROM {table} WHERE sensor = ? AND ts BETWEEN ? AND ?"
        ))?;
        Ok(Self { connection, insert, one, select, newest, window, as_text })
    }

    /// Adds a write to what is to be sent.
    fn add_write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        if self.as_text {
            let mut statement = self.insert.clone();
            for (number, Reading { timestamp, value }) in readings.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                // The shortest decimals that are this number: it is read back to the bit.
                let row = write!(statement, "{comma}(x'{}',{timestamp},{value:e})", sensor.simple());
                row.expect("a string takes everything");
            }
            return self.connection.command(command::QUERY, |output| output.extend_from_slice(statement.as_bytes()));
        }
        let Statement(number) = self.one;
        if let [reading] = readings {
            return self.connection.command(command::EXECUTE, |output| {
                put_execution(output, number, &[BYTES, BIGINT, DOUBLE]);
                put_bytes(output, sensor.as_bytes());
                output.extend_from_slice(&reading.timestamp.to_le_bytes());
                output.extend_from_slice(&reading.value.to_le_bytes());
            });
        }
        self.connection.command(command::EXECUTE_MANY, |output| {
            output.extend_from_slice(&number.to_le_bytes());
            output.extend_from_slice(&128_u16.to_le_bytes()); // with the types
            output.extend_from_slice([BYTES, BIGINT, DOUBLE].as_flattened());
            for reading in readings {
                output.push(0); // a value follows, three times
                put_bytes(output, sensor.as_bytes());
                output.push(0);
                output.extend_from_slice(&reading.timestamp.to_le_bytes());
                output.push(0);
                output.extend_from_slice(&reading.value.to_le_bytes());
            }
        })
    }
}

impl MariaDbSession {
    /// Sends a prepared statement of a sensor and of times.
    fn ask(&mut self, Statement(number): Statement, sensor: Uuid, times: &[i64]) -> Result<(), Failure> {
        self.connection.command(command::EXECUTE, |output| {
            put_execution(output, number, &[BYTES, BIGINT, BIGINT][..=times.len()]);
            put_bytes(output, sensor.as_bytes());
            output.extend(times.iter().flat_map(|time| time.to_le_bytes()));
        })?;
        self.connection.send()
    }

    /// Takes rows of time and value.
    fn readings(&mut self, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.connection.answer(|row| {
            // Nothing, and which columns are null: neither is.
            let values = row.strip_prefix(&[0, 0])?;
            let (timestamp, value) = values.split_first_chunk()?;
            let reading = Reading {
                timestamp: i64::from_le_bytes(*timestamp),
                value: f64::from_le_bytes(value.try_into().ok()?),
            };
            into.push(reading);
            Some(())
        })
    }
}

/// Of a prepared statement once, without a cursor: its number, no nulls, the types of its parameters.
fn put_execution(output: &mut Vec<u8>, number: u32, types: &[[u8; 2]]) {
    output.extend_from_slice(&number.to_le_bytes());
    output.push(0);
    output.extend_from_slice(&1_u32.to_le_bytes());
    output.extend_from_slice(&[0, 1]);
    output.extend_from_slice(types.as_flattened());
}

impl Session for MariaDbSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.add_write(sensor, readings)?;
        self.connection.send()?;
        self.connection.answer(|_| None)
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.ask(self.select, sensor, &[from, to])?;
        self.readings(into)
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.ask(self.newest, sensor, &[])?;
        self.readings(into)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        self.ask(self.window, sensor, &[from, to])?;
        let mut window = Window::default();
        self.connection.answer(|row| {
            // Without readings three columns are null.
            let Some(values) = row.strip_prefix(&[0, 0]) else { return Some(()) };
            let (count, numbers) = values.split_first_chunk()?;
            let mut numbers = numbers.chunks_exact(8).map_while(|number| number.try_into().ok().map(f64::from_le_bytes));
            let mut number = || numbers.next();
            window = Window { count: u64::from_le_bytes(*count), mean: number()?, min: number()?, max: number()? };
            Some(())
        })?;
        Ok(window)
    }

    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        for (sensor, readings) in writes {
            self.add_write(*sensor, readings)?;
        }
        self.connection.send()?;
        let mut failed = None;
        for number in 0..writes.len() {
            match self.connection.answer(|_| None) {
                Ok(()) => acknowledged(number),
                Err(failure) => drop(failed.get_or_insert(failure)),
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
