//! What a probe carries: 36 bytes that say what it is, then random ones.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 16 | token of the session |
//! | 16 | 4 | number of the stream |
//! | 20 | 4 | number within the stream |
//! | 24 | 8 | when it was handed over, in nanoseconds of the sender's clock |
//! | 32 | 4 | how long after it was due, in nanoseconds, held within ±2.1 s: this and the time before it give the planned one |
//!
//! Numbers are little endian.  The rest of the payload is random, so that nothing on the path can compress it.

use std::net::IpAddr;

use failure::Failure;

use crate::control::token::{self, Token};

/// Bytes that say what a probe is; also the shortest payload.
pub const HEAD: usize = 36;

/// Shortest IP packet that a user may ask for.
pub const SHORTEST_BYTES: u32 = 64;

/// Longest IP packet that a user may ask for: jumbo frames.
pub const LONGEST_BYTES: u32 = 9000;

const STREAM_AT: usize = token::BYTES;
const SEQUENCE_AT: usize = 20;
const SENT_AT: usize = 24;
const LATE_AT: usize = 32;

/// Bytes of the IP and UDP headers, without options.
#[must_use]
pub const fn headers(address: &IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 28,
        IpAddr::V6(_) => 48,
    }
}

/// What a probe carries whose IP packet has so many bytes.
///
/// # Errors
/// [`Failure::Invalid`] beyond 64 to 9000 bytes, and below 84 over IPv6, whose headers are longer.
pub fn payload_bytes(packet_bytes: u32, address: &IpAddr) -> Result<u32, Failure> {
    let shortest = shortest(address);
    if (shortest..=LONGEST_BYTES).contains(&packet_bytes) {
        return Ok(packet_bytes - headers(address));
    }
    Err(Failure::Invalid(format!(
        "IP packets of {packet_bytes} B: accepted are {shortest} to {LONGEST_BYTES}, headers included"
    )))
}

/// Shortest IP packet of a probe to this address.
#[must_use]
pub fn shortest(address: &IpAddr) -> u32 {
    SHORTEST_BYTES.max(HEAD as u32 + headers(address))
}

/// Writes what is the same in all probes of a stream, and the random rest.
///
/// # Panics
/// When the payload is shorter than [`HEAD`].
pub fn fill(payload: &mut [u8], token: &Token, stream: u32) {
    payload[..STREAM_AT].copy_from_slice(token.bytes());
    payload[STREAM_AT..SEQUENCE_AT].copy_from_slice(&stream.to_le_bytes());
    // Any bytes that do not repeat will do (a linear congruential generator, Knuth's MMIX).
    let mut state = u64::from(stream) ^ 0x9e37_79b9_7f4a_7c15;
    for byte in &mut payload[HEAD..] {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
}

/// Writes what differs from probe to probe.
///
/// # Panics
/// When the payload is shorter than [`HEAD`].
#[inline]
pub fn write(payload: &mut [u8], sequence: u32, planned_ns: i64, actual_ns: i64) {
    let head = &mut payload[..HEAD];
    let late = (actual_ns - planned_ns).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    head[SEQUENCE_AT..SENT_AT].copy_from_slice(&sequence.to_le_bytes());
    head[SENT_AT..LATE_AT].copy_from_slice(&actual_ns.to_le_bytes());
    head[LATE_AT..HEAD].copy_from_slice(&late.to_le_bytes());
}

/// The head of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the stream.
    pub stream: u32,
    /// Number within the stream.
    pub sequence: u32,
    /// When it was handed over, by the sender's clock.
    pub actual_ns: i64,
    /// How long after it was due.
    pub late_ns: i32,
}

/// Reads the head of a packet; `None` unless it holds this token.
#[inline]
#[must_use]
pub fn parse(payload: &[u8], token: &Token) -> Option<Head> {
    let head = payload.first_chunk::<HEAD>()?;
    if !token.is(&head[..STREAM_AT]) {
        return None;
    }
    let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    let (low, high) = (u32::from_le_bytes(word(SENT_AT)), u32::from_le_bytes(word(SENT_AT + 4)));
    Some(Head {
        stream: u32::from_le_bytes(word(STREAM_AT)),
        sequence: u32::from_le_bytes(word(SEQUENCE_AT)),
        actual_ns: (u64::from(high) << 32 | u64::from(low)) as i64,
        late_ns: i32::from_le_bytes(word(LATE_AT)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_probe_is_read_as_it_was_written(
            stream in any::<u32>(), sequence in any::<u32>(), actual_ns in 0i64..i64::MAX / 2, late_ns in any::<i32>(), length in HEAD..1500,
        ) {
            let token = Token::random().unwrap();
            let mut payload = vec![0; length];
            fill(&mut payload, &token, stream);
            write(&mut payload, sequence, actual_ns - i64::from(late_ns), actual_ns);
            prop_assert_eq!(parse(&payload, &token), Some(Head { stream, sequence, actual_ns, late_ns }));
            prop_assert_eq!(parse(&payload, &Token::random().unwrap()), None);
            prop_assert_eq!(parse(&payload[..HEAD - 1], &token), None);
        }

        #[test]
        fn any_bytes_can_be_looked_at(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(parse(&bytes, &Token::random().unwrap()), None);
        }
    }

    #[test]
    fn lengths_are_of_the_ip_packet_and_checked() {
        let (four, six): (IpAddr, IpAddr) = ("127.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        assert_eq!(payload_bytes(1500, &four).unwrap(), 1472);
        assert_eq!(payload_bytes(64, &four).unwrap() as usize, HEAD);
        assert_eq!(payload_bytes(84, &six).unwrap() as usize, HEAD);
        assert_eq!(payload_bytes(9000, &six).unwrap(), 8952);
        for (wrong, address, range) in [(63, four, "64 to 9000"), (9001, four, "64 to 9000"), (83, six, "84 to 9000")] {
            let message = payload_bytes(wrong, &address).unwrap_err().to_string();
            assert!(message.contains(range), "{message}");
        }
    }

    #[test]
    fn what_fills_a_probe_does_not_repeat() {
        let mut payload = vec![0; 1472];
        fill(&mut payload, &Token::random().unwrap(), 1);
        let mut counts = [0u32; 256];
        payload[HEAD..].iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(counts.iter().all(|&count| count < 30), "{counts:?}");
    }
}
