//! A blocking connection in PostgreSQL's frontend/backend protocol 3.0, made for the least work of the client per
//! operation: what belongs together goes out in one `write`, an answer comes in one `read`, and nothing polls.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{
    AUTHENTICATION_TAG, BACKEND_KEY_DATA_TAG, COMMAND_COMPLETE_TAG, DATA_ROW_TAG, ERROR_RESPONSE_TAG,
    NOTICE_RESPONSE_TAG, NOTIFICATION_RESPONSE_TAG, PARAMETER_STATUS_TAG, READY_FOR_QUERY_TAG,
};
use postgres_protocol::message::frontend;

use super::sqlstate;
use crate::drivers::SET_UP_FACTOR;
use crate::failure::{Failure, Kind};
use crate::messages::{Framing, Messages};

/// A letter, and the length of everything behind it (PostgreSQL's documentation, 55.7).
pub(crate) const FRAMING: Framing = Framing { head: HEAD_BYTES, length: message_bytes };
/// Of that head.
pub(crate) const HEAD_BYTES: usize = 5;

/// A message is never longer than this: what claims to be is no PostgreSQL.
const LONGEST_MESSAGE_BYTES: usize = 1 << 30;

/// Where and as whom to connect.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// A name or an address.
    pub(crate) host: String,
    /// TCP.
    pub(crate) port: u16,
    /// Who connects.
    pub(crate) user: String,
    /// Its password; empty where none is asked for.
    pub(crate) password: String,
    /// The database's name.
    pub(crate) database: String,
    /// Settings of the session, as the server names them.
    pub(crate) settings: BTreeMap<String, String>,
    /// How long a connection, and then each answer, may take.
    pub(crate) timeout: Duration,
}

/// One message of the server.
pub(crate) struct Message<'input> {
    /// Which kind: the letter in the protocol.
    pub(crate) tag: u8,
    /// What it holds.
    pub(crate) body: &'input [u8],
}

/// A row as text, NULL as `None`.
pub(crate) type TextRow = Vec<Option<String>>;

/// A connection that is ready for queries.
pub(crate) struct Connection {
    messages: Messages,
    /// What is to be sent, gathered by the caller with [`frontend`]'s functions.
    pub(crate) output: BytesMut,
}

impl Connection {
    /// Connects and authenticates: trust, password, md5 or SCRAM-SHA-256.
    pub(crate) fn open(target: &Target) -> Result<Self, Failure> {
        Self::over(Messages::connect(&target.host, target.port, FRAMING, target.timeout)?, target)
    }

    fn over(messages: Messages, target: &Target) -> Result<Self, Failure> {
        let mut connection = Self { messages, output: BytesMut::new() };
        connection.start(target)?;
        Ok(connection)
    }

    /// The same for statements of setting up, that may take long.
    pub(crate) fn patient(target: &Target) -> Result<Self, Failure> {
        let mut connection = Self::open(target)?;
        connection.messages.wait_for(target.timeout * SET_UP_FACTOR)?;
        Ok(connection)
    }

    fn start(&mut self, target: &Target) -> Result<(), Failure> {
        let fixed = [("user", &*target.user), ("database", &*target.database), ("application_name", "virtgauge")];
        let settings = target.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        frontend::startup_message(fixed.into_iter().chain(settings), &mut self.output).map_err(unsendable)?;
        self.send()?;
        let mut scram = None;
        loop {
            let message = self.next()?;
            match message.tag {
                AUTHENTICATION_TAG => {
                    let body = message.body.to_vec();
                    self.authenticate(target, &body, &mut scram)?;
                }
                BACKEND_KEY_DATA_TAG | NOTICE_RESPONSE_TAG | PARAMETER_STATUS_TAG => {}
                ERROR_RESPONSE_TAG => return Err(sqlstate::failure(message.body)),
                READY_FOR_QUERY_TAG => return Ok(()),
                tag => return Err(malformed(tag)),
            }
        }
    }

    /// Answers one request of the server for authentication (PostgreSQL's documentation, 55.2.1).
    fn authenticate(&mut self, target: &Target, body: &[u8], scram: &mut Option<ScramSha256>) -> Result<(), Failure> {
        let (method, rest) = body.split_first_chunk().ok_or_else(|| malformed(AUTHENTICATION_TAG))?;
        let refused = |error: io::Error| Failure::new(Kind::Denied, format!("the server's authentication: {error}"));
        match (i32::from_be_bytes(*method), scram.as_mut()) {
            (0, _) => return Ok(()),
            (3, _) => frontend::password_message(target.password.as_bytes(), &mut self.output).map_err(unsendable)?,
            (5, _) => {
                let salt = rest.try_into().map_err(|_| malformed(AUTHENTICATION_TAG))?;
                let hash = md5_hash(target.user.as_bytes(), target.password.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), &mut self.output).map_err(unsendable)?;
            }
            (10, _) => {
                if !rest.split(|byte| *byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) {
                    return Err(Failure::new(Kind::Unsupported, "the server offers no SCRAM-SHA-256"));
                }
                let state = ScramSha256::new(target.password.as_bytes(), ChannelBinding::unsupported());
                let output = &mut self.output;
                frontend::sasl_initial_response(SCRAM_SHA_256, state.message(), output).map_err(unsendable)?;
                *scram = Some(state);
            }
            (11, Some(state)) => {
                state.update(rest).map_err(refused)?;
                frontend::sasl_response(state.message(), &mut self.output).map_err(unsendable)?;
            }
            (12, Some(state)) => return state.finish(rest).map_err(refused),
            (method, _) => {
                let message = format!("the server asks for authentication method {method}");
                return Err(Failure::new(Kind::Unsupported, message));
            }
        }
        self.send()
    }

    /// Sends what is gathered in [`Self::output`], in one `write` where the socket takes it.
    pub(crate) fn send(&mut self) -> Result<(), Failure> {
        let sent = self.messages.send(&self.output);
        self.output.clear();
        sent
    }

    fn next(&mut self) -> Result<Message<'_>, Failure> {
        let message = self.messages.receive()?;
        Ok(Message { tag: message[0], body: &message[HEAD_BYTES..] })
    }

    /// Takes messages up to the next `ReadyForQuery`, handing each to `take`; the first error among them is what comes
    /// of it, and the connection can be used again.
    pub(crate) fn answer(&mut self, mut take: impl FnMut(&Message<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut result = Ok(());
        loop {
            let message = self.next()?;
            match message.tag {
                READY_FOR_QUERY_TAG => return result,
                // A fatal one is not followed by `ReadyForQuery` but by the end of the connection.
                ERROR_RESPONSE_TAG if sqlstate::fatal(message.body) => return Err(sqlstate::failure(message.body)),
                ERROR_RESPONSE_TAG => result = result.and(Err(sqlstate::failure(message.body))),
                NOTICE_RESPONSE_TAG | NOTIFICATION_RESPONSE_TAG | PARAMETER_STATUS_TAG => {}
                _ if result.is_ok() => result = take(&message),
                _ => {}
            }
        }
    }

    /// One or several statements as text, with the rows of their results.
    pub(crate) fn query(&mut self, statements: &str) -> Result<Vec<TextRow>, Failure> {
        frontend::query(statements, &mut self.output).map_err(unsendable)?;
        self.send()?;
        let mut rows = Vec::new();
        self.answer(|message| {
            if message.tag == DATA_ROW_TAG {
                rows.push(text_row(message.body).ok_or_else(|| malformed(DATA_ROW_TAG))?);
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// The one number that a statement as text brings.
    pub(crate) fn count(&mut self, statement: &str) -> Result<u64, Failure> {
        let rows = self.query(statement)?;
        let count = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
        count.ok_or_else(|| Failure::new(Kind::Database, "the server's count is no number"))
    }

    /// The answer to one statement that writes: how many rows the server says it has written.
    pub(crate) fn rows_written(&mut self) -> Result<usize, Failure> {
        let mut rows = 0;
        self.answer(|message| {
            if message.tag == COMMAND_COMPLETE_TAG {
                let completed = completed_rows(message.body).ok_or_else(|| malformed(COMMAND_COMPLETE_TAG))?;
                rows = completed.saturating_add(rows);
            }
            Ok(())
        })?;
        Ok(rows)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.output.clear();
        frontend::terminate(&mut self.output);
        // The server finds out by itself if this does not reach it.
        drop(self.send());
    }
}

fn message_bytes(head: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(head[1..].try_into().ok()?) as usize;
    (4..LONGEST_MESSAGE_BYTES).contains(&length).then_some(1 + length)
}

/// The body of `CommandComplete`: "INSERT 0 1000" or "COPY 1000".
fn completed_rows(body: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(body).ok()?.trim_end_matches('\0');
    text.rsplit(' ').next()?.parse().ok()
}

fn text_row(body: &[u8]) -> Option<TextRow> {
    let (columns, mut rest) = body.split_first_chunk()?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*columns) {
        let (length, after) = rest.split_first_chunk()?;
        // NULL has the length -1.
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            row.push(None);
            rest = after;
            continue;
        };
        row.push(Some(String::from_utf8_lossy(after.get(..length)?).into_owned()));
        rest = &after[length..];
    }
    Some(row)
}

fn malformed(tag: u8) -> Failure {
    Failure::new(Kind::Database, format!("the server's message '{}' makes no sense", char::from(tag).escape_default()))
}

/// What cannot be put into a message: a zero byte in a string, or more than a message can hold.
pub(crate) fn unsendable(error: impl Display) -> Failure {
    Failure::new(Kind::BadRequest, format!("this cannot be sent to PostgreSQL: {error}"))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::dialect::Dialect;
    use super::super::session::{PostgresSession, WriteMode};
    use super::*;
    use crate::store::{Reading, Session};

    #[test]
    fn whatever_a_server_says_is_an_answer_or_a_failure() {
        fuzz::fuzz("postgres", include_str!("../../../../fuzz/corpus/postgres.txt"), |input| {
            let Some((choice, stream)) = input.split_first() else { return };
            let _ = conversation(*choice, stream);
        });
    }

    fn conversation(choice: u8, stream: &[u8]) -> Result<(), Failure> {
        let target = Target {
            host: "host".into(),
            port: 1,
            user: "user".into(),
            password: "password".into(),
            database: "database".into(),
            settings: BTreeMap::new(),
            timeout: Duration::from_secs(1),
        };
        let mut connection = Connection::over(Messages::holding(stream, FRAMING), &target)?;
        if choice & 1 == 0 {
            connection.query("SELECT 1")?;
            return connection.count("SELECT count(*)").map(drop);
        }
        let dialect = if choice & 2 == 0 { Dialect::Postgres } else { Dialect::Questdb };
        let mut session = PostgresSession::new(connection, "readings", WriteMode::Insert, dialect)?;
        let (sensor, reading, mut read) = (Uuid::nil(), Reading { timestamp: 1, value: 0.5 }, Vec::new());
        session.read(sensor, 0, 9, &mut read)?;
        session.window(sensor, 0, 9)?;
        session.write(sensor, &[reading])?;
        session.write_pipelined(&[(sensor, &[reading]), (sensor, &[reading])], &mut |_| ())
    }
}
