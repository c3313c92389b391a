//! A client of NFS version 4.0 (RFC 7530 over RFC 5531), as much of it as one file needs.
//!
//! It asks for no callbacks and so is given no delegations, and every file has a client identity and a connection of its own.
//! The lease needs no care: each read and write renews it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process;

use super::RemoteFile;

const PROGRAM: u32 = 100_003;
const VERSION: u32 = 4;
const COMPOUND: u32 = 1;
const AUTH_SYS: u32 = 1;
const LAST_FRAGMENT: u32 = 0x8000_0000;

/// Longest reply: a block and what surrounds it.
const LONGEST_REPLY: usize = super::LONGEST_BLOCK as usize + 4096;

/// Longest file handle (RFC 7530, 2.2).
const LONGEST_HANDLE: usize = 128;

const OP_COMMIT: u32 = 5;
const OP_GETFH: u32 = 10;
const OP_LOOKUP: u32 = 15;
const OP_OPEN: u32 = 18;
const OP_OPEN_CONFIRM: u32 = 20;
const OP_PUTFH: u32 = 22;
const OP_PUTROOTFH: u32 = 24;
const OP_READ: u32 = 25;
const OP_SETCLIENTID: u32 = 35;
const OP_SETCLIENTID_CONFIRM: u32 = 36;
const OP_WRITE: u32 = 38;

const SHARE_ACCESS_BOTH: u32 = 3;
const SHARE_DENY_NONE: u32 = 0;
const OPEN_CREATE: u32 = 1;
const CREATE_UNCHECKED: u32 = 0;
const CLAIM_NULL: u32 = 0;
const RESULT_CONFIRM: u32 = 2;
const WRITE_UNSTABLE: u32 = 0;

/// Attributes that a file is created with: size (bit 4) and mode (bit 33).
const CREATED_ATTRIBUTES: [u32; 2] = [1 << 4, 1 << 1];

type StateId = [u8; 16];

/// One open file.
pub(super) struct NfsFile {
    connection: Connection,
    handle: Vec<u8>,
    state: StateId,
}

impl NfsFile {
    /// Opens a file of an export, empty, and creates it where there is none.
    pub(super) fn open(stream: TcpStream, export: &str, file: u16, seed: u64) -> io::Result<Self> {
        let mut connection = Connection { stream, last: 0, reply: Vec::new() };
        let owner = format!("virtgauge-{}-{seed:x}-{file}", process::id());
        let client = connection.introduce(&owner, seed)?;
        let mut call = Call::of(4);
        call.word(OP_PUTROOTFH);
        call.word(OP_LOOKUP).bytes(export.as_bytes());
        call.word(OP_OPEN).word(0).word(SHARE_ACCESS_BOTH).word(SHARE_DENY_NONE);
        call.long(client).bytes(owner.as_bytes());
        call.word(OPEN_CREATE).word(CREATE_UNCHECKED).word(2).word(CREATED_ATTRIBUTES[0]).word(CREATED_ATTRIBUTES[1]);
        call.word(8 + 4).long(0).word(0o600);
        call.word(CLAIM_NULL).bytes(format!("file-{file}").as_bytes());
        call.word(OP_GETFH);
        let mut reply = connection.compound(&call)?;
        reply.operation(OP_PUTROOTFH)?;
        reply.operation(OP_LOOKUP)?;
        reply.operation(OP_OPEN)?;
        let mut state = reply.state()?;
        reply.skip(4 + 8 + 8)?; // how the folder changed
        let flags = reply.word()?;
        let words = reply.word()?;
        reply.skip(4 * words as usize)?; // the attributes that were set
        if reply.word()? != 0 {
            return Err(broken("a delegation that was not asked for"));
        }
        reply.operation(OP_GETFH)?;
        let handle = reply.bytes()?.to_vec();
        if handle.len() > LONGEST_HANDLE {
            return Err(broken("a file handle that is too long"));
        }
        if flags & RESULT_CONFIRM != 0 {
            let mut call = Call::on(&handle, 2);
            call.word(OP_OPEN_CONFIRM).raw(&state).word(1);
            let mut reply = connection.compound(&call)?;
            reply.operation(OP_PUTFH)?;
            reply.operation(OP_OPEN_CONFIRM)?;
            state = reply.state()?;
        }
        Ok(Self { connection, handle, state })
    }
}

impl RemoteFile for NfsFile {
    fn write(&mut self, mut offset: u64, mut block: &[u8]) -> io::Result<()> {
        while !block.is_empty() {
            let mut call = Call::on(&self.handle, 2);
            call.word(OP_WRITE).raw(&self.state).long(offset).word(WRITE_UNSTABLE).bytes(block);
            let mut reply = self.connection.compound(&call)?;
            reply.operation(OP_PUTFH)?;
            reply.operation(OP_WRITE)?;
            let written = reply.word()? as usize;
            if written == 0 || written > block.len() {
                return Err(broken("a write of no or too many bytes"));
            }
            offset += written as u64;
            block = &block[written..];
        }
        Ok(())
    }

    fn read(&mut self, mut offset: u64, mut block: &mut [u8]) -> io::Result<()> {
        while !block.is_empty() {
            let mut call = Call::on(&self.handle, 2);
            call.word(OP_READ).raw(&self.state).long(offset).word(block.len() as u32);
            let mut reply = self.connection.compound(&call)?;
            reply.operation(OP_PUTFH)?;
            reply.operation(OP_READ)?;
            reply.word()?; // whether this was the end of the file
            let data = reply.bytes()?;
            if data.is_empty() || data.len() > block.len() {
                return Err(broken("a read of no or too many bytes"));
            }
            let (filled, rest) = block.split_at_mut(data.len());
            filled.copy_from_slice(data);
            offset += data.len() as u64;
            block = rest;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut call = Call::on(&self.handle, 2);
        call.word(OP_COMMIT).long(0).word(0);
        let mut reply = self.connection.compound(&call)?;
        reply.operation(OP_PUTFH)?;
        reply.operation(OP_COMMIT)
    }
}

/// A connection to a server.
struct Connection {
    stream: TcpStream,
    /// Number of the last call.
    last: u32,
    reply: Vec<u8>,
}

impl Connection {
    /// Makes this client known; its number.
    fn introduce(&mut self, name: &str, seed: u64) -> io::Result<u64> {
        let mut call = Call::of(1);
        // A verifier of its own lets the server forget an earlier client of the same name.
        call.word(OP_SETCLIENTID).long(seed).bytes(name.as_bytes());
        call.word(0).bytes(b"tcp").bytes(b"0.0.0.0.0.0").word(0); // a callback that nobody answers
        let mut reply = self.compound(&call)?;
        reply.operation(OP_SETCLIENTID)?;
        let (client, confirm) = (reply.long()?, reply.long()?);
        let mut call = Call::of(1);
        call.word(OP_SETCLIENTID_CONFIRM).long(client).long(confirm);
        self.compound(&call)?.operation(OP_SETCLIENTID_CONFIRM)?;
        Ok(client)
    }

    /// Calls a compound of operations, and returns the reply from its first operation on.
    fn compound(&mut self, call: &Call) -> io::Result<Reply<'_>> {
        self.last = self.last.wrapping_add(1);
        self.stream.write_all(&call.message(self.last))?;
        self.receive()?;
        let mut reply = Reply(&self.reply);
        let accepted = reply.word()? == self.last && reply.word()? == 1 && reply.word()? == 0;
        reply.word()?; // the kind of the server's verifier
        reply.bytes()?;
        if !accepted || reply.word()? != 0 {
            return Err(broken("a reply that refuses the call, or to another one"));
        }
        reply.word()?; // of the last operation, which says so itself
        reply.bytes()?; // the tag
        reply.word()?; // the number of operations
        Ok(reply)
    }

    /// One message, which may come in fragments (RFC 5531, section 11).
    fn receive(&mut self) -> io::Result<()> {
        self.reply.clear();
        loop {
            let mut header = [0; 4];
            self.stream.read_exact(&mut header)?;
            let header = u32::from_be_bytes(header);
            let (start, length) = (self.reply.len(), (header & !LAST_FRAGMENT) as usize);
            if start + length > LONGEST_REPLY {
                return Err(broken("a reply that is too long"));
            }
            self.reply.resize(start + length, 0);
            self.stream.read_exact(&mut self.reply[start..])?;
            if header & LAST_FRAGMENT != 0 {
                return Ok(());
            }
        }
    }
}

/// The operations of a call, in XDR (RFC 4506).
struct Call {
    operations: u32,
    body: Vec<u8>,
}

impl Call {
    fn of(operations: u32) -> Self {
        Self { operations, body: Vec::new() }
    }

    /// A call about a file, of so many operations with the one that names it.
    fn on(handle: &[u8], operations: u32) -> Self {
        let mut call = Self::of(operations);
        call.word(OP_PUTFH).bytes(handle);
        call
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_be_bytes())
    }

    /// Bytes of known length.
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.body.extend_from_slice(bytes);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
        self
    }

    /// Bytes with their length before them.
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.word(bytes.len() as u32).raw(bytes)
    }

    /// The whole message, with the record mark before it.
    fn message(&self, number: u32) -> Vec<u8> {
        let mut head = Self::of(0);
        head.word(0).word(number).word(0).word(2).word(PROGRAM).word(VERSION).word(COMPOUND);
        // As root of a machine without a name: stamp, name, user, group, further groups.
        head.word(AUTH_SYS).word(20).word(0).word(0).word(0).word(0).word(0);
        head.word(0).word(0); // no verifier
        head.word(0).word(0).word(self.operations); // no tag, minor version 0
        let mut message = head.body;
        message.extend_from_slice(&self.body);
        let length = (message.len() - 4) as u32;
        message[..4].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
        message
    }
}

/// What is still to be read of a reply.
struct Reply<'a>(&'a [u8]);

impl<'a> Reply<'a> {
    fn take(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(|| broken("a reply that is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn skip(&mut self, length: usize) -> io::Result<()> {
        self.take(length).map(|_| ())
    }

    fn array<const LENGTH: usize>(&mut self) -> io::Result<[u8; LENGTH]> {
        let mut bytes = [0; LENGTH];
        bytes.copy_from_slice(self.take(LENGTH)?);
        Ok(bytes)
    }

    fn word(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn state(&mut self) -> io::Result<StateId> {
        self.array()
    }

    fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = self.word()? as usize;
        let bytes = self.take(length)?;
        self.skip(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    /// The head of an operation's result; its status when it failed.
    fn operation(&mut self, expected: u32) -> io::Result<()> {
        match (self.word()?, self.word()?) {
            (operation, 0) if operation == expected => Ok(()),
            (operation, status) => {
                Err(io::Error::other(format!("the server answers operation {operation} with NFS4 status {status}")))
            }
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_padded_to_words_and_the_record_is_marked_as_the_last() {
        let mut call = Call::of(1);
        call.word(OP_LOOKUP).bytes(b"abcde");
        assert_eq!(call.body, b"\0\0\0\x0f\0\0\0\x05abcde\0\0\0");
        let message = call.message(9);
        assert_eq!(message.len() % 4, 0);
        assert_eq!(message[..4], (LAST_FRAGMENT | (message.len() as u32 - 4)).to_be_bytes());
        assert_eq!(message[4..8], 9u32.to_be_bytes());
        assert!(message.ends_with(&call.body));
    }

    #[test]
    fn a_reply_that_ends_early_or_reports_a_failure_is_an_error() {
        assert!(Reply(b"\0\0\0\x08abcd").bytes().is_err());
        assert!(Reply(b"\0\0").word().is_err());
        let failed = [OP_READ.to_be_bytes(), 70u32.to_be_bytes()].concat();
        let message = Reply(&failed).operation(OP_READ).unwrap_err().to_string();
        assert!(message.contains("NFS4 status 70"), "{message}");
        let other = [OP_WRITE.to_be_bytes(), 0u32.to_be_bytes()].concat();
        assert!(Reply(&other).operation(OP_READ).is_err());
    }
}
