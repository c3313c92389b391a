//! What PostgreSQL and QuestDB, which speaks its protocol, keep in another way.

use bytes::{BufMut, BytesMut};
use uuid::Uuid;

// PostgreSQL's numbers of types (pg_type.dat).
const INT8: u32 = 20;
const VARCHAR: u32 = 1043;
const TIMESTAMP: u32 = 1114;
const UUID: u32 = 2950;

/// 2000-01-01 in milliseconds since 1970: where a binary `timestamp` is zero.
const TIMESTAMP_ZERO_MS: i64 = 946_684_800_000;

/// Whose columns they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `uuid`; milliseconds as `bigint`.
    Postgres,
    /// A symbol, which is a text in the protocol; microseconds as `timestamp`.
    Questdb,
}

impl Dialect {
    /// The type of the sensor as a parameter.
    pub(crate) fn sensor_type(self) -> u32 {
        match self {
            Self::Postgres => UUID,
            Self::Questdb => VARCHAR,
        }
    }

    /// The type of a time as a parameter.
    pub(crate) fn time_type(self) -> u32 {
        match self {
            Self::Postgres => INT8,
            Self::Questdb => TIMESTAMP,
        }
    }

    /// The sensor as a parameter.
    pub(crate) fn put_sensor(self, sensor: Uuid, output: &mut BytesMut) {
        match self {
            Self::Postgres => output.put_slice(sensor.as_bytes()),
            Self::Questdb => output.put_slice(sensor.hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes()),
        }
    }

    /// Milliseconds since 1970 as a binary parameter; the first and the last that can be said stand for what is beyond.
    pub(crate) fn binary_time(self, milliseconds: i64) -> i64 {
        match self {
            Self::Postgres => milliseconds,
            Self::Questdb => milliseconds.saturating_sub(TIMESTAMP_ZERO_MS).saturating_mul(1000),
        }
    }

    /// Milliseconds since 1970 from a binary result.
    pub(crate) fn milliseconds(self, time: i64) -> i64 {
        match self {
            Self::Postgres => time,
            Self::Questdb => time.div_euclid(1000) + TIMESTAMP_ZERO_MS,
        }
    }

    /// Milliseconds since 1970 as the number that stands in a statement: QuestDB's literals count from 1970.
    pub(crate) fn literal_time(self, milliseconds: i64) -> i64 {
        match self {
            Self::Postgres => milliseconds,
            Self::Questdb => milliseconds.saturating_mul(1000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_went() {
        for dialect in [Dialect::Postgres, Dialect::Questdb] {
            for time in [-5, 0, 946_684_800_000, 1_577_836_800_123] {
                assert_eq!(dialect.milliseconds(dialect.binary_time(time)), time);
            }
        }
        assert_eq!(Dialect::Questdb.binary_time(946_684_800_001), 1000);
    }
}
