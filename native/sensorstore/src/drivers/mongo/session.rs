//! One client of MongoDB.  Its two statements are laid out once; each operation only puts its values into them.
//!
//! Of writes that are not acknowledged, the buffers of the two kernels would take megabytes: a trial would count what the
//! server gets to seconds later, when the next trial may have begun.  So a `ping` goes along now and then, and not much
//! is sent beyond the last one that was answered.

use std::collections::VecDeque;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};
use uuid::Uuid;

use super::answer;
use super::connection::{self, Connection, MORE_TO_COME};
use super::target::{Target, WriteConcern};
use crate::failure::{Failure, Kind};
use crate::store::{Reading, Session, Window};

/// No server takes more documents in one statement (`maxWriteBatchSize`).
const MOST_DOCUMENTS: usize = 100_000;

/// After so many bytes of writes that are not acknowledged goes a `ping`, and so many of them may be unanswered.
const PING_EVERY_BYTES: usize = 64 << 10;
const MOST_PINGS: usize = 4;

/// Between the size of a document sequence and its first document: the field that it stands for.
const SEQUENCE_NAME: &[u8] = b"documents\0";

/// What stands in a layout where values are put, and nowhere else in it.
const SENSOR_MARK: Uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
const FIRST_MARK: i64 = 0x0102_0304_0506_0708;
const SECOND_MARK: i64 = 0x1112_1314_1516_1718;

pub(super) struct MongoSession {
    connection: Connection,
    concern: WriteConcern,
    database: String,
    collection: String,
    batch_size: i32,
    insert: Insert,
    find: Find,
    /// What is to be sent.
    output: Vec<u8>,
    /// The requests of a pipeline whose answers are awaited.
    requests: Vec<i32>,
    /// Bytes of writes that were not acknowledged, since the last ping.
    since_ping: usize,
    /// The pings that are not answered.
    pings: VecDeque<i32>,
}

impl MongoSession {
    pub(super) fn new(connection: Connection, target: &Target) -> Self {
        // Without a size, a first batch has 101 documents; a server ends each at 16 MiB in any case.
        let batch_size = target.batch_size.unwrap_or(i32::MAX);
        Self {
            connection,
            concern: target.concern,
            database: target.database.clone(),
            collection: target.collection.clone(),
            batch_size,
            insert: Insert::new(target),
            find: Find::new(target, batch_size),
            output: Vec::new(),
            requests: Vec::new(),
            since_ping: 0,
            pings: VecDeque::new(),
        }
    }

    /// Sends what there is to be sent.
    fn send(&mut self) -> Result<(), Failure> {
        if self.concern.acknowledged() {
            return self.connection.send(&self.output);
        }
        self.since_ping += self.output.len();
        if self.since_ping >= PING_EVERY_BYTES {
            self.add_ping();
        }
        self.connection.send(&self.output)?;
        self.await_pings(MOST_PINGS)
    }

    fn add_ping(&mut self) {
        self.since_ping = 0;
        let start = self.output.len();
        self.output.extend(connection::begin(0, &rawdoc! { "ping": 1, "$db": self.database.as_str() }));
        let request = self.connection.next_request();
        connection::finish(&mut self.output, start, request);
        self.pings.push_back(request);
    }

    /// Waits until so many pings at most are unanswered.
    fn await_pings(&mut self, most: usize) -> Result<(), Failure> {
        while self.pings.len() > most {
            let request = self.pings.pop_front().expect("more than none");
            answer::check(self.connection.answer_to(request)?)?;
        }
        Ok(())
    }

    /// Waits until all that was sent has been carried out.
    fn catch_up(&mut self) -> Result<(), Failure> {
        if self.since_ping > 0 {
            self.output.clear();
            self.add_ping();
            self.connection.send(&self.output)?;
        }
        self.await_pings(0)
    }

    /// Adds a statement that writes to what is to be sent.
    fn add_insert(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<i32, Failure> {
        if readings.len() > MOST_DOCUMENTS {
            let message = format!("{} readings in one statement; MongoDB takes {MOST_DOCUMENTS}", readings.len());
            return Err(Failure::new(Kind::Unsupported, message));
        }
        let request = self.connection.next_request();
        self.insert.add_to(&mut self.output, request, sensor, readings);
        Ok(request)
    }

    fn acknowledged(&mut self, request: i32, rows: usize) -> Result<(), Failure> {
        let written = answer::checked_writes(self.connection.answer_to(request)?)?;
        if written != Some(rows as i64) {
            let message = format!("{} of {rows} documents were written", written.unwrap_or(0));
            return Err(Failure::new(Kind::Database, message));
        }
        Ok(())
    }
}

impl Session for MongoSession {
    /// Fire-and-forget writes return as they have been sent.
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.output.clear();
        let request = self.add_insert(sensor, readings)?;
        self.send()?;
        if self.concern.acknowledged() {
            self.acknowledged(request, readings.len())?;
        }
        Ok(())
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.catch_up()?;
        let request = self.connection.next_request();
        self.connection.send(self.find.message(request, sensor, from, to))?;
        let mut cursor = answer::readings(self.connection.answer_to(request)?, into)?;
        while cursor != 0 {
            let command = rawdoc! {
                "getMore": cursor,
                "collection": self.collection.as_str(),
                "batchSize": self.batch_size,
                "$db": self.database.as_str(),
            };
            cursor = answer::readings(self.connection.reply(&command)?, into)?;
        }
        Ok(())
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.catch_up()?;
        let command = rawdoc! {
            "find": self.collection.as_str(),
            "filter": { "sensor": sensor_value(sensor) },
            "sort": { "ts": -1 },
            "projection": { "_id": 0, "ts": 1, "value": 1 },
            "limit": 1,
            "singleBatch": true,
            "$db": self.database.as_str(),
        };
        answer::readings(self.connection.reply(&command)?, into).map(drop)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        self.catch_up()?;
        let reckoned = rawdoc! {
            "_id": null,
            "count": { "$sum": 1 },
            "mean": { "$avg": "$value" },
            "min": { "$min": "$value" },
            "max": { "$max": "$value" },
        };
        let command = rawdoc! {
            "aggregate": self.collection.as_str(),
            "pipeline": [
                { "$match": { "sensor": sensor_value(sensor), "ts": { "$gte": from, "$lte": to } } },
                { "$group": reckoned },
            ],
            "cursor": {},
            "$db": self.database.as_str(),
        };
        answer::window(self.connection.command(&command)?)
    }

    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        self.output.clear();
        self.requests.clear();
        for (sensor, readings) in writes {
            let request = self.add_insert(*sensor, readings)?;
            self.requests.push(request);
        }
        self.send()?;
        let mut result = Ok(());
        for (number, (_, readings)) in writes.iter().enumerate() {
            // Each answer is taken, since otherwise it would be the answer to what is asked next.
            let done = if self.concern.acknowledged() {
                self.acknowledged(self.requests[number], readings.len())
            } else {
                Ok(())
            };
            if done.is_ok() {
                acknowledged(number);
            }
            result = result.and(done);
        }
        result
    }
}

impl Drop for MongoSession {
    /// Whoever drops the collection next would otherwise have it made anew by what is still to be carried out.
    fn drop(&mut self) {
        // A server that is gone carries nothing out any more.
        drop(self.catch_up());
    }
}

fn sensor_value(sensor: Uuid) -> Binary {
    Binary { subtype: BinarySubtype::Uuid, bytes: sensor.into_bytes().to_vec() }
}

/// Where in a layout a mark stands.
fn place_of(layout: &[u8], mark: &[u8]) -> usize {
    layout.windows(mark.len()).position(|window| window == mark).expect("a layout holds its marks")
}

/// The statement that writes: a document with what holds for all, and behind it the sequence of the readings.
struct Insert {
    head: Vec<u8>,
    row: Vec<u8>,
    sensor: usize,
    timestamp: usize,
    value: usize,
}

impl Insert {
    fn new(target: &Target) -> Self {
        let (flags, concern) = match target.concern {
            WriteConcern::Unacknowledged => (MORE_TO_COME, rawdoc! { "w": 0 }),
            WriteConcern::Memory => (0, rawdoc! { "w": 1, "j": false }),
            WriteConcern::Journal => (0, rawdoc! { "w": 1, "j": true }),
        };
        let command = rawdoc! {
            "insert": target.collection.as_str(),
            "ordered": true,
            "writeConcern": concern,
            "$db": target.database.as_str(),
        };
        let mark = f64::from_bits(SECOND_MARK as u64);
        // The server gives each document its `_id`, as it does for all that have none.
        let row = rawdoc! { "sensor": sensor_value(SENSOR_MARK), "ts": FIRST_MARK, "value": mark }.into_bytes();
        Self {
            head: connection::begin(flags, &command),
            sensor: place_of(&row, SENSOR_MARK.as_bytes()),
            timestamp: place_of(&row, &FIRST_MARK.to_le_bytes()),
            value: place_of(&row, &SECOND_MARK.to_le_bytes()),
            row,
        }
    }

    fn add_to(&mut self, output: &mut Vec<u8>, request: i32, sensor: Uuid, readings: &[Reading]) {
        let start = output.len();
        let sequence = 4 + SEQUENCE_NAME.len() + readings.len() * self.row.len();
        output.reserve(self.head.len() + 1 + sequence);
        output.extend_from_slice(&self.head);
        output.push(1);
        output.extend_from_slice(&(sequence as i32).to_le_bytes());
        output.extend_from_slice(SEQUENCE_NAME);
        put(&mut self.row, self.sensor, sensor.into_bytes());
        for reading in readings {
            put(&mut self.row, self.timestamp, reading.timestamp.to_le_bytes());
            put(&mut self.row, self.value, reading.value.to_le_bytes());
            output.extend_from_slice(&self.row);
        }
        connection::finish(output, start, request);
    }
}

/// The statement that reads.
struct Find {
    message: Vec<u8>,
    sensor: usize,
    from: usize,
    to: usize,
}

impl Find {
    fn new(target: &Target, batch_size: i32) -> Self {
        let command: RawDocumentBuf = rawdoc! {
            "find": target.collection.as_str(),
            "filter": { "sensor": sensor_value(SENSOR_MARK), "ts": { "$gte": FIRST_MARK, "$lte": SECOND_MARK } },
            "sort": { "ts": 1 },
            "projection": { "_id": 0, "ts": 1, "value": 1 },
            "batchSize": batch_size,
            "$db": target.database.as_str(),
        };
        let document: &RawDocument = &command;
        let message = connection::begin(0, document);
        Self {
            sensor: place_of(&message, SENSOR_MARK.as_bytes()),
            from: place_of(&message, &FIRST_MARK.to_le_bytes()),
            to: place_of(&message, &SECOND_MARK.to_le_bytes()),
            message,
        }
    }

    fn message(&mut self, request: i32, sensor: Uuid, from: i64, to: i64) -> &[u8] {
        put(&mut self.message, self.sensor, sensor.into_bytes());
        put(&mut self.message, self.from, from.to_le_bytes());
        put(&mut self.message, self.to, to.to_le_bytes());
        connection::finish(&mut self.message, 0, request);
        &self.message
    }
}

fn put<const BYTES: usize>(layout: &mut [u8], at: usize, value: [u8; BYTES]) {
    layout[at..at + BYTES].copy_from_slice(&value);
}
