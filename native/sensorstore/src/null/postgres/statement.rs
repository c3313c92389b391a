//! What a prepared statement does, as far as a null server has to know: told by its first word and its types.

use uuid::Uuid;

use crate::drivers::postgres::dialect::Dialect;

/// A prepared statement.
#[derive(Clone, Copy)]
pub(super) enum Statement {
    Insert,
    Copy,
    Read(Dialect),
}

impl Statement {
    /// From its text, and its parameters' types as they stand in `Parse`.
    pub(super) fn of(text: &[u8], types: &[u8]) -> Self {
        match text.first() {
            Some(b'S') => {
                let time = Dialect::Questdb.time_type().to_be_bytes();
                let questdb = types.get(2..).is_some_and(|types| types.chunks(4).any(|number| number == time));
                Self::Read(if questdb { Dialect::Questdb } else { Dialect::Postgres })
            }
            Some(b'C') => Self::Copy,
            _ => Self::Insert,
        }
    }
}

/// A statement with its parameters.
pub(super) enum Portal {
    Insert { rows: usize },
    Copy,
    Read { sensor: Uuid, from: i64, to: i64, dialect: Dialect },
}

impl Portal {
    /// From what is in `Bind` behind the names; `None` where it makes no sense.
    pub(super) fn bound(statement: Statement, body: &[u8]) -> Option<Self> {
        let (formats, body) = count(body)?;
        let (parameters, mut rest) = count(body.get(2 * formats..)?)?;
        let mut take = || {
            let (length, behind) = rest.split_first_chunk()?;
            let (parameter, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            rest = behind;
            Some(parameter)
        };
        Some(match statement {
            Statement::Copy => Self::Copy,
            Statement::Insert => {
                take()?;
                // An array says its length behind its dimensions, its flags and its type.
                let rows =
                    take()?.get(12..16).map_or(1, |length| u32::from_be_bytes(length.try_into().unwrap_or_default()));
                Self::Insert { rows: rows as usize }
            }
            Statement::Read(dialect) => {
                let sensor = take()?;
                let sensor = Uuid::from_slice(sensor).or_else(|_| Uuid::try_parse_ascii(sensor)).ok()?;
                let from = i64::from_be_bytes(take()?.try_into().ok()?);
                let to = if parameters > 2 { i64::from_be_bytes(take()?.try_into().ok()?) } else { from };
                Self::Read { sensor, from, to, dialect }
            }
        })
    }
}

fn count(body: &[u8]) -> Option<(usize, &[u8])> {
    body.split_first_chunk().map(|(count, rest)| (usize::from(u16::from_be_bytes(*count)), rest))
}

/// The rows of one message of a binary COPY of three columns of 16, 8 and 8 bytes, header and trailer within.
pub(super) fn copied_rows(body: &[u8]) -> Option<usize> {
    const ROW_BYTES: usize = 2 + (4 + 16) + (4 + 8) + (4 + 8);
    Some(body.len().checked_sub(19 + 2)? / ROW_BYTES)
}

/// The rows of an INSERT as text; none of any other statement.
pub(super) fn inserted_rows(text: &[u8]) -> usize {
    let values = b" VALUES ";
    let start = text.windows(values.len()).position(|window| window == values);
    start.map_or(0, |start| text[start..].split(|byte| *byte == b'(').count() - 1)
}
