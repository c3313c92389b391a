//! A connection to Cassandra: frames that carry requests, and the frames that answer them.

use std::time::Duration;

use super::answer::{self, malformed};
use super::wire::{self, CONSISTENCY_ONE, FRAMING, HEAD_BYTES, REQUEST, RESPONSE, opcode, result};
use crate::drivers::uri;
use crate::failure::{Failure, Kind};
use crate::messages::Messages;
use crate::spec::StoreSpec;

/// The port of an existing server whose URI names none.
const DEFAULT_PORT: u16 = 9042;

/// Rows of a page where the option does not say otherwise: more than any statement reads here, so that it is one page.
const PAGE_ROWS: u64 = 10_000;

/// Where a Cassandra is, and as whom and how to speak to it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    /// User and password.
    pub(super) credentials: Option<(String, String)>,
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) page_rows: i32,
    pub(super) timeout: Duration,
}

impl Target {
    /// From a specification; `cassandra://user:password@host:port/keyspace` is a URI of ours, since
    /// Cassandra has none.
    ///
    /// # Errors
    /// `bad-request` names what is missing or wrong.
    pub(super) fn new(spec: &StoreSpec) -> Result<Self, Failure> {
        spec.only_options(&["durable_writes", "page_rows"])?;
        let wrong = |what: &str| Failure::new(Kind::BadRequest, what.to_owned());
        let page_rows = spec.number("page_rows")?.unwrap_or(PAGE_ROWS);
        let page_rows = i32::try_from(page_rows).ok().filter(|rows| *rows > 0);
        let page_rows = page_rows.ok_or_else(|| wrong("store.options.page_rows is no number of rows"))?;
        let server = uri::server(spec, &["cassandra"], DEFAULT_PORT)?;
        // The keyspace goes into statements unquoted, wherever its name is from.
        let named = StoreSpec { database: server.database, ..spec.clone() };
        Ok(Self {
            host: server.host,
            port: server.port,
            credentials: server.user.zip(server.password),
            keyspace: named.database()?.to_owned(),
            table: spec.table()?.to_owned(),
            page_rows,
            timeout: spec.timeout(),
        })
    }

    /// The table's name with its keyspace.
    pub(super) fn table_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.table)
    }
}

/// One, authenticated.
pub(super) struct Connection {
    messages: Messages,
    /// What is to be sent, gathered by [`wire`]'s functions.
    pub(super) output: Vec<u8>,
}

impl Connection {
    /// Connects, and authenticates where the server asks for it.
    ///
    /// # Errors
    /// `refused`, `denied`, `timeout`.
    pub(super) fn open(target: &Target) -> Result<Self, Failure> {
        Self::over(Messages::connect(&target.host, target.port, FRAMING, target.timeout)?, target)
    }

    fn over(messages: Messages, target: &Target) -> Result<Self, Failure> {
        let mut connection = Self { messages, output: Vec::new() };
        let start = connection.begin(opcode::STARTUP);
        connection.output.extend_from_slice(&1_u16.to_be_bytes());
        wire::put_string(&mut connection.output, "CQL_VERSION");
        wire::put_string(&mut connection.output, "3.0.0");
        if connection.exchange(start)?.0 == opcode::AUTHENTICATE {
            let Some((user, password)) = &target.credentials else {
                return Err(Failure::new(Kind::Denied, "the server asks for user and password"));
            };
            let start = connection.begin(opcode::AUTH_RESPONSE);
            wire::put_value(&mut connection.output, format!("\0{user}\0{password}").as_bytes());
            if connection.exchange(start)?.0 != opcode::AUTH_SUCCESS {
                return Err(Failure::new(Kind::Unsupported, "the server asks for more than user and password"));
            }
        }
        Ok(connection)
    }

    /// Lets answers take this long from now on.
    ///
    /// # Errors
    /// `lost`.
    pub(super) fn wait_for(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.messages.wait_for(timeout)
    }

    /// Begins the only frame that is to be sent.
    fn begin(&mut self, opcode: u8) -> usize {
        self.output.clear();
        wire::begin(&mut self.output, REQUEST, 0, opcode)
    }

    fn exchange(&mut self, start: usize) -> Result<(u8, &[u8]), Failure> {
        wire::finish(&mut self.output, start);
        self.send()?;
        let (_, opcode, body) = self.receive()?;
        Ok((opcode, body))
    }

    /// Sends what is gathered.
    ///
    /// # Errors
    /// `timeout`, `lost`.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        self.messages.send(&self.output)
    }

    /// The next answer, whatever it is: its stream, opcode and body.
    ///
    /// # Errors
    /// `timeout`, `lost`, or `database` where no answer of this protocol came.
    pub(super) fn answer(&mut self) -> Result<(i16, u8, &[u8]), Failure> {
        let message = self.messages.receive()?;
        let (head, mut body) = message.split_at(HEAD_BYTES);
        if head[0] != RESPONSE {
            return Err(malformed("a frame that is no answer"));
        }
        // Flags: only warnings can be there, unless something was asked for that never is here.
        if head[1] == WARNING {
            body = behind_warnings(body).ok_or_else(|| malformed("broken warnings"))?;
        } else if head[1] != 0 {
            return Err(malformed("a frame with unknown flags"));
        }
        Ok((i16::from_be_bytes([head[2], head[3]]), head[4], body))
    }

    /// The next answer, which is no error.
    ///
    /// # Errors
    /// As [`Self::answer`], and what the server says.
    pub(super) fn receive(&mut self) -> Result<(i16, u8, &[u8]), Failure> {
        match self.answer()? {
            (_, opcode::ERROR, body) => Err(answer::failure(body)),
            answer => Ok(answer),
        }
    }

    /// The body of the next answer, which has to be a result.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub(super) fn result(&mut self) -> Result<&[u8], Failure> {
        match self.receive()? {
            (_, opcode::RESULT, body) => Ok(body),
            _ => Err(malformed("no result")),
        }
    }

    /// Carries one statement out.
    ///
    /// # Errors
    /// What the server says.
    pub(super) fn query(&mut self, statement: &str) -> Result<&[u8], Failure> {
        let start = self.begin(opcode::QUERY);
        wire::put_long_string(&mut self.output, statement);
        self.output.extend_from_slice(&CONSISTENCY_ONE.to_be_bytes());
        self.output.push(0);
        wire::finish(&mut self.output, start);
        self.send()?;
        self.result()
    }

    /// Prepares a statement: its identifier.
    ///
    /// # Errors
    /// What the server says.
    pub(super) fn prepare(&mut self, statement: &str) -> Result<Vec<u8>, Failure> {
        let start = self.begin(opcode::PREPARE);
        wire::put_long_string(&mut self.output, statement);
        wire::finish(&mut self.output, start);
        self.send()?;
        let (kind, mut fields) = answer::result(self.result()?)?;
        let identifier = fields.short_bytes().filter(|_| kind == result::PREPARED);
        identifier.map(<[u8]>::to_vec).ok_or_else(|| malformed("no prepared statement"))
    }
}

/// Flag of a frame whose body begins with warnings.
const WARNING: u8 = 0x08;

fn behind_warnings(body: &[u8]) -> Option<&[u8]> {
    let mut fields = wire::Fields::new(body);
    for _ in 0..fields.short()? {
        fields.string()?;
    }
    Some(fields.rest())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::answer::Rows;
    use super::super::session::CassandraSession;
    use super::*;
    use crate::store::{Reading, Session};

    #[test]
    fn whatever_a_server_says_is_an_answer_or_a_failure() {
        let spec = serde_json::json!({ "driver": "cassandra", "uri": "cassandra://user:password@host" });
        let target = Target::new(&serde_json::from_value(spec).unwrap()).unwrap();
        fuzz::fuzz("cassandra", include_str!("../../../../fuzz/corpus/cassandra.txt"), |input| {
            let Some((choice, stream)) = input.split_first() else { return };
            let _ = conversation(&target, *choice, stream);
        });
    }

    fn conversation(target: &Target, choice: u8, stream: &[u8]) -> Result<(), Failure> {
        let mut connection = Connection::over(Messages::holding(stream, FRAMING), target)?;
        if choice & 1 == 0 {
            let mut rows = Rows::new(connection.query("SELECT 1")?)?;
            while let Some(mut row) = rows.next()? {
                let _ = (row.text(), row.boolean(), row.int(), row.long());
            }
            return Ok(());
        }
        let mut session = CassandraSession::new(connection, target)?;
        let (sensor, reading, mut read) = (Uuid::nil(), Reading { timestamp: 1, value: 0.5 }, Vec::new());
        session.read(sensor, 0, 9, &mut read)?;
        session.window(sensor, 0, 9)?;
        session.write_pipelined(&[(sensor, &[reading]), (sensor, &[reading])], &mut |_| ())
    }
}
