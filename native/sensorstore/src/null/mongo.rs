//! The null server of MongoDB's protocol: writes are counted and not kept, reads are answered from the generator.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use uuid::Uuid;

use super::answer_all;
use crate::drivers::mongo::connection::{self, BODY, FRAMING, HEAD_BYTES, MORE_TO_COME};
use crate::generator::Answers;
use crate::messages::Messages;
use crate::store::Reading;

/// The version that it claims, in the protocol and to who asks.
const WIRE_VERSION: i32 = 17;
const VERSION: &str = "0.0.0 (null)";

/// `CommandNotFound`.
const COMMAND_NOT_FOUND: i32 = 59;

/// Serves one connection, until it is lost or asks what is not understood.
pub(super) fn converse(socket: TcpStream, answers: Arc<Answers>, rows: Arc<AtomicU64>) -> Option<()> {
    let mut client = Client { answers, rows, cursors: HashMap::new(), next_cursor: 0, readings: Vec::new() };
    answer_all(Messages::over(socket, FRAMING, None).ok()?, |message, output| client.take(message, output))
}

/// What the server knows of one connection.
struct Client {
    answers: Arc<Answers>,
    /// Of all clients, since the last drop.
    rows: Arc<AtomicU64>,
    /// What reads have left to be fetched.
    cursors: HashMap<i64, Vec<Reading>>,
    next_cursor: i64,
    readings: Vec<Reading>,
}

impl Client {
    /// Adds the answer to a message, if it wants one; `None` where the message is not understood.
    fn take(&mut self, message: &[u8], output: &mut Vec<u8>) -> Option<()> {
        let request = i32::from_le_bytes(*message[4..].first_chunk()?);
        let flags = u32::from_le_bytes(*message.get(HEAD_BYTES..)?.first_chunk()?);
        let (kind, sections) = message.get(BODY..)?.split_first()?;
        let length = u32::from_le_bytes(*sections.first_chunk()?) as usize;
        let command = RawDocument::from_bytes(sections.get(..length)?).ok().filter(|_| *kind == 0)?;
        let (name, _) = command.iter().next()?.ok()?;
        let answer = match name {
            "insert" => Answer::Document(self.insert(sections.get(length..)?)?),
            "find" => self.find(command)?,
            "getMore" => {
                let cursor = command.get_i64("getMore").ok()?;
                self.readings = self.cursors.remove(&cursor)?;
                self.batch(command, "nextBatch")
            }
            name => Answer::Document(self.other(name)),
        };
        if flags & MORE_TO_COME != 0 {
            return Some(());
        }
        let start = output.len();
        match answer {
            Answer::Document(document) => output.extend_from_slice(&connection::begin(0, &document)),
            Answer::Batch { field, count, cursor } => {
                output.extend_from_slice(&connection::begin(0, &RawDocumentBuf::new()));
                let document = output.len() - RawDocumentBuf::new().as_bytes().len();
                output.truncate(document);
                append_batch(output, field, &self.readings[..count], cursor);
            }
        }
        connection::finish(output, start, 0);
        output[start + 8..start + 12].copy_from_slice(&request.to_le_bytes());
        Some(())
    }

    fn insert(&mut self, sequence: &[u8]) -> Option<RawDocumentBuf> {
        let (1, sequence) = sequence.split_first()? else { return None };
        let name_end = 4 + sequence.get(4..)?.iter().position(|byte| *byte == 0)?;
        let mut documents = sequence.get(name_end + 1..)?;
        let mut count = 0_i32;
        while !documents.is_empty() {
            let length = u32::from_le_bytes(*documents.first_chunk()?) as usize;
            documents = documents.get(length.max(4)..)?;
            count += 1;
        }
        self.rows.fetch_add(count as u64, Ordering::Relaxed);
        Some(rawdoc! { "n": count, "ok": 1.0 })
    }

    fn find(&mut self, command: &RawDocument) -> Option<Answer> {
        let filter = command.get_document("filter").ok()?;
        let sensor = Uuid::from_slice(filter.get_binary("sensor").ok()?.bytes).ok()?;
        let span = filter.get_document("ts").ok()?;
        let (from, to) = (span.get_i64("$gte").ok()?, span.get_i64("$lte").ok()?);
        self.answers.read(sensor, from, to, &mut self.readings);
        Some(self.batch(command, "firstBatch"))
    }

    /// As many of the readings as fit in a batch; a cursor keeps the others.
    fn batch(&mut self, command: &RawDocument, field: &'static str) -> Answer {
        let size = command.get_i32("batchSize").ok().and_then(|size| usize::try_from(size).ok());
        let count = size.unwrap_or(usize::MAX).min(self.readings.len());
        let mut cursor = 0;
        if count < self.readings.len() {
            self.next_cursor += 1;
            cursor = self.next_cursor;
            self.cursors.insert(cursor, self.readings[count..].to_vec());
        }
        Answer::Batch { field, count, cursor }
    }

    fn other(&mut self, name: &str) -> RawDocumentBuf {
        let rows = self.rows.load(Ordering::Relaxed) as i64;
        match name {
            "hello" => rawdoc! { "isWritablePrimary": true, "maxWireVersion": WIRE_VERSION, "ok": 1.0 },
            "buildInfo" => rawdoc! { "version": VERSION, "ok": 1.0 },
            "getCmdLineOpts" => rawdoc! { "parsed": {}, "ok": 1.0 },
            "listCollections" => rawdoc! { "cursor": { "firstBatch": [], "id": 0_i64 }, "ok": 1.0 },
            "drop" | "create" => {
                self.rows.store(0, Ordering::Relaxed);
                rawdoc! { "ok": 1.0 }
            }
            "createIndexes" | "getParameter" | "ping" => rawdoc! { "ok": 1.0 },
            "count" => rawdoc! { "n": rows, "ok": 1.0 },
            "aggregate" => rawdoc! { "cursor": { "firstBatch": [{ "n": rows }], "id": 0_i64 }, "ok": 1.0 },
            name => {
                let message = format!("no such command: '{name}'");
                rawdoc! { "ok": 0.0, "errmsg": message, "code": COMMAND_NOT_FOUND }
            }
        }
    }
}

enum Answer {
    Document(RawDocumentBuf),
    /// So many of the client's readings.
    Batch {
        field: &'static str,
        count: usize,
        cursor: i64,
    },
}

/// A cursor's batch, laid out by hand: it would otherwise cost more than the client's reading of it.
fn append_batch(output: &mut Vec<u8>, field: &str, readings: &[Reading], cursor: i64) {
    let answer = open(output);
    element(output, 3, "cursor");
    let inner = open(output);
    element(output, 4, field);
    let array = open(output);
    for (number, reading) in readings.iter().enumerate() {
        output.push(3);
        write!(output, "{number}\0").expect("memory takes all that is written");
        let row = open(output);
        element(output, 0x12, "ts");
        output.extend_from_slice(&reading.timestamp.to_le_bytes());
        element(output, 1, "value");
        output.extend_from_slice(&reading.value.to_le_bytes());
        close(output, row);
    }
    close(output, array);
    element(output, 0x12, "id");
    output.extend_from_slice(&cursor.to_le_bytes());
    close(output, inner);
    element(output, 1, "ok");
    output.extend_from_slice(&1.0_f64.to_le_bytes());
    close(output, answer);
}

fn element(output: &mut Vec<u8>, kind: u8, name: &str) {
    output.push(kind);
    output.extend_from_slice(name.as_bytes());
    output.push(0);
}

fn open(output: &mut Vec<u8>) -> usize {
    output.extend_from_slice(&[0; 4]);
    output.len() - 4
}

fn close(output: &mut Vec<u8>, start: usize) {
    output.push(0);
    let length = (output.len() - start) as u32;
    output[start..start + 4].copy_from_slice(&length.to_le_bytes());
}
