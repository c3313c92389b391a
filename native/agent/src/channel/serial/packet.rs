//! The packets of a serial line, and how they are found among whatever else is on it.

use std::ops::Range;

/// Begins every packet; its first byte is nowhere else in one, and in no text.
const MARK: [u8; 2] = [0xd5, 0x1b];

/// Begins a pair that stands for the second byte with one bit flipped.
const ESCAPE: u8 = 0x7d;
const FLIP: u8 = 0x20;

/// Bytes of a stream in one packet, at most.
pub(super) const LONGEST: usize = 1024;

/// Kind, length, position, acknowledged; the payload and a checksum follow.
const HEADER: usize = 11;
const CHECKSUM: usize = 4;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The agent is there, and where its stream begins; answered with the same.
    Open = 1,
    /// Bytes of the stream, or none: an acknowledgement alone.
    Data = 2,
    /// The stream ends.
    Close = 3,
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    /// Of the first byte of the payload, in the sender's stream.
    pub(super) position: u32,
    /// Of the byte that the sender expects next.
    pub(super) acknowledged: u32,
    pub(super) payload: Vec<u8>,
}

impl Packet {
    /// Appends the packet as it goes over the line.
    pub(super) fn write_to(&self, line: &mut Vec<u8>) {
        let mut content = Vec::with_capacity(HEADER + self.payload.len() + CHECKSUM);
        content.push(self.kind as u8);
        content.extend_from_slice(&(self.payload.len() as u16).to_be_bytes());
        content.extend_from_slice(&self.position.to_be_bytes());
        content.extend_from_slice(&self.acknowledged.to_be_bytes());
        content.extend_from_slice(&self.payload);
        content.extend_from_slice(&crc32(&content).to_be_bytes());
        line.extend_from_slice(&MARK);
        for byte in content {
            if goes_as_two(byte) {
                line.extend_from_slice(&[ESCAPE, byte ^ FLIP]);
            } else {
                line.push(byte);
            }
        }
    }
}

/// What a console may keep for itself: Linux's hypervisor consoles take ^O, and what follows it, for a command to the
/// kernel; flow control is ^Q and ^S; ^] leaves a toolstack's console.  And what begins a pair or a packet.
const fn goes_as_two(byte: u8) -> bool {
    matches!(byte, 0x0f | 0x11 | 0x13 | 0x1d | ESCAPE) || byte == MARK[0]
}

/// Finds packets in what a line brings: after lost bytes, amid a kernel's messages, cut anywhere.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    buffer: Vec<u8>,
}

impl Scanner {
    /// The packets that these bytes complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Packet> {
        self.buffer.extend_from_slice(bytes);
        let mut packets = Vec::new();
        let mut start = 0;
        while let Some(found) = look(&self.buffer[start..]) {
            match found {
                Found::Packet(packet, length) => {
                    packets.push(packet);
                    start += length;
                }
                Found::Noise(length) => start += length,
            }
        }
        self.buffer.drain(..start);
        packets
    }
}

enum Found {
    Packet(Packet, usize),
    Noise(usize),
}

/// What these bytes begin with; `None` where more of them are needed to tell.
fn look(bytes: &[u8]) -> Option<Found> {
    let start = bytes.windows(2).position(|pair| pair == MARK);
    match start {
        Some(0) => {}
        Some(noise) => return Some(Found::Noise(noise)),
        // The last byte may be the first of a mark.
        None if bytes.len() > 1 => return Some(Found::Noise(bytes.len() - 1)),
        None => return None,
    }
    let next = bytes[1..].iter().position(|&byte| byte == MARK[0]);
    let line = &bytes[MARK.len()..next.map_or(bytes.len(), |next| next + 1)];
    // Where another packet begins already, this one was cut short.
    let unfinished = next.map(|_| Found::Noise(MARK.len()));
    let Some((head, _)) = first(line, HEADER) else { return unfinished };
    let word =
        |bytes: &[u8], range: Range<usize>| bytes[range].iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte));
    let kind = match head[0] {
        1 => Kind::Open,
        2 => Kind::Data,
        3 => Kind::Close,
        _ => return Some(Found::Noise(MARK.len())),
    };
    let length = word(&head, 1..3) as usize;
    if length > LONGEST {
        return Some(Found::Noise(MARK.len()));
    }
    let end = HEADER + length;
    let Some((content, taken)) = first(line, end + CHECKSUM) else { return unfinished };
    if crc32(&content[..end]) != word(&content, end..end + CHECKSUM) {
        return Some(Found::Noise(MARK.len()));
    }
    let packet = Packet {
        kind,
        position: word(&content, 3..7),
        acknowledged: word(&content, 7..11),
        payload: content[HEADER..end].to_vec(),
    };
    Some(Found::Packet(packet, MARK.len() + taken))
}

/// So many bytes, pairs put together, and how many they are on the line; `None` where there are not as many.
fn first(line: &[u8], count: usize) -> Option<(Vec<u8>, usize)> {
    let (mut found, mut taken) = (Vec::with_capacity(count), line.iter());
    while found.len() < count {
        found.push(match *taken.next()? {
            ESCAPE => taken.next()? ^ FLIP,
            byte => byte,
        });
    }
    Some((found, line.len() - taken.len()))
}

/// The CRC-32 of Ethernet and zlib (polynomial 0x04C11DB7, reflected).
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    !bytes.iter().fold(!0, |sum, &byte| TABLE[((sum ^ u32::from(byte)) & 0xff) as usize] ^ sum >> 8)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ value >> 1 } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(kind: Kind, payload: &[u8]) -> Packet {
        Packet { kind, position: 0xfffe_0001, acknowledged: 7, payload: payload.to_vec() }
    }

    fn line(packets: &[Packet]) -> Vec<u8> {
        let mut line = Vec::new();
        for packet in packets {
            packet.write_to(&mut line);
        }
        line
    }

    #[test]
    fn the_checksum_is_that_of_the_catalogue() {
        // The "check" value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn whatever_a_line_brings_is_the_same_however_it_is_cut() {
        fuzz::fuzz("serial", include_str!("../../../../fuzz/corpus/serial.txt"), |input| {
            let mut whole = Scanner::default();
            let found = whole.feed(input);
            assert!(whole.buffer.len() < MARK.len() + 2 * (HEADER + LONGEST + CHECKSUM));
            let size = input.first().map_or(1, |&first| 1 + usize::from(first % 16));
            let mut pieces = Scanner::default();
            let cut: Vec<Packet> = input.chunks(size).flat_map(|bytes| pieces.feed(bytes)).collect();
            assert_eq!(cut, found);
            assert_eq!(Scanner::default().feed(&line(&found)), found);
        });
    }

    #[test]
    fn one_wrong_bit_loses_one_packet() {
        let sent = [packet(Kind::Open, b"abc"), packet(Kind::Data, b"defgh"), packet(Kind::Close, b"")];
        let whole = line(&sent);
        let second = line(&sent[..1]).len();
        for bit in 0..8 * line(&sent[1..2]).len() {
            let mut broken = whole.clone();
            broken[second + bit / 8] ^= 1 << (bit % 8);
            // A length that claims too much hides nothing of what follows.
            let found = Scanner::default().feed(&broken);
            assert_eq!(found, [sent[0].clone(), sent[2].clone()], "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn packets_are_found_however_they_are_cut_and_whatever_is_between(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..6),
            noise in "[ -~\r\n]{0,40}",
            piece in 1usize..50,
        ) {
            let sent: Vec<Packet> = payloads.iter().map(|payload| packet(Kind::Data, payload)).collect();
            let whole: Vec<u8> = sent.iter().flat_map(|one| [noise.as_bytes(), &line(std::slice::from_ref(one))].concat()).collect();
            let mut scanner = Scanner::default();
            let found: Vec<Packet> = whole.chunks(piece).flat_map(|bytes| scanner.feed(bytes)).collect();
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn nothing_that_a_console_keeps_for_itself_is_in_a_packet(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let sent = packet(Kind::Data, &payload);
            let whole = line(std::slice::from_ref(&sent));
            prop_assert!(whole[1..].iter().all(|byte| ![0x0f, 0x11, 0x13, 0x1d, 0xd5].contains(byte)));
            prop_assert_eq!(Scanner::default().feed(&whole), [sent]);
        }

        #[test]
        fn noise_is_never_a_packet_and_is_not_kept(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let mut scanner = Scanner::default();
            prop_assert_eq!(scanner.feed(&bytes), []);
            prop_assert!(scanner.buffer.len() < MARK.len() + 2 * (HEADER + LONGEST + CHECKSUM));
        }
    }
}
