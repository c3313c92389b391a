//! What the server answers: errors and rows.

use super::wire::{Fields, metadata, result};
use crate::failure::{Failure, Kind};
use crate::store::Reading;

/// An answer that is no answer to what was asked.
pub(super) fn malformed(what: &str) -> Failure {
    Failure::new(Kind::Database, format!("the server answers what Cassandra does not: {what}"))
}

/// From an `ERROR` frame's body (section 9 of the specification of the protocol).
pub(super) fn failure(body: &[u8]) -> Failure {
    let mut fields = Fields::new(body);
    let (Some(code), Some(message)) = (fields.int(), fields.string()) else { return malformed("a broken error") };
    Failure::new(kind(code, message), format!("{message} (Cassandra error 0x{code:04x})"))
}

fn kind(code: i32, message: &str) -> Kind {
    match code {
        _ if message.contains("No space left on device") => Kind::Full,
        // Bad credentials, unauthorized.
        0x0100 | 0x2100 => Kind::Denied,
        // It has started and serves nobody yet.
        0x1002 => Kind::Refused,
        // Writes and reads that the server itself waits for in vain.
        0x1100 | 0x1200 => Kind::Timeout,
        // A syntax that it does not know.
        0x2000 => Kind::Unsupported,
        0x2200 if message.contains("does not exist") || message.contains("unconfigured table") => Kind::Schema,
        0x2400 => Kind::Exists,
        // Among them unavailable, overloaded, failed writes and reads.
        _ => Kind::Database,
    }
}

/// The kind of a result, and what follows.
pub(super) fn result(body: &[u8]) -> Result<(i32, Fields<'_>), Failure> {
    let mut fields = Fields::new(body);
    let kind = fields.int().ok_or_else(|| malformed("an empty result"))?;
    Ok((kind, fields))
}

/// The rows of a result.
pub(super) struct Rows<'a> {
    fields: Fields<'a>,
    columns: usize,
    left: usize,
    /// Where the next page begins, if there is one.
    paging_state: Option<&'a [u8]>,
}

/// One of them, with the columns not yet taken.
pub(super) struct Row<'a> {
    fields: Fields<'a>,
}

impl<'a> Rows<'a> {
    /// Of a result's body.
    ///
    /// # Errors
    /// `database` where it has none.
    pub(super) fn new(body: &'a [u8]) -> Result<Self, Failure> {
        let (kind, fields) = result(body)?;
        let rows = if kind == result::ROWS { Self::described(fields) } else { None };
        rows.ok_or_else(|| malformed("no rows"))
    }

    fn described(mut fields: Fields<'a>) -> Option<Self> {
        let flags = fields.int()?;
        // Rows of nothing would have no end.
        let columns = usize::try_from(fields.int()?).ok().filter(|columns| *columns > 0)?;
        let paging_state = if flags & metadata::MORE_PAGES != 0 { Some(fields.value()?) } else { None };
        if flags & metadata::NONE == 0 {
            if flags & metadata::GLOBAL_TABLE != 0 {
                fields.string()?;
                fields.string()?;
            }
            for _ in 0..columns {
                if flags & metadata::GLOBAL_TABLE == 0 {
                    fields.string()?;
                    fields.string()?;
                }
                fields.string()?;
                // Of the types that the statements here bring back, none has parameters: those begin at 0x20, and the
                // custom one is 0.
                fields.short().filter(|kind| (1..0x20).contains(kind))?;
            }
        }
        let left = usize::try_from(fields.int()?).ok()?;
        Some(Self { fields, columns, left, paging_state })
    }

    /// The next of them.
    ///
    /// # Errors
    /// `database` where fewer came than were promised.
    pub(super) fn next(&mut self) -> Result<Option<Row<'a>>, Failure> {
        if self.left == 0 {
            return Ok(None);
        }
        let row = Row { fields: self.fields };
        for _ in 0..self.columns {
            self.fields.value().ok_or_else(|| malformed("fewer rows than it says"))?;
        }
        self.left -= 1;
        Ok(Some(row))
    }

    /// Adds the rows of (timestamp, value), and says where the next page begins.
    ///
    /// # Errors
    /// `database` where they are not that.
    pub(super) fn readings(mut self, into: &mut Vec<Reading>) -> Result<Option<&'a [u8]>, Failure> {
        // As many as came, not as it says.
        into.reserve(self.left.min(self.fields.rest().len() / 24));
        for _ in 0..self.left {
            // Two values of eight bytes, each behind its length.
            let row = self.fields.fixed::<24>().ok_or_else(|| malformed("fewer rows than it says"))?;
            let word = |at: usize| row[at..at + 8].try_into().map(u64::from_be_bytes);
            let (Ok(timestamp), Ok(value)) = (word(4), word(16)) else { unreachable!("of 24 bytes") };
            if row[..4] != [0, 0, 0, 8] || row[12..16] != [0, 0, 0, 8] {
                return Err(malformed("a row that is no reading"));
            }
            into.push(Reading { timestamp: timestamp as i64, value: f64::from_bits(value) });
        }
        Ok(self.paging_state)
    }
}

impl<'a> Row<'a> {
    fn value(&mut self) -> Option<&'a [u8]> {
        self.fields.value()
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.value()?).ok()
    }

    pub(super) fn boolean(&mut self) -> Option<bool> {
        self.value().map(|value| value == [1])
    }

    pub(super) fn int(&mut self) -> Option<u32> {
        self.value()?.try_into().ok().map(u32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.value()?.try_into().ok().map(i64::from_be_bytes)
    }
}
