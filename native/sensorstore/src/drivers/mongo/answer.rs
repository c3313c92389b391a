//! What the server answers: its errors, counts and rows.

use std::fmt::Display;

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use crate::failure::{Failure, Kind};
use crate::store::{Reading, Window};

/// BSON's type of a document within another.
const EMBEDDED_DOCUMENT: u8 = 3;

/// An answer that is no answer to what was asked.
pub(super) fn malformed(what: &impl Display) -> Failure {
    Failure::new(Kind::Database, format!("the server answers what MongoDB does not: {what}"))
}

/// From the codes in MongoDB's `error_codes.yml` to what the caller needs to tell apart.
fn kind(code: i64, message: &str) -> Kind {
    match code {
        _ if message.contains("No space left on device") => Kind::Full,
        // Unauthorized, AuthenticationFailed.
        13 | 18 => Kind::Denied,
        // NamespaceNotFound, InvalidNamespace.
        26 | 73 => Kind::Schema,
        // NamespaceExists.
        48 => Kind::Exists,
        // OutOfDiskSpace.
        14031 => Kind::Full,
        // LockTimeout, MaxTimeMSExpired, NetworkTimeout, ExceededTimeLimit.
        24 | 50 | 89 | 262 => Kind::Timeout,
        // ShutdownInProgress, InterruptedAtShutdown.
        91 | 11600 => Kind::Lost,
        // CommandNotFound, CommandNotSupported, NotWritablePrimary.
        59 | 115 | 10107 => Kind::Unsupported,
        _ => Kind::Database,
    }
}

fn number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(number) => Some(number as i64),
        _ => None,
    }
}

/// The code of the error that an answer is; `None` where it is none.
pub(super) fn code(answer: &RawDocument) -> Option<i64> {
    answer.get("code").ok().flatten().and_then(number)
}

fn failure(error: &RawDocument) -> Failure {
    let message = error.get_str("errmsg").unwrap_or("an error without a message");
    let code = code(error).unwrap_or(0);
    Failure::new(kind(code, message), format!("{message} (MongoDB error {code})"))
}

/// That an answer is none of a failure.
///
/// # Errors
/// What the server says: of the whole command, of a document to be written, or of the write concern.
pub(super) fn check(answer: &RawDocument) -> Result<(), Failure> {
    checked_writes(answer).map(drop)
}

/// How many documents a write has written.
///
/// # Errors
/// As [`check`].
pub(super) fn checked_writes(answer: &RawDocument) -> Result<Option<i64>, Failure> {
    let (mut succeeded, mut written) = (false, None);
    for element in answer {
        let (name, value) = element.map_err(|error| malformed(&error))?;
        match (name, value) {
            ("ok", value) => succeeded = number(value) == Some(1),
            ("n", value) => written = number(value),
            ("writeErrors", RawBsonRef::Array(errors)) => {
                if let Some(Ok(RawBsonRef::Document(first))) = errors.into_iter().next() {
                    return Err(failure(first));
                }
            }
            ("writeConcernError", RawBsonRef::Document(error)) => return Err(failure(error)),
            _ => {}
        }
    }
    if succeeded { Ok(written) } else { Err(failure(answer)) }
}

/// A count in an answer.
///
/// # Errors
/// `database` where it has none of this name.
pub(super) fn count(answer: &RawDocument, name: &str) -> Result<u64, Failure> {
    let count = answer.get(name).ok().flatten().and_then(number);
    count.and_then(|count| count.try_into().ok()).ok_or_else(|| malformed(&format!("no count `{name}`")))
}

/// The documents of a cursor's first batch.
///
/// # Errors
/// `database` where the answer has none.
pub(super) fn first_batch(answer: &RawDocument) -> Result<&RawArray, Failure> {
    let cursor = answer.get_document("cursor").map_err(|error| malformed(&error))?;
    cursor.get_array("firstBatch").map_err(|error| malformed(&error))
}

/// What a group of readings was reckoned to; nothing was where there is no group.
///
/// # Errors
/// `database` for what is no such group.
pub(super) fn window(answer: &RawDocument) -> Result<Window, Failure> {
    let Some(group) = first_batch(answer)?.into_iter().next() else { return Ok(Window::default()) };
    let RawBsonRef::Document(group) = group.map_err(|error| malformed(&error))? else {
        return Err(malformed(&"a group that is no document"));
    };
    let number = |name: &str| group.get_f64(name).map_err(|error| malformed(&error));
    Ok(Window { count: count(group, "count")?, mean: number("mean")?, min: number("min")?, max: number("max")? })
}

/// Adds the readings of a cursor's batch, and says which cursor has more; 0 for none.
///
/// # Errors
/// What the server says, or `database` for what is no batch of readings.
pub(super) fn readings(answer: &RawDocument, into: &mut Vec<Reading>) -> Result<i64, Failure> {
    let mut more = None;
    for element in answer {
        let ("cursor", RawBsonRef::Document(cursor)) = element.map_err(|error| malformed(&error))? else { continue };
        for element in cursor {
            match element.map_err(|error| malformed(&error))? {
                ("id", value) => more = number(value),
                ("firstBatch" | "nextBatch", RawBsonRef::Array(rows)) if !all_as_projected(rows.as_bytes(), into) => {
                    return Err(malformed(&"rows that are no readings"));
                }
                _ => {}
            }
        }
    }
    match more {
        Some(more) => Ok(more),
        None => Err(check(answer).err().unwrap_or_else(|| malformed(&"no cursor"))),
    }
}

/// A row, as the projection of the statement has it made: timestamp and value, at fixed places.
const ROW_BYTES: usize = 32;
const BEFORE_TIMESTAMP: &[u8] = b"\x20\0\0\0\x12ts\0";
const BEFORE_VALUE: &[u8] = b"\x01value\0";

/// Adds the rows of a batch; whether all of it are such rows.  To look for the fields of each by their names made a read
/// of a thousand rows cost the client seven times as much (108 against 15 µs, null server).
fn all_as_projected(array: &[u8], into: &mut Vec<Reading>) -> bool {
    let mut rest = array.get(4..).unwrap_or_default();
    while let [EMBEDDED_DOCUMENT, element @ ..] = rest {
        let index = element.iter().position(|byte| *byte == 0);
        let Some(row) = index.and_then(|end| element[end + 1..].first_chunk::<ROW_BYTES>()) else { return false };
        if !row.starts_with(BEFORE_TIMESTAMP) || !row[16..].starts_with(BEFORE_VALUE) || row[ROW_BYTES - 1] != 0 {
            return false;
        }
        let word = |at: usize| row[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        into.push(Reading { timestamp: word(8) as i64, value: f64::from_bits(word(23)) });
        rest = &element[index.map_or(0, |end| end + 1) + ROW_BYTES..];
    }
    rest == [0]
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn rows_are_read_at_their_places_only_where_they_are_laid_out_so() {
        let mut read = Vec::new();
        let batch = rawdoc! { "rows": [{ "ts": 7_i64, "value": 0.5 }, { "ts": -1_i64, "value": -2.0 }] };
        assert!(all_as_projected(batch.get_array("rows").unwrap().as_bytes(), &mut read));
        let expected = [Reading { timestamp: 7, value: 0.5 }, Reading { timestamp: -1, value: -2.0 }];
        assert_eq!(read, expected);
        for other in [
            rawdoc! { "rows": [{ "value": 0.5, "ts": 7_i64 }] },
            rawdoc! { "rows": [{ "ts": 7_i64 }] },
            rawdoc! { "rows": [{ "ts": 7_i64, "value": 1_i64 }] },
            rawdoc! { "rows": [7] },
        ] {
            assert!(!all_as_projected(other.get_array("rows").unwrap().as_bytes(), &mut read));
        }
    }

    #[test]
    fn a_batch_that_is_cut_off_is_none() {
        let batch = rawdoc! { "rows": [{ "ts": 7_i64, "value": 0.5 }] };
        let whole = batch.get_array("rows").unwrap().as_bytes();
        for length in 0..whole.len() {
            assert!(!all_as_projected(&whole[..length], &mut Vec::new()), "{length}");
        }
    }
}
