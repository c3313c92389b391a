//! What one client does on its connection: prepared statements, binary parameters and results.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::DATA_ROW_TAG;
use postgres_protocol::message::frontend::{self, BindError};
use uuid::Uuid;

use super::dialect::Dialect;
use super::wire::{Connection, unsendable};
use crate::failure::{Failure, Kind};
use crate::store::{Reading, Session, Window};

/// How several readings of one statement are written; a single one is a prepared INSERT, but with [`Self::Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// INSERT from two arrays as parameters.
    Unnest,
    /// COPY in its binary format.
    Copy,
    /// The INSERT of a single reading, once for each, in one transaction.
    Insert,
    /// One INSERT as text that holds all the readings, as the paper did it.
    Values,
}

// PostgreSQL's numbers of types (pg_type.dat).
const INT8: u32 = 20;
const FLOAT8: u32 = 701;
const INT8_ARRAY: u32 = 1016;
const FLOAT8_ARRAY: u32 = 1022;

// Names of the prepared statements.
const INSERT: &str = "i";
const MANY: &str = "m";
const READ_ONE: &str = "r";
const READ_RANGE: &str = "s";
const NEWEST: &str = "n";
const WINDOW: &str = "w";

/// What a binary COPY begins with: signature, flags, length of an extension (PostgreSQL's documentation, COPY).
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Binary: in `Bind`, of all parameters and of all results.
const BINARY: [i16; 1] = [1];

enum Parameter<'a> {
    Sensor(Uuid),
    Timestamp(i64),
    Value(f64),
    Timestamps(&'a [Reading]),
    Values(&'a [Reading]),
}

impl Parameter<'_> {
    fn put(self, dialect: Dialect, output: &mut BytesMut) {
        match self {
            Self::Sensor(sensor) => dialect.put_sensor(sensor, output),
            Self::Timestamp(timestamp) => output.put_i64(dialect.binary_time(timestamp)),
            Self::Value(value) => output.put_f64(value),
            Self::Timestamps(readings) => {
                put_array_head(INT8, readings.len(), output);
                for reading in readings {
                    output.put_i32(8);
                    output.put_i64(reading.timestamp);
                }
            }
            Self::Values(readings) => {
                put_array_head(FLOAT8, readings.len(), output);
                for reading in readings {
                    output.put_i32(8);
                    output.put_f64(reading.value);
                }
            }
        }
    }
}

/// One dimension, no NULLs, the type of the elements, how many, the first one's index.
fn put_array_head(element: u32, length: usize, output: &mut BytesMut) {
    output.put_i32(1);
    output.put_i32(0);
    output.put_u32(element);
    output.put_i32(length as i32);
    output.put_i32(1);
}

/// A client of PostgreSQL or of QuestDB.
pub(crate) struct PostgresSession {
    connection: Connection,
    table: String,
    mode: WriteMode,
    dialect: Dialect,
}

impl PostgresSession {
    /// Prepares the statements, all in one round trip; a table that is not as expected is found here.
    pub(crate) fn new(
        mut connection: Connection,
        table: &str,
        mode: WriteMode,
        dialect: Dialect,
    ) -> Result<Self, Failure> {
        let (sensor, time) = (dialect.sensor_type(), dialect.time_type());
        let read = format!("SELECT ts, value FROM {table} WHERE sensor = $1 AND ts");
        let insert = format!("INSERT INTO {table} (sensor, ts, value)");
        let mut statements = vec![
            (INSERT, format!("{insert} VALUES ($1, $2, $3)"), vec![sensor, time, FLOAT8]),
            (READ_ONE, format!("{read} = $2"), vec![sensor, time]),
            // QuestDB's LATEST ON, of which it makes the same plan, may answer another sensor's where the sensor is a parameter:
            // https://github.com/questdb/questdb/pull/7481
            (
                NEWEST,
                format!("SELECT ts, value FROM {table} WHERE sensor = $1 ORDER BY ts DESC LIMIT 1"),
                vec![sensor],
            ),
            (
                WINDOW,
                format!(
                    "SELECT count(*), avg(value), min(value), max(value) FROM {table} \
                     WHERE sensor = $1 AND ts BETWEEN $2 AND $3"
                ),
                vec![sensor, time, time],
            ),
            (READ_RANGE, format!("{read} BETWEEN $2 AND $3 ORDER BY ts"), vec![sensor, time, time]),
        ];
        match mode {
            WriteMode::Unnest => {
                let arrays = format!("{insert} SELECT $1, ts, value FROM unnest($2, $3) AS given (ts, value)");
                statements.push((MANY, arrays, vec![sensor, INT8_ARRAY, FLOAT8_ARRAY]));
            }
            WriteMode::Copy => {
                let copy = format!("COPY {table} (sensor, ts, value) FROM STDIN (FORMAT binary)");
                statements.push((MANY, copy, vec![]));
            }
            WriteMode::Insert | WriteMode::Values => {}
        }
        for (name, statement, types) in statements {
            frontend::parse(name, &statement, types, &mut connection.output).map_err(unsendable)?;
        }
        frontend::sync(&mut connection.output);
        connection.send()?;
        connection.answer(|_| Ok(()))?;
        Ok(Self { connection, table: table.into(), mode, dialect })
    }

    fn execute<'a>(
        &mut self,
        statement: &str,
        parameters: impl IntoIterator<Item = Parameter<'a>>,
    ) -> Result<(), Failure> {
        let (output, dialect) = (&mut self.connection.output, self.dialect);
        let put = |parameter: Parameter<'a>, output: &mut BytesMut| {
            parameter.put(dialect, output);
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", statement, BINARY, parameters, put, BINARY, output);
        bound.map_err(|error| match error {
            BindError::Conversion(error) => unsendable(error),
            BindError::Serialization(error) => unsendable(error),
        })?;
        frontend::execute("", 0, output).map_err(unsendable)
    }

    /// Gathers all messages of one write, up to its `Sync`.
    fn gather(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        match (self.mode, readings) {
            (WriteMode::Values, _) => return self.gather_text(sensor, readings),
            (_, [_]) | (WriteMode::Insert, _) => {
                for reading in readings {
                    let timestamp = Parameter::Timestamp(reading.timestamp);
                    self.execute(INSERT, [Parameter::Sensor(sensor), timestamp, Parameter::Value(reading.value)])?;
                }
            }
            (WriteMode::Unnest, _) => {
                let arrays = [Parameter::Timestamps(readings), Parameter::Values(readings)];
                self.execute(MANY, [Parameter::Sensor(sensor)].into_iter().chain(arrays))?;
            }
            (WriteMode::Copy, _) => {
                self.execute(MANY, [])?;
                self.gather_copy(sensor, readings);
            }
        }
        frontend::sync(&mut self.connection.output);
        Ok(())
    }

    /// The data are sent behind `Execute` at once: the server takes them as soon as it begins to copy, and if it does
    /// not begin, it ignores everything up to `Sync`.
    fn gather_copy(&mut self, sensor: Uuid, readings: &[Reading]) {
        let row_bytes = 2 + (4 + 16) + (4 + 8) + (4 + 8);
        let bytes = COPY_HEADER.len() + readings.len() * row_bytes + 2;
        let output = &mut self.connection.output;
        output.reserve(1 + 4 + bytes);
        output.put_u8(b'd');
        output.put_i32((4 + bytes) as i32);
        output.put_slice(COPY_HEADER);
        for reading in readings {
            output.put_i16(3);
            output.put_i32(16);
            output.put_slice(sensor.as_bytes());
            output.put_i32(8);
            output.put_i64(reading.timestamp);
            output.put_i32(8);
            output.put_f64(reading.value);
        }
        output.put_i16(-1);
        frontend::copy_done(output);
    }

    /// A simple query, which ends with `ReadyForQuery` without a `Sync`.
    fn gather_text(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        let mut statement = format!("INSERT INTO {} (sensor, ts, value) VALUES ", self.table);
        let mut separator = "";
        for reading in readings {
            let time = self.dialect.literal_time(reading.timestamp);
            let written = write!(statement, "{separator}('{sensor}',{time},{:?})", reading.value);
            written.map_err(unsendable)?;
            separator = ",";
        }
        frontend::query(&statement, &mut self.connection.output).map_err(unsendable)
    }

    /// Sends what was asked, and takes rows of time and value.
    fn readings(&mut self, into: &mut Vec<Reading>) -> Result<(), Failure> {
        frontend::sync(&mut self.connection.output);
        self.connection.send()?;
        into.clear();
        let dialect = self.dialect;
        self.connection.answer(|message| {
            if message.tag == DATA_ROW_TAG {
                let (time, value) = columns(message.body).ok_or_else(other_columns)?;
                into.push(Reading { timestamp: dialect.milliseconds(time), value });
            }
            Ok(())
        })
    }

    fn acknowledgement(&mut self, readings: &[Reading]) -> Result<(), Failure> {
        let rows = self.connection.rows_written()?;
        if rows == readings.len() {
            return Ok(());
        }
        Err(Failure::new(Kind::WrongAnswer, format!("{rows} rows were written of {}", readings.len())))
    }
}

impl Session for PostgresSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.gather(sensor, readings)?;
        self.connection.send()?;
        self.acknowledgement(readings)
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        let start = [Parameter::Sensor(sensor), Parameter::Timestamp(from)];
        if from == to {
            self.execute(READ_ONE, start)?;
        } else {
            self.execute(READ_RANGE, start.into_iter().chain([Parameter::Timestamp(to)]))?;
        }
        self.readings(into)
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.execute(NEWEST, [Parameter::Sensor(sensor)])?;
        self.readings(into)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        let (from, to) = (Parameter::Timestamp(from), Parameter::Timestamp(to));
        self.execute(WINDOW, [Parameter::Sensor(sensor), from, to])?;
        frontend::sync(&mut self.connection.output);
        self.connection.send()?;
        let mut window = Window::default();
        self.connection.answer(|message| {
            // Without readings the other columns are NULL.
            if message.tag == DATA_ROW_TAG {
                window = numbers(message.body).unwrap_or_default();
            }
            Ok(())
        })?;
        Ok(window)
    }

    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        for (sensor, readings) in writes {
            self.gather(*sensor, readings)?;
        }
        self.connection.send()?;
        let mut result = Ok(());
        for (number, (_, readings)) in writes.iter().enumerate() {
            // Those behind one that failed are transactions of their own, and their answers come all the same.
            match self.acknowledgement(readings) {
                Ok(()) => acknowledged(number),
                Err(failure) => result = result.and(Err(failure)),
            }
        }
        result
    }
}

/// A row of two columns of eight bytes each.
fn columns(body: &[u8]) -> Option<(i64, f64)> {
    let body: &[u8; 26] = body.try_into().ok()?;
    let (timestamp, value) = (body[6..14].try_into().ok()?, body[18..].try_into().ok()?);
    let head = (&body[..6], &body[14..18]);
    let expected = head == (&[0, 2, 0, 0, 0, 8], &[0, 0, 0, 8]);
    expected.then(|| (i64::from_be_bytes(timestamp), f64::from_be_bytes(value)))
}

/// A row of a count and three numbers.
fn numbers(body: &[u8]) -> Option<Window> {
    let mut words = body.strip_prefix(&[0, 4])?.chunks_exact(12).map(|column| column.strip_prefix(&[0, 0, 0, 8]));
    let mut word = || Some(u64::from_be_bytes(words.next()??.try_into().ok()?));
    let count = word()?;
    let mut number = || word().map(f64::from_bits);
    Some(Window { count, mean: number()?, min: number()?, max: number()? })
}

fn other_columns() -> Failure {
    Failure::new(Kind::Schema, "the table's columns are not of the types that the load generator gives them")
}
