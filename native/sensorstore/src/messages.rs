//! Whole messages over a blocking TCP connection, for protocols that say a message's length in its head.
//!
//! Made for little work of the client per message: one `write` sends, one `read` usually brings the whole answer, and a
//! message is looked at where it was received.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::failure::{Failure, Kind};

/// At first; a longer message makes the buffer grow.
const BUFFER_BYTES: usize = 128 << 10;

/// How a protocol frames its messages.
#[derive(Clone, Copy)]
pub(crate) struct Framing {
    /// Bytes of a head.
    pub(crate) head: usize,
    /// From a head to the bytes of the whole message, head included; `None` where this is no head.
    pub(crate) length: fn(&[u8]) -> Option<usize>,
}

/// A connection; of no use any more once it has failed, since a late answer would be taken for the next one.
pub(crate) struct Messages {
    socket: TcpStream,
    peer: String,
    framing: Framing,
    /// The longest that one message may take; `None` waits for ever, as servers do.
    timeout: Option<Duration>,
    buffer: Vec<u8>,
    /// What has been received and not been handed out: `buffer[start..end]`.
    start: usize,
    end: usize,
    failed: bool,
}

impl Messages {
    /// Connects.
    ///
    /// # Errors
    /// `refused` where nothing listens or nothing can be reached, `timeout`.
    pub(crate) fn connect(host: &str, port: u16, framing: Framing, timeout: Duration) -> Result<Self, Failure> {
        let socket = reach(host, port, timeout)?;
        Self::over(socket, framing, Some(timeout))
            .map_err(|error| Failure::new(Kind::Lost, format!("the connection to {host}:{port} was lost: {error}")))
    }

    /// Over a socket that is connected already.
    ///
    /// # Errors
    /// Where the socket's options cannot be set.
    pub(crate) fn over(socket: TcpStream, framing: Framing, timeout: Option<Duration>) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let peer = socket.peer_addr()?.to_string();
        let buffer = vec![0; BUFFER_BYTES];
        let mut messages = Self { socket, peer, framing, timeout: None, buffer, start: 0, end: 0, failed: false };
        messages.set_timeout(timeout)?;
        Ok(messages)
    }

    /// That has received these bytes and receives no more; what is sent to it is lost.
    #[cfg(test)]
    pub(crate) fn holding(bytes: &[u8], framing: Framing) -> Self {
        let (peer, buffer) = ("a test".into(), [bytes, &[0; 64]].concat());
        Self { socket: nowhere(), peer, framing, timeout: None, buffer, start: 0, end: bytes.len(), failed: false }
    }

    /// Frames what comes from now on in another way, as where the first message has a form of its own.
    pub(crate) fn frame_by(&mut self, framing: Framing) {
        self.framing = framing;
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.timeout = timeout;
        self.socket.set_read_timeout(timeout)?;
        self.socket.set_write_timeout(timeout)
    }

    /// Lets each message take this long from now on.
    ///
    /// # Errors
    /// `lost` where the socket does not take it.
    pub(crate) fn wait_for(&mut self, timeout: Duration) -> Result<(), Failure> {
        self.set_timeout(Some(timeout)).map_err(|error| self.failure(&error))
    }

    /// Sends the bytes of one or more messages.
    ///
    /// # Errors
    /// `timeout` where the peer takes nothing any more, `lost`.
    pub(crate) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        self.usable()?;
        let begun = Instant::now();
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(0) => return Err(self.failure(&ErrorKind::WriteZero.into())),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(&error)),
            }
            if !bytes.is_empty() && self.timeout.is_some_and(|timeout| begun.elapsed() >= timeout) {
                return Err(self.failure(&ErrorKind::TimedOut.into()));
            }
        }
        Ok(())
    }

    /// The next message, head included, where it was received.
    ///
    /// # Errors
    /// `timeout`, `lost`, or `database` where what came is no message of this protocol.
    pub(crate) fn receive(&mut self) -> Result<&[u8], Failure> {
        self.usable()?;
        self.fill(self.framing.head)?;
        let head = &self.buffer[self.start..self.start + self.framing.head];
        let Some(length) = (self.framing.length)(head).filter(|length| *length >= self.framing.head) else {
            self.failed = true;
            let message = format!("what {} answers is not of the expected protocol", self.peer);
            return Err(Failure::new(Kind::Database, message));
        };
        self.fill(length)?;
        let message = self.start..self.start + length;
        self.start = message.end;
        Ok(&self.buffer[message])
    }

    /// That a message, or a part of one, has been received and not been handed out.
    pub(crate) fn has_received(&self) -> bool {
        self.start < self.end
    }

    /// Receives until there are so many bytes.
    fn fill(&mut self, bytes: usize) -> Result<(), Failure> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.end - self.start >= bytes {
            return Ok(());
        }
        if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let begun = Instant::now();
        let mut shortened = false;
        while self.end - self.start < bytes {
            if self.end == self.buffer.len() {
                // With what came, not with what a head announces.
                self.buffer.resize(2 * self.buffer.len(), 0);
            }
            match self.socket.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(self.failure(&ErrorKind::UnexpectedEof.into())),
                Ok(received) => self.end += received,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(&error)),
            }
            let Some(timeout) = self.timeout.filter(|_| self.end - self.start < bytes) else { continue };
            // A peer that stops in the middle of a message must not get the whole time again for each part of it; the
            // system calls that this takes are spared where the parts come swiftly.
            let elapsed = begun.elapsed();
            if elapsed >= timeout {
                return Err(self.failure(&ErrorKind::TimedOut.into()));
            }
            if elapsed > timeout / 8 {
                shortened = true;
                let set = self.socket.set_read_timeout(Some(timeout.saturating_sub(elapsed)));
                set.map_err(|error| self.failure(&error))?;
            }
        }
        if shortened {
            self.socket.set_read_timeout(self.timeout).map_err(|error| self.failure(&error))?;
        }
        Ok(())
    }

    fn usable(&self) -> Result<(), Failure> {
        if self.failed {
            return Err(Failure::new(Kind::Lost, format!("the connection to {} has failed before", self.peer)));
        }
        Ok(())
    }

    fn failure(&mut self, error: &io::Error) -> Failure {
        self.failed = true;
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                let waited = self.timeout.unwrap_or_default();
                Failure::new(Kind::Timeout, format!("{} did not answer within {waited:?}", self.peer))
            }
            ErrorKind::UnexpectedEof => Failure::new(Kind::Lost, format!("{} closed the connection", self.peer)),
            _ => Failure::new(Kind::Lost, format!("the connection to {} was lost: {error}", self.peer)),
        }
    }
}

/// A TCP connection to a name or an address, within this time.
///
/// # Errors
/// `refused` where nothing listens or nothing can be reached, `timeout`.
pub(crate) fn reach(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, Failure> {
    let peer = format!("{host}:{port}");
    let unreachable = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            Failure::new(Kind::Timeout, format!("{peer} did not accept a connection within {timeout:?}"))
        }
        _ => Failure::new(Kind::Refused, format!("cannot connect to {peer}: {error}")),
    };
    let mut failure = Failure::new(Kind::Refused, format!("{peer} has no address"));
    for address in (host, port).to_socket_addrs().map_err(unreachable)? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = unreachable(error),
        }
    }
    Err(failure)
}

/// A socket that takes everything and from which nothing comes: a test's end of a connection.
#[cfg(test)]
pub(crate) fn nowhere() -> TcpStream {
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;

    thread_local! {
        static SOCKET: UdpSocket = {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("there is a loopback interface");
            // Nobody reads what comes there: the kernel drops what does not fit.
            let sink = UdpSocket::bind("127.0.0.1:0").expect("there is a loopback interface");
            socket.connect(sink.local_addr().expect("it is bound")).expect("it can be reached");
            std::mem::forget(sink);
            socket.set_nonblocking(true).expect("sockets can be");
            socket
        };
    }
    let socket = SOCKET.with(|socket| socket.try_clone().expect("there are descriptors"));
    TcpStream::from(OwnedFd::from(socket))
}
