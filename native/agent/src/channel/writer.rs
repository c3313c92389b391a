//! The agent's messages, numbered and written one at a time whichever thread sends them.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_bytes::Bytes;

use super::frame;
use super::message::PROTOCOL;
use crate::clocks::Clocks;
use crate::facts::Identity;
use crate::failure::{Code, Failure};

/// Sends messages; shared by all threads of the session.
pub struct Writer {
    sending: Mutex<Sending>,
}

struct Sending {
    output: Box<dyn Write + Send>,
    next_seq: u64,
    buffer: Vec<u8>,
}

#[derive(Serialize)]
struct Envelope<'a, Fields> {
    seq: u64,
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    fields: Fields,
}

#[derive(Serialize)]
struct Welcome<'a> {
    protocol: u32,
    token: &'a str,
    agent_version: &'a str,
    agent_sha256: Option<&'a str>,
    pid: u32,
    init: bool,
}

#[derive(Serialize)]
struct Started<'a> {
    id: u64,
    clocks: &'a Clocks,
}

#[derive(Serialize)]
struct Progress {
    id: u64,
    done: f64,
}

#[derive(Serialize)]
struct Samples<'a> {
    id: u64,
    series: &'a str,
    values: &'a Bytes,
}

#[derive(Serialize)]
struct Answer<Value> {
    id: u64,
    value: Value,
}

#[derive(Serialize)]
struct Error<'a> {
    id: Option<u64>,
    code: Code,
    message: &'a str,
    errno: Option<i32>,
}

impl Writer {
    /// Sends through this output, numbering from zero.
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        Self { sending: Mutex::new(Sending { output, next_seq: 0, buffer: Vec::new() }) }
    }

    /// The answer to `hello`.
    pub fn welcome(&self, token: &str, identity: &Identity) -> io::Result<()> {
        let fields = Welcome {
            protocol: PROTOCOL,
            token,
            agent_version: identity.version,
            agent_sha256: identity.sha256.as_deref(),
            pid: std::process::id(),
            init: identity.init,
        };
        self.send("welcome", fields)
    }

    /// A probe begins to measure.
    pub fn started(&self, id: u64, clocks: &Clocks) -> io::Result<()> {
        self.send("started", Started { id, clocks })
    }

    /// How much of a probe is done, 0 to 1.
    pub fn progress(&self, id: u64, done: f64) -> io::Result<()> {
        self.send("progress", Progress { id, done: done.clamp(0.0, 1.0) })
    }

    /// Raw values of a probe.
    pub fn samples(&self, id: u64, series: &str, values: &[i64]) -> io::Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.send("samples", Samples { id, series, values: Bytes::new(&bytes) })
    }

    /// The result of a request: anything that serializes as a map.
    pub fn result<Value: Serialize>(&self, id: u64, value: Value) -> io::Result<()> {
        self.send("result", Answer { id, value })
    }

    /// Why a request, or with no id the session, failed.
    pub fn error(&self, id: Option<u64>, failure: &Failure) -> io::Result<()> {
        let Failure { code, message, errno } = failure;
        self.send("error", Error { id, code: *code, message, errno: *errno })
    }

    fn send<Fields: Serialize>(&self, kind: &str, fields: Fields) -> io::Result<()> {
        const KEPT_CAPACITY: usize = 65_536;
        let mut guard = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let Sending { output, next_seq, buffer } = &mut *guard;
        buffer.clear();
        buffer.shrink_to(KEPT_CAPACITY);
        buffer.extend_from_slice(&[0; 4]);
        let envelope = Envelope { seq: *next_seq, kind, fields };
        rmp_serde::encode::write_named(buffer, &envelope).map_err(io::Error::other)?;
        if !frame::seal(buffer) {
            // Nothing of it was sent, so the session can go on, and says why instead.
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("a {kind} of {} bytes", buffer.len())));
        }
        output.write_all(buffer)?;
        output.flush()?;
        *next_seq += 1;
        Ok(())
    }

    /// Sends what a request came to.
    pub fn outcome<Value: Serialize>(&self, id: u64, outcome: Result<Value, Failure>) -> io::Result<()> {
        match outcome {
            Ok(value) => match self.result(id, value) {
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    self.error(Some(id), &Failure::new(Code::Internal, error.to_string()))
                }
                sent => sent,
            },
            Err(failure) => self.error(Some(id), &failure),
        }
    }
}
