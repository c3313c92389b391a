//! The agent's own file protocol, and the client's end of it.
//!
//! A connection is for one file.  The client sends a greeting (magic, token, number of the file) and is answered by one byte, or, if it
//! does not know the token, by nothing at all.  Then it sends requests of 17 bytes, a write's block after them; each is
//! answered by an error number (0: none), a read's block after it.  All numbers are big endian.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::{LONGEST_TEXT, RemoteFile};

/// First bytes of every connection.
const MAGIC: [u8; 8] = *b"vgfile1\n";

/// What the server answers to a greeting that it accepts.
pub(super) const WELCOME: u8 = b'+';

/// Bytes of a greeting: magic, token, file.
const GREETING: usize = MAGIC.len() + LONGEST_TEXT + 2;

/// Bytes of a request: operation, offset, length.
const REQUEST: usize = 1 + 8 + 8;

/// What is asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Reads a greeting; the file's number when magic and token are right.
pub(super) fn read_greeting(stream: &mut impl Read, token: &str) -> io::Result<u16> {
    let mut bytes = [0; GREETING];
    stream.read_exact(&mut bytes)?;
    let file = u16::from_be_bytes([bytes[GREETING - 2], bytes[GREETING - 1]]);
    // Compared whole: the time says nothing of where they differ.
    let difference = greeting(token, file).iter().zip(&bytes).fold(0, |all, (right, given)| all | (right ^ given));
    if difference == 0 { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn greeting(token: &str, file: u16) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()..][..token.len()].copy_from_slice(token.as_bytes());
    bytes[GREETING - 2..].copy_from_slice(&file.to_be_bytes());
    bytes
}

impl Request {
    /// The next request; `None` when the client has closed.
    pub(super) fn read(stream: &mut impl Read) -> io::Result<Option<Self>> {
        let mut bytes = [0; REQUEST];
        if stream.read(&mut bytes[..1])? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut bytes[1..])?;
        let operation = match bytes[0] {
            b'r' => Operation::Read,
            b'w' => Operation::Write,
            b'f' => Operation::Flush,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Ok(Some(Self { operation, offset: number(1), length: number(9) }))
    }

    fn bytes(self) -> [u8; REQUEST] {
        let mut bytes = [0; REQUEST];
        bytes[0] = match self.operation {
            Operation::Read => b'r',
            Operation::Write => b'w',
            Operation::Flush => b'f',
        };
        bytes[1..9].copy_from_slice(&self.offset.to_be_bytes());
        bytes[9..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }
}

/// The client's end of one file.
pub(super) struct OwnFile {
    stream: TcpStream,
    sending: Vec<u8>,
}

impl OwnFile {
    /// Opens a file over a fresh connection, and creates it where there is none.
    pub(super) fn open(mut stream: TcpStream, token: &str, file: u16) -> io::Result<Self> {
        stream.write_all(&greeting(token, file))?;
        let mut answer = [0];
        stream.read_exact(&mut answer)?;
        if answer == [WELCOME] {
            Ok(Self { stream, sending: Vec::new() })
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    fn ask(&mut self, request: Request, block: &[u8]) -> io::Result<()> {
        // In one call, so that a request and its block are not two segments.
        self.sending.clear();
        self.sending.extend_from_slice(&request.bytes());
        self.sending.extend_from_slice(block);
        self.stream.write_all(&self.sending)?;
        let mut answer = [0; 4];
        self.stream.read_exact(&mut answer)?;
        match i32::from_be_bytes(answer) {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl RemoteFile for OwnFile {
    fn write(&mut self, offset: u64, block: &[u8]) -> io::Result<()> {
        self.ask(Request { operation: Operation::Write, offset, length: block.len() as u64 }, block)
    }

    fn read(&mut self, offset: u64, block: &mut [u8]) -> io::Result<()> {
        self.ask(Request { operation: Operation::Read, offset, length: block.len() as u64 }, &[])?;
        self.stream.read_exact(block)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.ask(Request { operation: Operation::Flush, offset: 0, length: 0 }, &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_refused_for_its_token_its_magic_or_its_length() {
        let right = greeting("secret", 7);
        assert_eq!(read_greeting(&mut &right[..], "secret").unwrap(), 7);
        assert!(read_greeting(&mut &right[..], "secres").is_err());
        assert!(read_greeting(&mut &right[..], "secret2").is_err());
        assert!(read_greeting(&mut &right[..], "secre").is_err());
        assert!(read_greeting(&mut &right[..GREETING - 1], "secret").is_err());
        let mut other = right;
        other[0] ^= 1;
        assert!(read_greeting(&mut &other[..], "secret").is_err());
    }

    #[test]
    fn a_request_is_read_as_it_was_sent() {
        for operation in [Operation::Read, Operation::Write, Operation::Flush] {
            let request = Request { operation, offset: 1 << 40, length: 65_536 };
            assert_eq!(Request::read(&mut &request.bytes()[..]).unwrap(), Some(request));
        }
        assert_eq!(Request::read(&mut &[][..]).unwrap(), None);
        assert!(Request::read(&mut &b"r\0"[..]).is_err());
        assert!(Request::read(&mut &[b'x'; REQUEST][..]).is_err());
    }
}
