//! MariaDB's protocol, as far as this client speaks it: packets, log-in, statements as text and prepared ones
//! (MariaDB's knowledge base, "Client/server protocol").

use sha1::{Digest, Sha1};

use super::Target;
use crate::failure::{Failure, Kind};
use crate::messages::{Framing, Messages};

/// A packet's length in three bytes, and its number in one.
const HEAD_BYTES: usize = 4;
/// A packet of this length goes on in the next one; nothing here is as long.
const LONGEST_BYTES: usize = 0xFF_FFFF;

const FRAMING: Framing = Framing { head: HEAD_BYTES, length };

fn length(head: &[u8]) -> Option<usize> {
    let body = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    (body < LONGEST_BYTES).then_some(HEAD_BYTES + body)
}

/// Capabilities: a database is named, protocol 4.1, transactions, passwords by a challenge, ways of log-in by name, and
/// results that end with one packet in place of two.
const CAPABILITIES: u32 = 0x8 | 0x200 | 0x2000 | 0x8000 | 0x8_0000 | 0x100_0000;
/// Of MariaDB's own, which follow the 32 bits: many rows by one execution of a prepared statement.
const BULK: u32 = 1 << 2;
const UTF8MB4: u8 = 45;
const NATIVE_PASSWORD: &[u8] = b"mysql_native_password";

const OK: u8 = 0x00;
const SWITCH_LOG_IN: u8 = 0xFE;
const END: u8 = 0xFE;
const ERROR: u8 = 0xFF;
const NULL: u8 = 0xFB;

/// What a client asks, by the first byte of its packet.
pub(super) mod command {
    pub(crate) const QUERY: u8 = 0x03;
    pub(crate) const PREPARE: u8 = 0x16;
    pub(crate) const EXECUTE: u8 = 0x17;
    pub(crate) const EXECUTE_MANY: u8 = 0xFA;
}

/// A prepared statement's number on its connection.
#[derive(Clone, Copy)]
pub(super) struct Statement(pub(super) u32);

/// One, logged in.
pub(super) struct Connection {
    messages: Messages,
    /// What is to be sent.
    pub(super) output: Vec<u8>,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// `refused`, `denied`, `schema` (no such database), `unsupported` (another way of log-in, not MariaDB), `timeout`.
    pub(super) fn open(target: &Target) -> Result<Self, Failure> {
        Self::over(Messages::connect(&target.host, target.port, FRAMING, target.timeout)?, target)
    }

    fn over(messages: Messages, target: &Target) -> Result<Self, Failure> {
        let mut connection = Self { messages, output: Vec::new() };
        let mut challenge = greeting(connection.receive()?.1)?;
        let start = connection.begin();
        let output = &mut connection.output;
        output.extend_from_slice(&CAPABILITIES.to_le_bytes());
        output.extend_from_slice(&(LONGEST_BYTES as u32).to_le_bytes());
        output.push(UTF8MB4);
        output.extend_from_slice(&[0; 19]);
        output.extend_from_slice(&BULK.to_le_bytes());
        put_terminated(output, target.user.as_bytes());
        let proof = native_password(&target.password, &challenge);
        output.push(proof.len() as u8);
        output.extend_from_slice(&proof);
        put_terminated(output, target.database.as_bytes());
        put_terminated(output, NATIVE_PASSWORD);
        connection.finish(start, 1);
        connection.send()?;
        loop {
            let (number, body) = connection.receive()?;
            match body.split_first() {
                Some((&OK, _)) => return Ok(connection),
                Some((&SWITCH_LOG_IN, rest)) => {
                    let (name, rest) = terminated(rest).ok_or_else(|| malformed("another way of log-in"))?;
                    if name != NATIVE_PASSWORD {
                        let message = format!("the user logs in by {}, not by a password", String::from_utf8_lossy(name));
                        return Err(Failure::new(Kind::Unsupported, message));
                    }
                    challenge = rest.strip_suffix(&[0]).unwrap_or(rest).to_vec();
                    let start = connection.begin();
                    connection.output.extend_from_slice(&native_password(&target.password, &challenge));
                    connection.finish(start, number.wrapping_add(1));
                    connection.send()?;
                }
                _ => return Err(malformed("a log-in that does not end")),
            }
        }
    }

    /// Lets answers take this long from now on.
    ///
    /// # Errors
    /// `lost`.
    pub(super) fn wait_for(&mut self, timeout: std::time::Duration) -> Result<(), Failure> {
        self.messages.wait_for(timeout)
    }

    fn begin(&mut self) -> usize {
        self.output.clear();
        self.add()
    }

    /// Begins another packet behind what is to be sent: where it begins.
    fn add(&mut self) -> usize {
        let start = self.output.len();
        self.output.extend_from_slice(&[0; HEAD_BYTES]);
        start
    }

    fn finish(&mut self, start: usize, number: u8) {
        let body = self.output.len() - start - HEAD_BYTES;
        let [low, middle, high, _] = (body as u32).to_le_bytes();
        self.output[start..start + HEAD_BYTES].copy_from_slice(&[low, middle, high, number]);
    }

    /// Adds a command, whose arguments `put` appends, to what is to be sent.
    ///
    /// # Errors
    /// `unsupported` where it is too long for one packet.
    pub(super) fn command(&mut self, command: u8, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        let start = self.add();
        self.output.push(command);
        put(&mut self.output);
        let body = self.output.len() - start - HEAD_BYTES;
        if body >= LONGEST_BYTES {
            self.output.truncate(start); // the next statement must not send it
            let message = format!("a statement of {body} bytes; MariaDB takes {}", LONGEST_BYTES - 1);
            return Err(Failure::new(Kind::Unsupported, message));
        }
        self.finish(start, 0);
        Ok(())
    }

    /// Sends what was added.
    ///
    /// # Errors
    /// `timeout`, `lost`.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let sent = self.messages.send(&self.output);
        self.output.clear();
        sent
    }

    /// The next packet's number and body; one that tells of an error is a failure.
    fn receive(&mut self) -> Result<(u8, &[u8]), Failure> {
        let packet = self.messages.receive()?;
        match packet.split_at(HEAD_BYTES) {
            (_, [ERROR, rest @ ..]) => Err(failure(rest)),
            (head, body) => Ok((head[3], body)),
        }
    }

    /// Takes the whole answer to one statement: `row` is given the body of each row.
    ///
    /// # Errors
    /// What the server says, `timeout`, `lost`, or `database` where `row` cannot read one of them.
    pub(super) fn answer(&mut self, mut row: impl FnMut(&[u8]) -> Option<()>) -> Result<(), Failure> {
        let (_, body) = self.receive()?;
        let columns = match body {
            [OK, ..] => return Ok(()),
            body => Fields(body).number().ok_or_else(|| malformed("no result"))?,
        };
        for _ in 0..columns {
            self.receive()?;
        }
        // To its end in any case: the next answer is the next statement's.
        let mut all_read = true;
        loop {
            match self.receive()?.1 {
                [END, ..] => return if all_read { Ok(()) } else { Err(malformed("a row")) },
                body => all_read &= row(body).is_some(),
            }
        }
    }

    /// Carries one statement out: its rows, as text.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub(super) fn query(&mut self, statement: &str) -> Result<Vec<Vec<String>>, Failure> {
        self.command(command::QUERY, |output| output.extend_from_slice(statement.as_bytes()))?;
        self.send()?;
        let mut rows = Vec::new();
        self.answer(|body| {
            let (mut fields, mut row) = (Fields(body), Vec::new());
            while !fields.0.is_empty() {
                row.push(fields.text()?);
            }
            rows.push(row);
            Some(())
        })?;
        Ok(rows)
    }

    /// Prepares a statement.
    ///
    /// # Errors
    /// As [`Self::answer`].
    pub(super) fn prepare(&mut self, statement: &str) -> Result<Statement, Failure> {
        self.command(command::PREPARE, |output| output.extend_from_slice(statement.as_bytes()))?;
        self.send()?;
        let (_, body) = self.receive()?;
        let &[OK, a, b, c, d, columns, more_columns, parameters, more_parameters, ..] = body else {
            return Err(malformed("no prepared statement"));
        };
        let count = |low, high| usize::from(u16::from_le_bytes([low, high]));
        for _ in 0..count(columns, more_columns) + count(parameters, more_parameters) {
            self.receive()?;
        }
        Ok(Statement(u32::from_le_bytes([a, b, c, d])))
    }
}

/// The challenge of a server's first packet.
fn greeting(body: &[u8]) -> Result<Vec<u8>, Failure> {
    let parse = || {
        let (&[10], rest) = body.split_first_chunk()? else { return None };
        let (_version, rest) = terminated(rest)?;
        let (first, rest) = rest.get(4..)?.split_first_chunk::<8>()?;
        // Filler, capabilities, character set, status, capabilities, the challenge's length, filler, MariaDB's own.
        let low = u16::from_le_bytes(*rest.get(1..)?.first_chunk()?);
        let own = u32::from_le_bytes(*rest.get(15..)?.first_chunk()?);
        let (second, _) = rest.get(19..)?.split_first_chunk::<12>()?;
        Some(([&first[..], &second[..]].concat(), low & 1 == 0 && own & BULK != 0))
    };
    match parse() {
        Some((challenge, true)) => Ok(challenge),
        Some(_) => Err(Failure::new(Kind::Unsupported, "the server is no MariaDB of version 10.2 or later")),
        None => Err(malformed("no greeting")),
    }
}

/// `SHA1(password) XOR SHA1(challenge, SHA1(SHA1(password)))`; nothing where there is no password.
fn native_password(password: &str, challenge: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let once = Sha1::digest(password.as_bytes());
    let mask = Sha1::new().chain_update(challenge).chain_update(Sha1::digest(once)).finalize();
    once.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect()
}

fn put_terminated(output: &mut Vec<u8>, bytes: &[u8]) {
    output.extend_from_slice(bytes);
    output.push(0);
}

fn terminated(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Adds a string with its length before it.
pub(super) fn put_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    output.push(u8::try_from(bytes.len()).ok().filter(|length| *length < NULL).expect("sensors have 16 bytes"));
    output.extend_from_slice(bytes);
}

/// The fields of a body that are not yet read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// A number in one, three, four or nine bytes.
    fn number(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        let bytes = match first {
            0..=250 => 0,
            0xFC => 2,
            0xFD => 3,
            0xFE => 8,
            _ => return None,
        };
        let (number, rest) = rest.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number.iter().rev().fold(if bytes == 0 { first.into() } else { 0 }, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn text(&mut self) -> Option<String> {
        if let Some(rest) = self.0.strip_prefix(&[NULL]) {
            self.0 = rest;
            return Some(String::new());
        }
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// What came is not of this protocol.
pub(super) fn malformed(what: &str) -> Failure {
    Failure::new(Kind::Database, format!("MariaDB's answer cannot be read: {what}"))
}

/// The failure that the server tells of: number, state, words.
fn failure(body: &[u8]) -> Failure {
    let Some((number, rest)) = body.split_first_chunk() else { return malformed("an error without a number") };
    let number = u16::from_le_bytes(*number);
    let words = String::from_utf8_lossy(rest.get(6..).filter(|_| rest.first() == Some(&b'#')).unwrap_or(rest));
    let kind = match number {
        1040 | 1053 | 1203 => Kind::Refused, // too many connections, shutting down
        1044 | 1045 | 1130 | 1142 | 1698 => Kind::Denied,
        1049 | 1054 | 1146 => Kind::Schema, // no such database, column, table
        1050 => Kind::Exists,
        3 | 1021 | 1026 | 1114 => Kind::Full,
        1205 | 1317 | 1969 => Kind::Timeout,
        1235 | 4161 => Kind::Unsupported,
        _ => Kind::Database,
    };
    Failure::new(kind, format!("MariaDB: {words} ({number})"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::super::MariaDbSession;
    use super::*;
    use crate::store::{Reading, Session};

    #[test]
    fn whatever_a_server_says_is_an_answer_or_a_failure() {
        fuzz::fuzz("mariadb", include_str!("../../../../fuzz/corpus/mariadb.txt"), |input| {
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
            timeout: Duration::from_secs(1),
        };
        let mut connection = Connection::over(Messages::holding(stream, FRAMING), &target)?;
        if choice & 1 == 0 {
            return connection.query("SELECT 1").map(drop);
        }
        let mut session = MariaDbSession::over(connection, "readings", false)?;
        let (sensor, reading, mut read) = (Uuid::nil(), Reading { timestamp: 1, value: 0.5 }, Vec::new());
        session.read(sensor, 0, 9, &mut read)?;
        session.window(sensor, 0, 9)?;
        session.write_pipelined(&[(sensor, &[reading]), (sensor, &[reading])], &mut |_| ())
    }

    #[test]
    fn a_password_is_proved_without_being_sent() {
        // From the two hashes of its definition, by sha1sum.
        let proof = native_password("secret", b"01234567890123456789");
        assert_eq!(proof.len(), 20);
        let mask = Sha1::new()
            .chain_update(b"01234567890123456789")
            .chain_update(Sha1::digest(Sha1::digest(b"secret")))
            .finalize();
        let once: Vec<u8> = proof.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        assert_eq!(once, Sha1::digest(b"secret").as_slice());
        assert_eq!(native_password("", b"01234567890123456789"), Vec::<u8>::new());
    }

    #[test]
    fn numbers_are_read_in_all_their_lengths() {
        for (bytes, number) in [
            (&[250][..], 250),
            (&[0xFC, 1, 2][..], 0x201),
            (&[0xFD, 1, 2, 3][..], 0x3_0201),
            (&[0xFE, 1, 0, 0, 0, 0, 0, 0, 1][..], 1 << 56 | 1),
        ] {
            let mut fields = Fields(bytes);
            assert_eq!(fields.number(), Some(number));
            assert!(fields.0.is_empty());
        }
        assert_eq!(Fields(&[0xFC, 1]).number(), None);
    }

    #[test]
    fn what_the_server_says_is_told_apart() {
        for (number, kind) in [(1045, Kind::Denied), (1049, Kind::Schema), (1050, Kind::Exists), (1114, Kind::Full)] {
            let failure = failure(&[&u16::to_le_bytes(number)[..], b"#42000No"].concat());
            assert_eq!((failure.kind, failure.message), (kind, format!("MariaDB: No ({number})")));
        }
    }

    #[test]
    fn a_greeting_of_another_product_is_refused_by_its_name() {
        let mut packet = [&[10][..], b"8.0.36\0", &[1, 0, 0, 0], b"12345678", &[0]].concat();
        packet.extend([0xFF, 0xFF, 45, 2, 0, 0xFF, 0xFF, 21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        packet.extend(b"123456789012\0");
        assert_eq!(greeting(&packet).unwrap_err().kind, Kind::Unsupported);
        assert_eq!(greeting(b"SSH-2.0-OpenSSH").unwrap_err().kind, Kind::Database);
    }
}
