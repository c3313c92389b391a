//! The test frame: Ethernet, IPv4, UDP, and 18 bytes of payload that say which frame it is and when it was sent.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 14 | Ethernet |
//! | 14 | 20 | IPv4, no options |
//! | 34 | 8 | UDP |
//! | 42 | 4 | session |
//! | 46 | 2 | flow |
//! | 48 | 4 | sequence number within the flow |
//! | 52 | 8 | time of sending, ns of `CLOCK_MONOTONIC`; 0 in a frame that is not timed |
//! | 60 | – | a fixed pattern |
//!
//! Payload fields are little endian, so that an eBPF program on the machines this runs on stores them as they are.

use std::net::Ipv4Addr;

/// Bytes that differ from frame to frame or from flow to flow; also the shortest frame, less its check sequence.
pub const HEAD: usize = 60;

/// Bytes of Ethernet's frame check sequence, which standards count and software never sees.
pub const CHECK_SEQUENCE: usize = 4;

/// Longest frame, less its check sequence.
pub const LONGEST: usize = 1514;

/// UDP port to which test frames go: `discard`.
pub const PORT: u16 = 9;

const ETHERNET: usize = 14;
const UDP_AT: usize = 34;
const UDP_CHECKSUM_AT: usize = 40;
const SESSION_AT: usize = 42;
const FLOW_AT: usize = 46;
const SEQUENCE_AT: usize = 48;
const TIME_AT: usize = 52;
const ADDRESSES_AT: usize = 26;
const UDP_PROTOCOL: u8 = 17;

/// Where a flow's frames come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Ethernet source.
    pub source_mac: [u8; 6],
    /// Ethernet destination: of the first hop.
    pub destination_mac: [u8; 6],
    /// IPv4 source.
    pub source: Ipv4Addr,
    /// IPv4 destination.
    pub destination: Ipv4Addr,
}

/// The head of a flow's frames, complete but for sequence number, time and checksum.
#[derive(Clone, Debug)]
pub struct Template {
    /// The first bytes of each frame, with zeroes where frames differ.
    pub head: [u8; HEAD],
    /// One's complement sum of everything that the UDP checksum covers and that does not differ.
    pub sum: u32,
}

impl Template {
    /// For the frames of one flow; `length` is less the check sequence.
    #[must_use]
    pub fn new(flow: &Flow, session: u32, number: u16, length: usize) -> Self {
        assert!((HEAD..=LONGEST).contains(&length), "a frame has {HEAD} to {LONGEST} bytes, not {length}");
        let mut head = [0; HEAD];
        head[..6].copy_from_slice(&flow.destination_mac);
        head[6..12].copy_from_slice(&flow.source_mac);
        head[12..14].copy_from_slice(&0x0800u16.to_be_bytes());
        head[14] = 0x45;
        head[16..18].copy_from_slice(&((length - ETHERNET) as u16).to_be_bytes());
        head[20] = 0x40; // not to be fragmented
        head[22] = 64; // hops that it may take
        head[23] = UDP_PROTOCOL;
        head[26..30].copy_from_slice(&flow.source.octets());
        head[30..34].copy_from_slice(&flow.destination.octets());
        let header_checksum = !folded(sum_of(&head[ETHERNET..UDP_AT]));
        head[24..26].copy_from_slice(&header_checksum.to_le_bytes());
        let udp_length = ((length - UDP_AT) as u16).to_be_bytes();
        head[34..36].copy_from_slice(&PORT.to_be_bytes());
        head[36..38].copy_from_slice(&PORT.to_be_bytes());
        head[38..40].copy_from_slice(&udp_length);
        head[SESSION_AT..FLOW_AT].copy_from_slice(&session.to_le_bytes());
        head[FLOW_AT..SEQUENCE_AT].copy_from_slice(&number.to_le_bytes());
        let pattern: Vec<u8> = (HEAD..length).map(pattern_at).collect();
        let sum = pseudo_header(&head) + sum_of(&head[UDP_AT..]) + sum_of(&pattern);
        Self { head, sum: u32::from(folded(sum)) }
    }

    /// Writes the head of one frame.  What lies behind it stays, see [`fill`].
    #[inline]
    pub fn write(&self, frame: &mut [u8], sequence: u32, time_ns: u64) {
        let frame = &mut frame[..HEAD];
        frame.copy_from_slice(&self.head);
        frame[SEQUENCE_AT..TIME_AT].copy_from_slice(&sequence.to_le_bytes());
        frame[TIME_AT..HEAD].copy_from_slice(&time_ns.to_le_bytes());
        let words = |value: u64| (value & 0xffff) + (value >> 16 & 0xffff) + (value >> 32 & 0xffff) + (value >> 48);
        let checksum = !folded(u64::from(self.sum) + words(u64::from(sequence)) + words(time_ns));
        // Zero means that there is none.
        let checksum = if checksum == 0 { 0xffff } else { checksum };
        frame[UDP_CHECKSUM_AT..SESSION_AT].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Writes the pattern behind the head, once for a buffer that serves many frames.
pub fn fill(frame: &mut [u8]) {
    for (at, byte) in frame.iter_mut().enumerate().skip(HEAD) {
        *byte = pattern_at(at);
    }
}

fn pattern_at(at: usize) -> u8 {
    at as u8
}

/// What a frame turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// One of this session's, unharmed.
    Test {
        /// Number of its flow.
        flow: u16,
        /// Its number within the flow.
        sequence: u32,
        /// When it was sent; 0 when it is not timed.
        time_ns: u64,
    },
    /// One of this session's, with another length or a wrong checksum.
    Corrupted,
    /// Anything else.
    Foreign,
}

impl Frame {
    /// Judges received bytes: any bytes.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8], session: u32, length: usize) -> Self {
        let Some(head) = bytes.first_chunk::<HEAD>() else { return Self::Foreign };
        let fixed = head[12..15] == [0x08, 0x00, 0x45] && head[23] == UDP_PROTOCOL;
        if !fixed || head[36..38] != PORT.to_be_bytes() || head[SESSION_AT..FLOW_AT] != session.to_le_bytes() {
            return Self::Foreign;
        }
        let lengths = head[16..18] == ((length - ETHERNET) as u16).to_be_bytes()
            && head[38..40] == ((length - UDP_AT) as u16).to_be_bytes();
        if bytes.len() != length || !lengths || folded(sum_of(&head[ETHERNET..UDP_AT])) != 0xffff {
            return Self::Corrupted;
        }
        let summed = head[UDP_CHECKSUM_AT..SESSION_AT] != [0, 0];
        if summed && folded(pseudo_header(head) + sum_of(&bytes[UDP_AT..])) != 0xffff {
            return Self::Corrupted;
        }
        Self::Test {
            flow: u16::from_le_bytes([head[FLOW_AT], head[FLOW_AT + 1]]),
            sequence: u32::from_le_bytes([head[48], head[49], head[50], head[51]]),
            time_ns: u64::from_le_bytes([
                head[52], head[53], head[54], head[55], head[56], head[57], head[58], head[59],
            ]),
        }
    }
}

/// The addresses, protocol and length that the UDP checksum covers as well.
fn pseudo_header(head: &[u8; HEAD]) -> u64 {
    let length = u64::from(u16::from_le_bytes([head[38], head[39]]));
    sum_of(&head[ADDRESSES_AT..UDP_AT]) + u64::from(u16::from_be(u16::from(UDP_PROTOCOL)).to_le()) + length
}

/// Sum of 16-bit words as they lie in memory (RFC 1071: the order of their bytes does not matter to the folded sum).
fn sum_of(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let rest = words.remainder();
    let mut sum: u64 = words.map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))).sum();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += u64::from(u32::from_le_bytes(last));
    sum
}

fn folded(sum: u64) -> u16 {
    let mut sum = sum;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOW: Flow = Flow {
        source_mac: [2, 0, 0, 0, 0, 1],
        destination_mac: [2, 0, 0, 0, 0, 2],
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 1, 0, 2),
    };

    fn frame(session: u32, flow: u16, length: usize, sequence: u32, time_ns: u64) -> Vec<u8> {
        let mut bytes = vec![0; length];
        fill(&mut bytes);
        Template::new(&FLOW, session, flow, length).write(&mut bytes, sequence, time_ns);
        bytes
    }

    /// Word by word in network order, as RFC 1071 says.
    fn plain_checksum(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for word in bytes.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// What a router does to a frame: other addresses, one hop less, the checksum adjusted (RFC 1624).
    fn forward(bytes: &mut [u8]) {
        bytes[..12].copy_from_slice(&[9; 12]);
        bytes[22] -= 1;
        bytes[24..26].fill(0);
        let checksum = plain_checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    }

    #[test]
    fn whatever_passes_as_a_frame_is_what_was_sent() {
        fuzz::fuzz("frame", include_str!("../../fuzz/corpus/frame.txt"), |input| {
            let length = input.len().clamp(HEAD, LONGEST);
            for session in [7, 0] {
                let Frame::Test { flow, sequence, time_ns } = Frame::parse(input, session, length) else { continue };
                let again = frame(session, flow, length, sequence, time_ns);
                assert_eq!(input[SESSION_AT..HEAD], again[SESSION_AT..HEAD]);
            }
        });
    }

    #[test]
    fn the_header_is_what_the_standards_say() {
        let bytes = frame(1, 2, 60, 3, 4);
        assert_eq!(bytes[..14], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
        assert_eq!(bytes[14..24], [0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(plain_checksum(&bytes[14..34]), 0);
        assert_eq!(bytes[26..42], [10, 0, 0, 1, 10, 1, 0, 2, 0, 9, 0, 9, 0, 26, bytes[40], bytes[41]]);
        let pseudo = [&bytes[26..34], &[0, 17, 0, 26], &bytes[34..]].concat();
        assert_eq!(plain_checksum(&pseudo), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_also_behind_routers(
            session in any::<u32>(), flow in any::<u16>(), length in HEAD..=LONGEST, sequence in any::<u32>(),
            time_ns in any::<u64>(), hops in 0usize..10,
        ) {
            let mut bytes = frame(session, flow, length, sequence, time_ns);
            for _ in 0..hops {
                forward(&mut bytes);
            }
            prop_assert_eq!(Frame::parse(&bytes, session, length), Frame::Test { flow, sequence, time_ns });
            prop_assert_eq!(Frame::parse(&bytes, session.wrapping_add(1), length), Frame::Foreign);
        }

        #[test]
        fn a_frame_without_udp_checksum_is_accepted(length in HEAD..=LONGEST, sequence in any::<u32>()) {
            let mut bytes = frame(7, 1, length, sequence, 5);
            bytes[40..42].fill(0);
            prop_assert_eq!(Frame::parse(&bytes, 7, length), Frame::Test { flow: 1, sequence, time_ns: 5 });
        }

        #[test]
        fn one_flipped_bit_never_passes(length in HEAD..=LONGEST, bit in 0usize..HEAD * 8, behind in any::<usize>()) {
            let mut bytes = frame(7, 1, length, 5, 9);
            // In the Ethernet addresses, nobody could tell; every other bit is under a checksum or compared.
            let bit = if bit < 96 { 96 + behind % ((length - 12) * 8) } else { bit };
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!matches!(Frame::parse(&bytes, 7, length), Frame::Test { .. }), "bit {}", bit);
        }

        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200), length in HEAD..=LONGEST) {
            prop_assert_eq!(Frame::parse(&bytes, 0x1234_5678, length), Frame::Foreign);
        }

        #[test]
        fn a_frame_cut_short_or_padded_is_no_test_frame(length in HEAD..=LONGEST, cut in 1usize..40) {
            let mut bytes = frame(7, 1, length, 5, 9);
            let expected = if length - cut.min(length) < HEAD { Frame::Foreign } else { Frame::Corrupted };
            prop_assert_eq!(Frame::parse(&bytes[..length - cut], 7, length), expected);
            bytes.extend(vec![0; cut]);
            prop_assert_eq!(Frame::parse(&bytes, 7, length), Frame::Corrupted);
        }
    }
}
