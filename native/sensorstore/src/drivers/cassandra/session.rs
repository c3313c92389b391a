//! One client of Cassandra.

use std::mem::take;

use uuid::Uuid;

use super::answer::{self, Rows, malformed};
use super::connection::{Connection, Target};
use super::wire::{self, CONSISTENCY_ONE, REQUEST, UNLOGGED, flag, opcode, result};
use crate::failure::{Failure, Kind};
use crate::store::{Reading, Session, Window};

/// A batch counts its statements in 16 bits.
const MOST_READINGS: usize = u16::MAX as usize;

/// As many requests as streams can be told apart.
const MOST_PIPELINED: usize = i16::MAX as usize;

pub(super) struct CassandraSession {
    connection: Connection,
    insert: Vec<u8>,
    select: Vec<u8>,
    newest: Vec<u8>,
    window: Vec<u8>,
    page_rows: i32,
    /// Which of the writes of a pipeline have been answered: they are not answered in order.
    answered: Vec<bool>,
}

impl CassandraSession {
    /// Prepares what a client asks.
    pub(super) fn new(mut connection: Connection, target: &Target) -> Result<Self, Failure> {
        let table = target.table_name();
        let insert = connection.prepare(&format!("INSERT INTO {table} (sensor, ts, value) VALUES (?, ?, ?)"))?;
        let select =
            connection.prepare(&format!("SELECT ts, value FROM {table} WHERE sensor = ? AND ts >= ? AND ts <= ?"))?;
        let newest =
            connection.prepare(&format!("SELECT ts, value FROM {table} WHERE sensor = ? ORDER BY ts DESC LIMIT 1"))?;
        let window = connection.prepare(&format!(
            "SELECT count(value), avg(value), min(value), max(value) FROM {table} \
             WHERE sensor = ? AND ts >= ? AND ts <= ?"
        ))?;
        let page_rows = target.page_rows;
        Ok(Self { connection, insert, select, newest, window, page_rows, answered: Vec::new() })
    }

    /// Adds a write to what is to be sent: one statement, or a batch of them, which are all of one partition and so are
    /// one mutation.
    fn add_write(&mut self, stream: i16, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        let output = &mut self.connection.output;
        if let [reading] = readings {
            let start = wire::begin(output, REQUEST, stream, opcode::EXECUTE);
            wire::put_short_bytes(output, &self.insert);
            output.extend_from_slice(&CONSISTENCY_ONE.to_be_bytes());
            output.push(flag::VALUES | flag::SKIP_METADATA);
            put_row(output, sensor, *reading);
            wire::finish(output, start);
            return Ok(());
        }
        if readings.len() > MOST_READINGS {
            let message = format!("{} readings in one batch; Cassandra takes {MOST_READINGS}", readings.len());
            return Err(Failure::new(Kind::Unsupported, message));
        }
        let start = wire::begin(output, REQUEST, stream, opcode::BATCH);
        output.push(UNLOGGED);
        output.extend_from_slice(&(readings.len() as u16).to_be_bytes());
        for reading in readings {
            output.push(1); // prepared
            wire::put_short_bytes(output, &self.insert);
            put_row(output, sensor, *reading);
        }
        output.extend_from_slice(&CONSISTENCY_ONE.to_be_bytes());
        output.push(0);
        wire::finish(output, start);
        Ok(())
    }

    fn ask(
        &mut self,
        statement: fn(&Self) -> &[u8],
        sensor: Uuid,
        times: &[i64],
        paging_state: Option<&[u8]>,
    ) -> Result<(), Failure> {
        let mut output = take(&mut self.connection.output);
        output.clear();
        let start = wire::begin(&mut output, REQUEST, 0, opcode::EXECUTE);
        wire::put_short_bytes(&mut output, statement(self));
        output.extend_from_slice(&CONSISTENCY_ONE.to_be_bytes());
        let paging = paging_state.map_or(0, |_| flag::PAGING_STATE);
        output.push(flag::VALUES | flag::SKIP_METADATA | flag::PAGE_SIZE | paging);
        output.extend_from_slice(&(1 + times.len() as u16).to_be_bytes());
        wire::put_value(&mut output, sensor.as_bytes());
        for time in times {
            wire::put_value(&mut output, &time.to_be_bytes());
        }
        output.extend_from_slice(&self.page_rows.to_be_bytes());
        if let Some(state) = paging_state {
            wire::put_value(&mut output, state);
        }
        wire::finish(&mut output, start);
        self.connection.output = output;
        self.connection.send()
    }
}

impl Session for CassandraSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.connection.output.clear();
        self.add_write(0, sensor, readings)?;
        self.connection.send()?;
        void(self.connection.result()?)
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.ask(|own| &own.select, sensor, &[from, to], None)?;
        while let Some(state) = Rows::new(self.connection.result()?)?.readings(into)?.map(<[u8]>::to_vec) {
            self.ask(|own| &own.select, sensor, &[from, to], Some(&state))?;
        }
        Ok(())
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.ask(|own| &own.newest, sensor, &[], None)?;
        Rows::new(self.connection.result()?)?.readings(into).map(drop)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        self.ask(|own| &own.window, sensor, &[from, to], None)?;
        let row = Rows::new(self.connection.result()?)?.next()?;
        row.and_then(|mut row| {
            let count = row.long()? as u64;
            let mut number = || row.long().map_or(f64::NAN, |bits| f64::from_bits(bits as u64));
            Some(Window { count, mean: number(), min: number(), max: number() })
        })
        .ok_or_else(|| malformed("a window without a count"))
    }

    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        if writes.len() > MOST_PIPELINED {
            let message = format!("{} writes at once; Cassandra tells {MOST_PIPELINED} apart", writes.len());
            return Err(Failure::new(Kind::Unsupported, message));
        }
        self.connection.output.clear();
        for (number, (sensor, readings)) in writes.iter().enumerate() {
            self.add_write(number as i16, *sensor, readings)?;
        }
        self.connection.send()?;
        self.answered.clear();
        self.answered.resize(writes.len(), false);
        let mut outcome = Ok(());
        for _ in writes {
            let (stream, opcode, body) = self.connection.answer()?;
            let number = usize::try_from(stream).unwrap_or(usize::MAX);
            let done = match opcode {
                opcode::RESULT => void(body),
                opcode::ERROR => Err(answer::failure(body)),
                _ => Err(malformed("no result")),
            };
            match self.answered.get_mut(number) {
                Some(answered @ false) => *answered = true,
                _ => return Err(malformed("an answer to what was not asked")),
            }
            if done.is_ok() {
                acknowledged(number);
            }
            outcome = outcome.and(done);
        }
        outcome
    }
}

fn put_row(output: &mut Vec<u8>, sensor: Uuid, reading: Reading) {
    output.extend_from_slice(&3_u16.to_be_bytes());
    wire::put_value(output, sensor.as_bytes());
    wire::put_value(output, &reading.timestamp.to_be_bytes());
    wire::put_value(output, &reading.value.to_be_bytes());
}

fn void(body: &[u8]) -> Result<(), Failure> {
    match answer::result(body)?.0 {
        result::VOID => Ok(()),
        _ => Err(malformed("a result of a write")),
    }
}
