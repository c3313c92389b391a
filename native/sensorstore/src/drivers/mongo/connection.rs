//! A connection to MongoDB: `OP_MSG` messages, each a document and for writes a sequence of documents behind it.

use bson::raw::RawDocument;
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};

use super::answer;
use super::scram::Scram;
use super::target::{Credentials, Target};
use crate::failure::{Failure, Kind};
use crate::messages::{Framing, Messages};

/// The only kind of message that is spoken since MongoDB 3.6.
pub(crate) const OP_MSG: i32 = 2013;

/// Length, request, the request that it answers, kind; all little-endian.
pub(crate) const HEAD_BYTES: usize = 16;

/// Behind the head and the flags.
pub(crate) const BODY: usize = HEAD_BYTES + 4;

/// Flag of a message that will not be answered.
pub(crate) const MORE_TO_COME: u32 = 1 << 1;

/// No server sends or takes longer messages (`maxMessageSizeBytes`).
const LONGEST_MESSAGE_BYTES: i32 = 48_000_000;

/// Before it, `OP_MSG` was not spoken.
const FIRST_WIRE_VERSION: i64 = 6;

/// How its messages are framed.
pub(crate) const FRAMING: Framing = Framing { head: HEAD_BYTES, length };

fn length(head: &[u8]) -> Option<usize> {
    let number = |at: usize| Some(i32::from_le_bytes(*head[at..].first_chunk()?));
    let length = number(0)?;
    (number(12)? == OP_MSG && length <= LONGEST_MESSAGE_BYTES).then(|| usize::try_from(length).ok())?
}

/// A message with this document, begun: a sequence of documents may follow; [`finish`] makes it whole.
pub(crate) fn begin(flags: u32, document: &RawDocument) -> Vec<u8> {
    let mut message = Vec::with_capacity(BODY + 1 + document.as_bytes().len());
    message.extend_from_slice(&[0; 12]);
    message.extend_from_slice(&OP_MSG.to_le_bytes());
    message.extend_from_slice(&flags.to_le_bytes());
    message.push(0);
    message.extend_from_slice(document.as_bytes());
    message
}

/// Puts length and number into the head of a message that begins at `start` and ends where `messages` ends.
pub(crate) fn finish(messages: &mut [u8], start: usize, request: i32) {
    let length = (messages.len() - start) as i32;
    messages[start..start + 4].copy_from_slice(&length.to_le_bytes());
    messages[start + 4..start + 8].copy_from_slice(&request.to_le_bytes());
}

/// One, authenticated.
pub(super) struct Connection {
    messages: Messages,
    request: i32,
}

impl Connection {
    /// Connects, and authenticates where the target says as whom.
    ///
    /// # Errors
    /// `refused`, `denied`, `timeout`, or `unsupported` for a server that cannot be written to.
    pub(super) fn open(target: &Target) -> Result<Self, Failure> {
        Self::over(Messages::connect(&target.host, target.port, FRAMING, target.timeout)?, target)
    }

    fn over(messages: Messages, target: &Target) -> Result<Self, Failure> {
        let mut connection = Self { messages, request: 0 };
        let hello = connection.command(&rawdoc! {
            "hello": 1,
            "client": {
                "driver": { "name": "virtgauge", "version": env!("CARGO_PKG_VERSION") },
                "os": { "type": "Linux" },
            },
            "$db": "admin",
        })?;
        if answer::count(hello, "maxWireVersion")? < FIRST_WIRE_VERSION as u64 {
            return Err(Failure::new(Kind::Unsupported, "a MongoDB before 3.6"));
        }
        if !hello.get_bool("isWritablePrimary").unwrap_or(false) {
            let message = format!("{}:{} is no server that may be written to", target.host, target.port);
            return Err(Failure::new(Kind::Unsupported, message));
        }
        if let Some(credentials) = &target.credentials {
            connection.authenticate(credentials)?;
        }
        Ok(connection)
    }

    fn authenticate(&mut self, credentials: &Credentials) -> Result<(), Failure> {
        let scram = Scram::new(&credentials.user, &credentials.password)?;
        let source = credentials.source.as_str();
        let (conversation, server_first) = conversation(self.command(&rawdoc! {
            "saslStart": 1,
            "mechanism": "SCRAM-SHA-256",
            "payload": payload(scram.first()),
            "options": { "skipEmptyExchange": true },
            "$db": source,
        })?)?;
        let proof = scram.answer(&server_first)?;
        let answer = self.command(&rawdoc! {
            "saslContinue": 1,
            "conversationId": conversation,
            "payload": payload(proof.message.clone()),
            "$db": source,
        })?;
        if !answer.get_bool("done").unwrap_or(false) {
            return Err(Failure::new(Kind::Denied, "the server does not end the authentication"));
        }
        proof.check(&self::conversation(answer)?.1)
    }

    /// Lets answers take this long from now on.
    ///
    /// # Errors
    /// `lost`.
    pub(super) fn wait_for(&mut self, timeout: std::time::Duration) -> Result<(), Failure> {
        self.messages.wait_for(timeout)
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// What the server says.
    pub(super) fn command(&mut self, command: &RawDocument) -> Result<&RawDocument, Failure> {
        let answer = self.reply(command)?;
        answer::check(answer).map(|()| answer)
    }

    /// The answer to a command, whether it failed or not.
    ///
    /// # Errors
    /// `timeout`, `lost`.
    pub(super) fn reply(&mut self, command: &RawDocument) -> Result<&RawDocument, Failure> {
        let mut message = begin(0, command);
        let request = self.next_request();
        finish(&mut message, 0, request);
        self.send(&message)?;
        self.answer_to(request)
    }

    /// The number of the message to be sent next.
    pub(super) fn next_request(&mut self) -> i32 {
        self.request = self.request.wrapping_add(1);
        self.request
    }

    /// Sends whole messages.
    ///
    /// # Errors
    /// `timeout`, `lost`.
    pub(super) fn send(&mut self, messages: &[u8]) -> Result<(), Failure> {
        self.messages.send(messages)
    }

    /// The answer to this request; a connection answers its requests in their order.
    ///
    /// # Errors
    /// `timeout`, `lost`, `database` for what is no answer.
    pub(super) fn answer_to(&mut self, request: i32) -> Result<&RawDocument, Failure> {
        let message = self.messages.receive()?;
        let answers = message[8..].first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
        if answers != Some(request) {
            return Err(answer::malformed(&"an answer to another request"));
        }
        match message.get(BODY..).and_then(<[u8]>::split_first) {
            Some((0, document)) => RawDocument::from_bytes(document).map_err(|error| answer::malformed(&error)),
            _ => Err(answer::malformed(&"a message without a document")),
        }
    }
}

fn payload(text: String) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.into_bytes() }
}

fn conversation(answer: &RawDocument) -> Result<(i32, String), Failure> {
    let number = answer.get_i32("conversationId").map_err(|error| answer::malformed(&error))?;
    let payload = answer.get_binary("payload").map_err(|error| answer::malformed(&error))?;
    Ok((number, String::from_utf8_lossy(payload.bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::session::MongoSession;
    use super::*;
    use crate::store::{Reading, Session};

    #[test]
    fn whatever_a_server_says_is_an_answer_or_a_failure() {
        let spec = |uri| serde_json::from_value(serde_json::json!({ "driver": "mongo", "uri": uri })).unwrap();
        let targets = ["mongodb://host", "mongodb://user:password@host"].map(|uri| Target::new(&spec(uri)).unwrap());
        fuzz::fuzz("mongo", include_str!("../../../../fuzz/corpus/mongo.txt"), |input| {
            let Some((choice, stream)) = input.split_first() else { return };
            let _ = conversation(&targets[usize::from(choice & 1)], stream);
        });
    }

    fn conversation(target: &Target, stream: &[u8]) -> Result<(), Failure> {
        let connection = Connection::over(Messages::holding(stream, FRAMING), target)?;
        let mut session = MongoSession::new(connection, target);
        let (sensor, reading, mut read) = (Uuid::nil(), Reading { timestamp: 1, value: 0.5 }, Vec::new());
        session.read(sensor, 0, 9, &mut read)?;
        session.window(sensor, 0, 9)?;
        session.write(sensor, &[reading])?;
        session.write_pipelined(&[(sensor, &[reading]), (sensor, &[reading])], &mut |_| ())
    }
}
