//! The null server of PostgreSQL's protocol, which QuestDB's clients speak as well.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use super::answer_all;
use crate::drivers::postgres::dialect::Dialect;
use crate::drivers::postgres::wire::{FRAMING, HEAD_BYTES};
use crate::generator::Answers;
use crate::messages::{Framing, Messages};
use crate::store::Reading;

/// The first message has no letter: only its length, itself included.
const STARTUP: Framing = Framing { head: 4, length: startup_bytes };

/// No message of ours is longer, and nothing that is no PostgreSQL client shall make us allocate.
const LONGEST_STARTUP_BYTES: usize = 10_000;

fn startup_bytes(head: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(head.try_into().ok()?) as usize;
    (8..LONGEST_STARTUP_BYTES).contains(&length).then_some(length)
}

/// Serves one connection, until it is lost or asks what is not understood.
pub(super) fn converse(socket: TcpStream, answers: Arc<Answers>, rows: Arc<AtomicU64>) -> Option<()> {
    let mut messages = Messages::over(socket, STARTUP, None).ok()?;
    messages.receive().ok()?;
    messages.frame_by(FRAMING);
    let mut output = Vec::new();
    put(&mut output, b'R', &0_i32.to_be_bytes());
    put(&mut output, b'S', b"server_version\x000.0 (null)\0");
    ready(&mut output);
    messages.send(&output).ok()?;
    let mut client =
        Client { answers, rows, statements: HashMap::new(), portal: None, copied: 0, readings: Vec::new() };
    answer_all(messages, |message, output| client.take(message[0], &message[HEAD_BYTES..], output))
}

/// What the server knows of one connection.
struct Client {
    answers: Arc<Answers>,
    /// Written by all clients since the last CREATE.
    rows: Arc<AtomicU64>,
    statements: HashMap<Vec<u8>, Statement>,
    portal: Option<Portal>,
    /// Rows of the COPY that is going on.
    copied: usize,
    readings: Vec<Reading>,
}

impl Client {
    /// Answers one message; `None` for one that cannot be answered, or that ends the connection.
    fn take(&mut self, tag: u8, body: &[u8], output: &mut Vec<u8>) -> Option<()> {
        match tag {
            b'P' => {
                let (name, rest) = string(body)?;
                let (text, types) = string(rest)?;
                self.statements.insert(name.to_vec(), Statement::of(text, types));
                put(output, b'1', &[]);
            }
            b'B' => {
                let (_, rest) = string(body)?;
                let (name, rest) = string(rest)?;
                self.portal = Some(Portal::bound(*self.statements.get(name)?, rest)?);
                put(output, b'2', &[]);
            }
            b'E' => self.execute(output)?,
            b'd' => self.copied += copied_rows(body)?,
            b'c' => {
                let copied = std::mem::take(&mut self.copied);
                self.wrote("COPY", copied, output);
            }
            b'S' => ready(output),
            b'Q' => {
                let (text, _) = string(body)?;
                self.query(text, output);
                ready(output);
            }
            _ => return None,
        }
        Some(())
    }

    fn wrote(&self, what: &str, rows: usize, output: &mut Vec<u8>) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        complete(output, &format!("{what} {rows}"));
    }

    /// Statements as text: what sets up, and what is written so.
    fn query(&self, text: &[u8], output: &mut Vec<u8>) {
        if text.starts_with(b"SELECT count(") {
            let count = self.rows.load(Ordering::Relaxed).to_string();
            put(output, b'D', &[&[0, 1], &(count.len() as u32).to_be_bytes()[..], count.as_bytes()].concat());
            complete(output, "SELECT 1");
        } else if text.starts_with(b"SELECT suspended, ") {
            // QuestDB's log is applied.
            put(output, b'D', b"\0\x03\0\0\0\x01f\0\0\0\x011\0\0\0\x011");
            complete(output, "SELECT 1");
        } else if text.starts_with(b"CREATE TABLE") {
            self.rows.store(0, Ordering::Relaxed);
            complete(output, "CREATE TABLE");
        } else {
            self.wrote("INSERT 0", inserted_rows(text), output);
        }
    }

    fn execute(&mut self, output: &mut Vec<u8>) -> Option<()> {
        match self.portal.take()? {
            Portal::Insert { rows } => self.wrote("INSERT 0", rows, output),
            // Binary, three columns of it.
            Portal::Copy => put(output, b'G', &[1, 0, 3, 0, 1, 0, 1, 0, 1]),
            Portal::Read { sensor, from, to, dialect } => {
                self.answers.read(sensor, dialect.milliseconds(from), dialect.milliseconds(to), &mut self.readings);
                for reading in &self.readings {
                    let mut row = [0, 2, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
                    row[6..14].copy_from_slice(&dialect.binary_time(reading.timestamp).to_be_bytes());
                    row[18..].copy_from_slice(&reading.value.to_be_bytes());
                    put(output, b'D', &row);
                }
                complete(output, &format!("SELECT {}", self.readings.len()));
            }
        }
        Some(())
    }
}

/// A string that ends with a zero, and what is behind it.
fn string(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = body.iter().position(|byte| *byte == 0)?;
    Some((&body[..end], &body[end + 1..]))
}

fn put(output: &mut Vec<u8>, tag: u8, body: &[u8]) {
    output.push(tag);
    output.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
    output.extend_from_slice(body);
}

fn complete(output: &mut Vec<u8>, what: &str) {
    put(output, b'C', format!("{what}\0").as_bytes());
}

fn ready(output: &mut Vec<u8>) {
    put(output, b'Z', b"I");
}

/// A prepared statement: what it does, as far as a null server has to know, told by its first word and its types.
#[derive(Clone, Copy)]
enum Statement {
    Insert,
    Copy,
    Read(Dialect),
}

impl Statement {
    /// From its text, and its parameters' types as they stand in `Parse`.
    fn of(text: &[u8], types: &[u8]) -> Self {
        match text.first() {
            Some(b'S') => {
                let time = Dialect::Questdb.time_type().to_be_bytes();
                let questdb = types.get(2..).is_some_and(|types| types.chunks(4).any(|number| number == time));
                Self::Read(if questdb { Dialect::Questdb } else { Dialect::Postgres })
            }
            Some(b'C') => Self::Copy,
            _ => Self::Insert,
        }
    }
}

/// A statement with its parameters.
enum Portal {
    Insert { rows: usize },
    Copy,
    Read { sensor: Uuid, from: i64, to: i64, dialect: Dialect },
}

impl Portal {
    /// From what is in `Bind` behind the names; `None` where it makes no sense.
    fn bound(statement: Statement, body: &[u8]) -> Option<Self> {
        let (formats, body) = count(body)?;
        let (parameters, mut rest) = count(body.get(2 * formats..)?)?;
        let mut take = || {
            let (length, behind) = rest.split_first_chunk()?;
            let (parameter, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = behind;
            Some(parameter)
        };
        Some(match statement {
            Statement::Copy => Self::Copy,
            Statement::Insert => {
                take()?;
                // An array says its length behind its dimensions, its flags and its type.
                let rows =
                    take()?.get(12..16).map_or(1, |length| u32::from_be_bytes(length.try_into().unwrap_or_default()));
                Self::Insert { rows: rows as usize }
            }
            Statement::Read(dialect) => {
                let sensor = take()?;
                let sensor = Uuid::from_slice(sensor).or_else(|_| Uuid::try_parse_ascii(sensor)).ok()?;
                let from = i64::from_be_bytes(take()?.try_into().ok()?);
                let to = if parameters > 2 { i64::from_be_bytes(take()?.try_into().ok()?) } else { from };
                Self::Read { sensor, from, to, dialect }
            }
        })
    }
}

fn count(body: &[u8]) -> Option<(usize, &[u8])> {
    body.split_first_chunk().map(|(count, rest)| (usize::from(u16::from_be_bytes(*count)), rest))
}

/// The rows of one message of a binary COPY of three columns of 16, 8 and 8 bytes, header and trailer within.
fn copied_rows(body: &[u8]) -> Option<usize> {
    const ROW_BYTES: usize = 2 + (4 + 16) + (4 + 8) + (4 + 8);
    Some(body.len().checked_sub(19 + 2)? / ROW_BYTES)
}

/// The rows of an INSERT as text; none of any other statement.
fn inserted_rows(text: &[u8]) -> usize {
    let values = b" VALUES ";
    let start = text.windows(values.len()).position(|window| window == values);
    start.map_or(0, |start| text[start..].split(|byte| *byte == b'(').count() - 1)
}
