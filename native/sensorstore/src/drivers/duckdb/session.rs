//! A client's connection: prepared statements for single rows and reads, an appender for many rows.

use std::ptr::null_mut;

use uuid::Uuid;

use super::library::{
    BIGINT, Chunk, Connection, DOUBLE, Handle, Interface, QueryResult, UUID, Unsigned128, c_string, failure,
};
use crate::failure::{Failure, Kind};
use crate::store::{Reading, Session, Window};

pub(super) struct DuckdbSession {
    connection: Connection,
    table: String,
    insert: Handle,
    select: Handle,
    newest: Handle,
    window: Handle,
    /// The rows on their way to the appender.
    chunk: Handle,
    /// How many fit in.
    room: usize,
    appender: Handle,
}

// SAFETY: used by one thread at a time, whichever that is.
unsafe impl Send for DuckdbSession {}

impl DuckdbSession {
    pub(super) fn new(connection: Connection, table: &str) -> Result<Self, Failure> {
        let interface = connection.interface();
        let mut types = [UUID, BIGINT, DOUBLE].map(|kind| {
            // SAFETY: types that there are.
            unsafe { (interface.create_logical_type)(kind) }
        });
        // SAFETY: three types, destroyed after their use.
        let (chunk, room) =
            unsafe { ((interface.create_data_chunk)(types.as_mut_ptr(), 3), (interface.vector_size)()) };
        for kind in &mut types {
            // SAFETY: each once.
            unsafe { (interface.destroy_logical_type)(kind) };
        }
        let mut session = Self {
            connection,
            table: table.to_owned(),
            insert: null_mut(),
            select: null_mut(),
            newest: null_mut(),
            window: null_mut(),
            chunk,
            room: room as usize,
            appender: null_mut(),
        };
        session.insert = session.prepare(&format!("INSERT INTO {table} VALUES ($1, $2, $3)"))?;
        session.select = session.prepare(&format!(
            "SELECT timestamp, value FROM {table} WHERE sensor = $1 AND timestamp BETWEEN $2 AND $3 ORDER BY timestamp"
        ))?;
        session.newest = session
            .prepare(&format!("SELECT timestamp, value FROM {table} WHERE sensor = $1 ORDER BY timestamp DESC LIMIT 1"))?;
        session.window = session.prepare(&format!(
            "SELECT count(*), avg(value), min(value), max(value) FROM {table} \
             WHERE sensor = $1 AND timestamp BETWEEN $2 AND $3"
        ))?;
        session.open_appender()?;
        Ok(session)
    }

    fn interface(&self) -> &Interface {
        self.connection.interface()
    }

    fn prepare(&self, sql: &str) -> Result<Handle, Failure> {
        let (text, mut statement) = (c_string(sql)?, null_mut());
        let interface = self.interface();
        // SAFETY: the connection is open; a statement that failed is destroyed as any other.
        unsafe {
            if (interface.prepare)(self.connection.handle, text.as_ptr(), &raw mut statement) == 0 {
                return Ok(statement);
            }
            let failure = failure(&Interface::text((interface.prepare_error)(statement)));
            (interface.destroy_prepare)(&raw mut statement);
            Err(failure)
        }
    }

    fn open_appender(&mut self) -> Result<(), Failure> {
        let (table, mut appender) = (c_string(&self.table)?, null_mut());
        let interface = self.interface();
        // SAFETY: the connection is open; no schema is the default one.
        let done = unsafe {
            match (interface.appender_create)(self.connection.handle, null_mut(), table.as_ptr(), &raw mut appender) {
                0 => Ok(appender),
                _ => Err(failure(&Interface::text((interface.appender_error)(appender)))),
            }
        };
        self.appender = appender;
        done.map(|_| ())
    }

    /// The sensor as a statement's first parameter, and times as those behind it.
    fn bind(&self, statement: Handle, sensor: Uuid, times: &[i64]) -> Result<(), Failure> {
        let (upper, lower) = sensor.as_u64_pair();
        let interface = self.interface();
        // SAFETY: the statement has these parameters; the value is ours and destroyed once.
        let mut state = unsafe {
            let mut value = (interface.create_uuid)(Unsigned128 { lower, upper });
            let state = (interface.bind_value)(statement, 1, value);
            (interface.destroy_value)(&raw mut value);
            state
        };
        for (number, &time) in (2..).zip(times) {
            // SAFETY: as above.
            state |= unsafe { (interface.bind_int64)(statement, number, time) };
        }
        bound(state)
    }

    fn execute(&self, statement: Handle, each: &mut dyn FnMut(&Chunk)) -> Result<(), Failure> {
        let mut result = QueryResult::empty();
        // SAFETY: all parameters are bound; the result is ours.
        let state = unsafe { (self.interface().execute_prepared)(statement, &raw mut result) };
        self.connection.take(state, result, each)
    }

    fn select(&self, statement: Handle, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.execute(statement, &mut |chunk| {
            // SAFETY: the table's columns are a BIGINT and a DOUBLE without NULL, in this order in the statement.
            let (times, values) = unsafe { (chunk.column::<i64>(0), chunk.column::<f64>(1)) };
            into.extend(times.iter().zip(values).map(|(&timestamp, &value)| Reading { timestamp, value }));
        })
    }

    fn append(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        let (upper, lower) = sensor.as_u64_pair();
        let stored = Unsigned128 { lower, upper: upper ^ (1 << 63) }; // a HUGEINT, whose order is that of the text
        let interface = self.interface();
        let mut state = 0;
        for part in readings.chunks(self.room) {
            // SAFETY: the chunk's columns are of these types and have room for as many.
            unsafe {
                (interface.data_chunk_reset)(self.chunk);
                let column =
                    |number| (interface.vector_get_data)((interface.data_chunk_get_vector)(self.chunk, number));
                let sensors = std::slice::from_raw_parts_mut(column(0).cast::<Unsigned128>(), part.len());
                let times = std::slice::from_raw_parts_mut(column(1).cast::<i64>(), part.len());
                let values = std::slice::from_raw_parts_mut(column(2).cast::<f64>(), part.len());
                sensors.fill(stored);
                for ((reading, time), value) in part.iter().zip(times).zip(values) {
                    (*time, *value) = (reading.timestamp, reading.value);
                }
                (interface.data_chunk_set_size)(self.chunk, part.len() as u64);
                state |= (interface.append_data_chunk)(self.appender, self.chunk);
            }
        }
        // SAFETY: the appender is open; what it holds is committed here.
        if state == 0 && unsafe { (interface.appender_flush)(self.appender) } == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        let failure = failure(&Interface::text(unsafe { (interface.appender_error)(self.appender) }));
        // SAFETY: an appender that failed takes nothing more; destroyed once.
        unsafe { (interface.appender_destroy)(&raw mut self.appender) };
        self.open_appender().map_err(|_| failure.clone())?;
        Err(failure)
    }
}

fn bound(state: u32) -> Result<(), Failure> {
    if state == 0 {
        return Ok(());
    }
    Err(Failure::new(Kind::Schema, "DuckDB: the table's columns are not sensor, timestamp and value"))
}

impl Session for DuckdbSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        let [reading] = readings else { return self.append(sensor, readings) };
        self.bind(self.insert, sensor, &[reading.timestamp])?;
        // SAFETY: the statement's third parameter.
        bound(unsafe { (self.interface().bind_double)(self.insert, 3, reading.value) })?;
        self.execute(self.insert, &mut |_| ())
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.bind(self.select, sensor, &[from, to])?;
        self.select(self.select, into)
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.bind(self.newest, sensor, &[])?;
        self.select(self.newest, into)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        self.bind(self.window, sensor, &[from, to])?;
        let mut window = Window::default();
        self.execute(self.window, &mut |chunk| {
            // SAFETY: a BIGINT and three DOUBLE, which are NULL where no reading is counted, and are not looked at then.
            let (count, number) = unsafe { (chunk.column::<i64>(0), |column| chunk.column::<f64>(column)[0]) };
            if let Some(&count) = count.first().filter(|count| **count > 0) {
                window = Window { count: count as u64, mean: number(1), min: number(2), max: number(3) };
            }
        })?;
        Ok(window)
    }
}

impl Drop for DuckdbSession {
    fn drop(&mut self) {
        let interface = &*self.connection.database.interface;
        // SAFETY: each once, or null, which they all take; the connection is closed after them.
        unsafe {
            (interface.appender_destroy)(&raw mut self.appender);
            (interface.destroy_prepare)(&raw mut self.insert);
            (interface.destroy_prepare)(&raw mut self.select);
            (interface.destroy_prepare)(&raw mut self.newest);
            (interface.destroy_prepare)(&raw mut self.window);
            (interface.destroy_data_chunk)(&raw mut self.chunk);
        }
    }
}
