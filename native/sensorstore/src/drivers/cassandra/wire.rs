//! Version 4 of Cassandra's native protocol: frames, opcodes, and values as they are sent.
//!
//! All numbers are big-endian (`native_protocol_v4.spec` of Cassandra's documentation, sections 2 and 3).

use crate::messages::Framing;

/// Version and direction, flags, stream (2), opcode, length of the body (4).
pub(crate) const HEAD_BYTES: usize = 9;

/// The version of a request; an answer has the highest bit set.
pub(crate) const REQUEST: u8 = 0x04;
/// Likewise, of an answer.
pub(crate) const RESPONSE: u8 = 0x84;

/// The longest frame that the protocol allows.
const LONGEST_FRAME_BYTES: u32 = 256 << 20;

/// What a frame is.
pub(crate) mod opcode {
    pub(crate) const ERROR: u8 = 0x00;
    pub(crate) const STARTUP: u8 = 0x01;
    pub(crate) const READY: u8 = 0x02;
    pub(crate) const AUTHENTICATE: u8 = 0x03;
    pub(crate) const QUERY: u8 = 0x07;
    pub(crate) const RESULT: u8 = 0x08;
    pub(crate) const PREPARE: u8 = 0x09;
    pub(crate) const EXECUTE: u8 = 0x0a;
    pub(crate) const BATCH: u8 = 0x0d;
    pub(crate) const AUTH_RESPONSE: u8 = 0x0f;
    pub(crate) const AUTH_SUCCESS: u8 = 0x10;
}

/// What a result is.
pub(crate) mod result {
    pub(crate) const VOID: i32 = 1;
    pub(crate) const ROWS: i32 = 2;
    pub(crate) const PREPARED: i32 = 4;
    pub(crate) const SCHEMA_CHANGE: i32 = 5;
}

/// Flags of the parameters of a statement.
pub(crate) mod flag {
    pub(crate) const VALUES: u8 = 0x01;
    pub(crate) const SKIP_METADATA: u8 = 0x02;
    pub(crate) const PAGE_SIZE: u8 = 0x04;
    pub(crate) const PAGING_STATE: u8 = 0x08;
}

/// Flags of the metadata of rows.
pub(crate) mod metadata {
    pub(crate) const GLOBAL_TABLE: i32 = 0x01;
    pub(crate) const MORE_PAGES: i32 = 0x02;
    pub(crate) const NONE: i32 = 0x04;
}

/// One replica answers for all: there is one.
pub(crate) const CONSISTENCY_ONE: u16 = 0x0001;

/// A batch that is applied without a log of its own.
pub(crate) const UNLOGGED: u8 = 1;

/// How its frames are framed.
pub(crate) const FRAMING: Framing = Framing { head: HEAD_BYTES, length };

fn length(head: &[u8]) -> Option<usize> {
    let spoken = matches!(head[0], REQUEST | RESPONSE);
    let body = u32::from_be_bytes(*head[5..].first_chunk()?);
    (spoken && body <= LONGEST_FRAME_BYTES).then_some(HEAD_BYTES + body as usize)
}

/// Begins a frame at the end of what is to be sent: where it begins.
pub(crate) fn begin(output: &mut Vec<u8>, version: u8, stream: i16, opcode: u8) -> usize {
    let start = output.len();
    output.extend_from_slice(&[version, 0]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(&[opcode, 0, 0, 0, 0]);
    start
}

/// Ends a frame: puts its length into its head.
pub(crate) fn finish(output: &mut [u8], start: usize) {
    let body = (output.len() - start - HEAD_BYTES) as u32;
    output[start + 5..start + HEAD_BYTES].copy_from_slice(&body.to_be_bytes());
}

/// A `[string]`.
pub(crate) fn put_string(output: &mut Vec<u8>, text: &str) {
    put_short_bytes(output, text.as_bytes());
}

/// A `[long string]`.
pub(crate) fn put_long_string(output: &mut Vec<u8>, text: &str) {
    put_value(output, text.as_bytes());
}

/// A `[value]`, or `[bytes]`.
pub(crate) fn put_value(output: &mut Vec<u8>, value: &[u8]) {
    output.extend_from_slice(&(value.len() as u32).to_be_bytes());
    output.extend_from_slice(value);
}

/// `[short bytes]`.
pub(crate) fn put_short_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    output.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    output.extend_from_slice(bytes);
}

/// What a frame's body holds, from its beginning on; `None` where it ends too early.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    /// What is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(crate) fn fixed<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.fixed().map(|[byte]: [u8; 1]| byte)
    }

    pub(crate) fn short(&mut self) -> Option<u16> {
        self.fixed().map(u16::from_be_bytes)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        self.fixed().map(i32::from_be_bytes)
    }

    pub(crate) fn short_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.short()?;
        self.bytes(length.into())
    }

    pub(crate) fn string(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.short_bytes()?).ok()
    }

    pub(crate) fn long_string(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.value()?).ok()
    }

    /// A `[value]` or `[bytes]`; null, which nothing here is, is taken as empty.
    pub(crate) fn value(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        self.bytes(usize::try_from(length).unwrap_or(0))
    }
}
