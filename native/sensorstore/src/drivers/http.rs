//! A minimal HTTP/1.1 client on one connection that is kept, for the drivers that need one; blocking, a request in one
//! `write`.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::uri::Server;
use crate::failure::{Failure, Kind};
use crate::messages::reach;

const INPUT_BYTES: usize = 64 << 10;

/// A head is never longer than this: what claims to have one is no server of ours.
const LONGEST_HEAD_BYTES: usize = 64 << 10;

/// What a server has answered.
pub(super) struct Response<'connection> {
    /// HTTP's code.
    pub(super) status: u16,
    /// The body, decoded.
    pub(super) body: &'connection [u8],
}

impl Response<'_> {
    /// The body as text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(self.body).trim().into()
    }

    /// Itself if it says that what was asked for is done, else why it is not.
    ///
    /// # Errors
    /// By HTTP's code, and by words where servers answer 400 or 500 to everything.
    pub(super) fn successful(self) -> Result<Self, Failure> {
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = self.text();
        let says = |words: &[&str]| words.iter().any(|part| text.contains(part));
        let kind = match self.status {
            401 | 403 => Kind::Denied,
            _ if says(&["no space left", "No space left", "read-only"]) => Kind::Full,
            _ if says(&["database not found", "field type conflict", "does not exist"]) => Kind::Schema,
            // What stands before a server that is not there, or not yet.
            502 | 503 => Kind::Refused,
            408 | 504 => Kind::Timeout,
            _ if says(&["timeout"]) => Kind::Timeout,
            _ => Kind::Database,
        };
        Err(Failure::new(kind, format!("HTTP {}: {}", self.status, text.chars().take(300).collect::<String>())))
    }
}

/// What of a response's head says where its body ends.
struct Head {
    status: u16,
    content_length: Option<usize>,
    chunked: bool,
    last: bool,
}

/// A connection.
pub(super) struct Http {
    socket: TcpStream,
    peer: String,
    /// The fields of every request's head.
    fields: String,
    timeout: Duration,
    output: Vec<u8>,
    input: Vec<u8>,
    /// What has been received and not been looked at.
    pending: Range<usize>,
    body: Vec<u8>,
    failed: bool,
}

impl Http {
    /// Connects.
    ///
    /// # Errors
    /// `refused`, `timeout`.
    pub(super) fn connect(server: &Server, timeout: Duration) -> Result<Self, Failure> {
        let peer = format!("{}:{}", server.host, server.port);
        let socket = reach(&server.host, server.port, timeout)?;
        let mut fields = format!("Host: {peer}\r\nUser-Agent: virtgauge\r\n");
        if let Some(user) = &server.user {
            let identity = format!("{user}:{}", server.password.as_deref().unwrap_or_default());
            fields = format!("{fields}Authorization: Basic {}\r\n", STANDARD.encode(identity));
        }
        let mut http = Self {
            socket,
            peer,
            fields,
            timeout,
            output: Vec::new(),
            input: vec![0; INPUT_BYTES],
            pending: 0..0,
            body: Vec::new(),
            failed: false,
        };
        http.wait_for(timeout)?;
        Ok(http)
    }

    /// One that has received these bytes and receives no more.
    #[cfg(test)]
    pub(super) fn holding(bytes: &[u8]) -> Self {
        Self {
            socket: crate::messages::nowhere(),
            peer: "a test".into(),
            fields: String::new(),
            timeout: Duration::from_secs(1),
            output: Vec::new(),
            input: [bytes, &[0; 64]].concat(),
            pending: 0..bytes.len(),
            body: Vec::new(),
            failed: false,
        }
    }

    /// Lets each answer take this long from now on.
    ///
    /// # Errors
    /// `lost` where the socket does not take it.
    pub(super) fn wait_for(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.timeout = timeout;
        let set = self.socket.set_nodelay(true).and(self.socket.set_write_timeout(Some(timeout)));
        set.and(self.socket.set_read_timeout(Some(timeout))).map_err(|error| self.failure(&error))
    }

    /// Has another field in the head of every request.
    pub(super) fn add_field(&mut self, field: &str) {
        self.fields.push_str(field);
        self.fields.push_str("\r\n");
    }

    /// Gathers a request, to be sent with those that are gathered already.
    pub(super) fn gather(&mut self, method: &str, target: &str, body: &[u8]) {
        let (output, fields) = (&mut self.output, &self.fields);
        // Writing into memory does not fail.
        let _ = write!(output, "{method} {target} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
        output.extend_from_slice(body);
    }

    /// Sends what is gathered.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let sent = if self.failed { Err(ErrorKind::NotConnected.into()) } else { self.socket.write_all(&self.output) };
        self.output.clear();
        sent.map_err(|error| self.failure(&error))
    }

    /// One request and its answer.
    pub(super) fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> Result<Response<'_>, Failure> {
        self.gather(method, target, body);
        self.send()?;
        self.receive()
    }

    /// Sends what was gathered, and takes the answer to each of so many requests; all are taken, whatever one says.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn exchange(&mut self, requests: usize, acknowledged: &mut dyn FnMut(usize)) -> Result<(), Failure> {
        self.send()?;
        let mut result = Ok(());
        for number in 0..requests {
            match self.receive().and_then(|answer| answer.successful().map(drop)) {
                Ok(()) => acknowledged(number),
                Err(failure) => result = result.and(Err(failure)),
            }
        }
        result
    }

    /// The next answer.
    ///
    /// # Errors
    /// `timeout`, `lost`, or `database` where what came is no HTTP.
    pub(super) fn receive(&mut self) -> Result<Response<'_>, Failure> {
        let begun = Instant::now();
        let head = self.head(begun)?;
        self.body.clear();
        if head.chunked {
            while self.chunk(begun)? {}
        } else if let Some(bytes) = head.content_length {
            self.take(bytes, begun)?;
        } else if head.status != 204 && head.status != 304 {
            return Err(self.nonsense("neither a length nor chunks"));
        }
        if head.last {
            self.failed = true;
        }
        Ok(Response { status: head.status, body: &self.body })
    }

    fn head(&mut self, begun: Instant) -> Result<Head, Failure> {
        let end = self.find(b"\r\n\r\n", LONGEST_HEAD_BYTES, begun)?;
        let start = self.pending.start;
        self.pending.start = end + 4;
        let head = parse_head(&self.input[start..end]);
        head.ok_or_else(|| self.nonsense("another head than HTTP's"))
    }

    /// Takes one chunk into the body; whether there is another behind it.
    fn chunk(&mut self, begun: Instant) -> Result<bool, Failure> {
        let end = self.find(b"\r\n", 100, begun)?;
        let size = std::str::from_utf8(&self.input[self.pending.start..end]).ok();
        let size = size.and_then(|line| usize::from_str_radix(line.split(';').next()?.trim(), 16).ok());
        self.pending.start = end + 2;
        let size = size.ok_or_else(|| self.nonsense("a chunk without a size"))?;
        self.take(size, begun)?;
        // Trailers are not sent unless asked for: behind each chunk, the last as well, is an empty line.
        let end = self.find(b"\r\n", 100, begun)?;
        self.pending.start = end + 2;
        Ok(size > 0)
    }

    /// Takes so many bytes into the body.
    fn take(&mut self, mut bytes: usize, begun: Instant) -> Result<(), Failure> {
        while bytes > 0 {
            if self.pending.is_empty() {
                self.fill(begun)?;
            }
            let part = self.pending.start..self.pending.end.min(self.pending.start.saturating_add(bytes));
            self.body.extend_from_slice(&self.input[part.clone()]);
            self.pending.start = part.end;
            bytes -= part.len();
        }
        Ok(())
    }

    /// Where this is in the input, receiving until it is.
    fn find(&mut self, what: &[u8], longest: usize, begun: Instant) -> Result<usize, Failure> {
        loop {
            let held = &self.input[self.pending.clone()];
            if let Some(place) = held.windows(what.len()).position(|window| window == what) {
                return Ok(self.pending.start + place);
            }
            if held.len() >= longest {
                return Err(self.nonsense("a head without an end"));
            }
            self.fill(begun)?;
        }
    }

    fn fill(&mut self, begun: Instant) -> Result<(), Failure> {
        if self.failed {
            return Err(self.failure(&ErrorKind::NotConnected.into()));
        }
        self.input.copy_within(self.pending.clone(), 0);
        self.pending = 0..self.pending.len();
        if self.pending.end == self.input.len() {
            self.input.resize(2 * self.input.len(), 0);
        }
        let received = loop {
            match self.socket.read(&mut self.input[self.pending.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(0) => break Err(ErrorKind::UnexpectedEof.into()),
                other => break other,
            }
        };
        self.pending.end += received.map_err(|error| self.failure(&error))?;
        // A server that sends a byte at a time answers no sooner than one that is silent.
        if begun.elapsed() > self.timeout {
            return Err(self.failure(&ErrorKind::TimedOut.into()));
        }
        Ok(())
    }

    fn nonsense(&mut self, what: &str) -> Failure {
        self.failed = true;
        Failure::new(Kind::Database, format!("{} does not speak HTTP/1.1: its answer has {what}", self.peer))
    }

    fn failure(&mut self, error: &io::Error) -> Failure {
        self.failed = true;
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                Failure::new(Kind::Timeout, format!("{} did not answer within {:?}", self.peer, self.timeout))
            }
            ErrorKind::UnexpectedEof => Failure::new(Kind::Lost, format!("{} closed the connection", self.peer)),
            _ => Failure::new(Kind::Lost, format!("the connection to {} was lost: {error}", self.peer)),
        }
    }
}

fn parse_head(head: &[u8]) -> Option<Head> {
    let mut lines = std::str::from_utf8(head).ok()?.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let mut head = Head { status, content_length: None, chunked: false, last: false };
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.content_length = Some(value.parse().ok()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            head.chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            head.last = value.eq_ignore_ascii_case("close");
        }
    }
    Some(head)
}

/// Text as it can stand in a query (RFC 3986, section 2).
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into memory does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_how_its_body_ends() {
        let head = parse_head(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\nConnection: close").unwrap();
        assert_eq!((head.status, head.content_length, head.chunked, head.last), (200, Some(12), false, true));
        assert!(parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").unwrap().chunked);
        assert!(parse_head(b"SSH-2.0-OpenSSH").is_none());
    }
}
