//! The null server of Cassandra's protocol: writes are counted and not kept, reads are answered from the generator.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use super::answer_all;
use crate::drivers::cassandra::wire::{self, FRAMING, Fields, HEAD_BYTES, RESPONSE, flag, metadata, opcode, result};
use crate::generator::Answers;
use crate::messages::Messages;
use crate::store::Reading;

/// The version that it claims to who asks.
const VERSION: &str = "0.0.0 (null)";

/// The identifiers of the prepared statements, as long as Cassandra's.
const INSERT: [u8; 16] = [b'w'; 16];
const SELECT: [u8; 16] = [b'r'; 16];

/// The types of columns.
const BIGINT: u16 = 0x0002;
const VARCHAR: u16 = 0x000d;

/// Serves one connection, until it is lost or asks what is not understood.
pub(super) fn converse(socket: TcpStream, answers: Arc<Answers>, rows: Arc<AtomicU64>) -> Option<()> {
    let mut client = Client { answers, rows, readings: Vec::new() };
    answer_all(Messages::over(socket, FRAMING, None).ok()?, |frame, output| client.take(frame, output))
}

/// What the server knows of one connection.
struct Client {
    answers: Arc<Answers>,
    /// Of all clients, since the last drop.
    rows: Arc<AtomicU64>,
    readings: Vec<Reading>,
}

impl Client {
    /// Adds the answer to a frame; `None` where the frame is not understood.
    fn take(&mut self, frame: &[u8], output: &mut Vec<u8>) -> Option<()> {
        let (head, body) = frame.split_at(HEAD_BYTES);
        let mut fields = Fields::new(body);
        let asked = head[4];
        let answered = match asked {
            opcode::STARTUP => opcode::READY,
            _ => opcode::RESULT,
        };
        let start = wire::begin(output, RESPONSE, i16::from_be_bytes([head[2], head[3]]), answered);
        match asked {
            opcode::STARTUP => {}
            opcode::QUERY => self.query(fields.long_string()?, output),
            opcode::PREPARE => {
                let reads = fields.long_string()?.starts_with("SELECT");
                put_int(output, result::PREPARED);
                wire::put_short_bytes(output, if reads { &SELECT } else { &INSERT });
            }
            opcode::EXECUTE if fields.short_bytes()? == SELECT => self.read(&mut fields, output)?,
            opcode::EXECUTE => self.written(1, output),
            opcode::BATCH => {
                let statements = fields.bytes(3)?;
                self.written(u16::from_be_bytes([statements[1], statements[2]]), output);
            }
            _ => return None,
        }
        wire::finish(output, start);
        Some(())
    }

    fn written(&mut self, rows: u16, output: &mut Vec<u8>) {
        self.rows.fetch_add(rows.into(), Ordering::Relaxed);
        put_int(output, result::VOID);
    }

    fn query(&mut self, statement: &str, output: &mut Vec<u8>) {
        let rows = self.rows.load(Ordering::Relaxed);
        if statement.starts_with("SELECT COUNT") {
            put_answer(output, BIGINT, Some(&rows.to_be_bytes()));
        } else if statement.starts_with("SELECT release_version") {
            put_answer(output, VARCHAR, Some(VERSION.as_bytes()));
        } else if statement.starts_with("SELECT") {
            put_answer(output, VARCHAR, None);
        } else {
            if statement.starts_with("DROP") {
                self.rows.store(0, Ordering::Relaxed);
            }
            put_int(output, result::SCHEMA_CHANGE);
        }
    }

    /// Behind the identifier of the statement: its consistency, flags, three values, page size and paging state.
    fn read(&mut self, fields: &mut Fields<'_>, output: &mut Vec<u8>) -> Option<()> {
        fields.short()?;
        let flags = fields.byte()?;
        fields.short()?;
        let sensor = Uuid::from_slice(fields.value()?).ok()?;
        let from = i64::from_be_bytes(fields.value()?.try_into().ok()?);
        let to = i64::from_be_bytes(fields.value()?.try_into().ok()?);
        let page = usize::try_from(fields.int()?).ok()?;
        // A page begins at a timestamp.
        let from =
            if flags & flag::PAGING_STATE == 0 { from } else { i64::from_be_bytes(fields.value()?.try_into().ok()?) };
        self.answers.read(sensor, from, to, &mut self.readings);
        let next = self.readings.get(page).map(|reading| reading.timestamp);
        self.readings.truncate(page);
        put_int(output, result::ROWS);
        put_int(output, metadata::NONE | next.map_or(0, |_| metadata::MORE_PAGES));
        put_int(output, 2);
        if let Some(next) = next {
            wire::put_value(output, &next.to_be_bytes());
        }
        put_int(output, self.readings.len() as i32);
        for reading in &self.readings {
            wire::put_value(output, &reading.timestamp.to_be_bytes());
            wire::put_value(output, &reading.value.to_be_bytes());
        }
        Some(())
    }
}

/// One row of one column, or none.
fn put_answer(output: &mut Vec<u8>, kind: u16, value: Option<&[u8]>) {
    put_int(output, result::ROWS);
    put_int(output, metadata::GLOBAL_TABLE);
    put_int(output, 1);
    for name in ["null", "null", "column"] {
        wire::put_string(output, name);
    }
    output.extend_from_slice(&kind.to_be_bytes());
    put_int(output, value.map_or(0, |_| 1));
    if let Some(value) = value {
        wire::put_value(output, value);
    }
}

fn put_int(output: &mut Vec<u8>, number: i32) {
    output.extend_from_slice(&number.to_be_bytes());
}
