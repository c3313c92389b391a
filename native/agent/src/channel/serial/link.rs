//! One end of a link over a serial line, without any input or output of its own.
//!
//! Positions count the bytes of each direction, modulo 2³², from a random start that both share.

use std::collections::VecDeque;

use super::packet::{Kind, LONGEST, Packet};

/// Bytes that the controller may have under way to the agent: the buffer of a terminal in the guest is twice that.
const WINDOW: u16 = 2048;

/// Most that waits here to be read; what comes beyond is not acknowledged, and so is sent again.
const ROOM: usize = 8 << 20;

const VERSION: u8 = 2;

/// What becomes of a packet that came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing for the reader or writers.
    Nothing,
    /// The controller has answered: the link is open.
    Opened,
    /// Bytes came, or room to send others.
    Progress,
    /// The controller has ended the stream.
    Closed,
    /// It speaks another version of this.
    Version(u8),
}

/// The agent's end.
#[derive(Debug)]
pub(super) struct Link {
    /// Where both streams begin.
    start: u32,
    opened: bool,
    /// Bytes that the controller takes unacknowledged.
    window: usize,
    /// Oldest byte not acknowledged; the first of `pending`.
    base: u32,
    pending: VecDeque<u8>,
    /// How many of `pending` are under way.
    sent: usize,
    /// Everything from `base` was sent again at the controller's hint, which may not happen twice.
    gone_back: bool,
    expected: u32,
    received: VecDeque<u8>,
}

impl Link {
    pub(super) fn new(start: u32) -> Self {
        Self {
            start,
            opened: false,
            window: 0,
            base: start,
            pending: VecDeque::new(),
            sent: 0,
            gone_back: false,
            expected: start,
            received: VecDeque::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.opened
    }

    /// Position of the oldest byte that is not confirmed; it moves whenever the controller confirms something.
    pub(super) fn base(&self) -> u32 {
        self.base
    }

    /// Asks for the link; to be repeated until it is open.
    pub(super) fn ask(&mut self, out: &mut Vec<u8>) {
        let [high, low] = WINDOW.to_be_bytes();
        self.packet(Kind::Open, self.start, vec![VERSION, high, low]).write_to(out);
    }

    /// Takes a packet that came; what must be answered goes to `out`.
    pub(super) fn take(&mut self, packet: &Packet, out: &mut Vec<u8>) -> Event {
        match packet.kind {
            Kind::Open => self.take_answer(packet),
            _ if !self.opened => Event::Nothing,
            Kind::Close => Event::Closed,
            Kind::Data => {
                let moved = self.take_acknowledgement(packet);
                let came = self.take_payload(packet);
                if !packet.payload.is_empty() {
                    self.packet(Kind::Data, self.next(), Vec::new()).write_to(out);
                }
                self.transmit(out);
                if moved || came { Event::Progress } else { Event::Nothing }
            }
        }
    }

    fn take_answer(&mut self, packet: &Packet) -> Event {
        match packet.payload[..] {
            [VERSION, high, low, ..] if packet.position == self.start && !self.opened => {
                self.window = usize::from(u16::from_be_bytes([high, low])).max(1);
                self.opened = true;
                Event::Opened
            }
            [version, ..] if version != VERSION => Event::Version(version),
            _ => Event::Nothing,
        }
    }

    /// Whether the controller has confirmed something new.
    fn take_acknowledgement(&mut self, packet: &Packet) -> bool {
        let confirmed = packet.acknowledged.wrapping_sub(self.base) as usize;
        if confirmed == 0 && packet.payload.is_empty() && self.sent > 0 && !self.gone_back {
            // It confirms the same again because of a packet that it could not use: one before that was lost.
            self.gone_back = true;
            self.sent = 0;
        }
        // After going back, more may be confirmed than is under way for the second time.
        if confirmed == 0 || confirmed > self.pending.len() {
            return false;
        }
        self.pending.drain(..confirmed);
        self.base = self.base.wrapping_add(confirmed as u32);
        self.sent = self.sent.saturating_sub(confirmed);
        self.gone_back = false;
        true
    }

    /// Whether the packet brought bytes that had not come.
    fn take_payload(&mut self, packet: &Packet) -> bool {
        let known = self.expected.wrapping_sub(packet.position) as usize;
        let fresh = packet.payload.get(known..).unwrap_or_default();
        if fresh.is_empty() || self.received.len() + fresh.len() > ROOM {
            return false;
        }
        self.received.extend(fresh);
        self.expected = self.expected.wrapping_add(fresh.len() as u32);
        true
    }

    /// Moves what came into the buffer; how much that was.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.received.len());
        for (target, byte) in buffer.iter_mut().zip(self.received.drain(..count)) {
            *target = byte;
        }
        count
    }

    /// Takes bytes to be sent, as many as the window has room for; how many that were.
    pub(super) fn write(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let count = bytes.len().min(self.window.saturating_sub(self.pending.len()));
        self.pending.extend(&bytes[..count]);
        self.transmit(out);
        count
    }

    /// Whether something can be written.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < self.window
    }

    /// Whether all that was written is confirmed.
    pub(super) fn settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Sends everything again that is not confirmed.
    pub(super) fn repeat(&mut self, out: &mut Vec<u8>) {
        self.sent = 0;
        self.transmit(out);
    }

    /// Says that the stream ends.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) {
        self.packet(Kind::Close, self.next(), Vec::new()).write_to(out);
    }

    fn transmit(&mut self, out: &mut Vec<u8>) {
        while self.sent < self.pending.len() {
            let end = self.pending.len().min(self.sent + LONGEST);
            let payload = self.pending.range(self.sent..end).copied().collect();
            self.packet(Kind::Data, self.next(), payload).write_to(out);
            self.sent = end;
        }
    }

    /// Position of the byte that is sent next.
    fn next(&self) -> u32 {
        self.base.wrapping_add(self.sent as u32)
    }

    fn packet(&self, kind: Kind, position: u32, payload: Vec<u8>) -> Packet {
        Packet { kind, position, acknowledged: self.expected, payload }
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Scanner;
    use super::*;

    const START: u32 = u32::MAX - 100;

    fn from_controller(kind: Kind, position: u32, acknowledged: u32, payload: &[u8]) -> Packet {
        Packet { kind, position, acknowledged, payload: payload.to_vec() }
    }

    fn opened(window: u16) -> Link {
        let mut link = Link::new(START);
        let [high, low] = window.to_be_bytes();
        let answer = from_controller(Kind::Open, START, START, &[VERSION, high, low]);
        assert_eq!(link.take(&answer, &mut Vec::new()), Event::Opened);
        link
    }

    fn sent(out: &[u8]) -> Vec<Packet> {
        Scanner::default().feed(out)
    }

    #[test]
    fn nothing_but_an_answer_of_its_own_session_opens_it() {
        let mut link = Link::new(START);
        let mut out = Vec::new();
        for packet in [
            from_controller(Kind::Open, START + 1, START, &[VERSION, 8, 0]),
            from_controller(Kind::Open, START, START, &[]),
            from_controller(Kind::Data, START, START, b"hello"),
            from_controller(Kind::Close, START, START, b""),
        ] {
            assert_eq!(link.take(&packet, &mut out), Event::Nothing);
        }
        assert_eq!(link.write(b"x", &mut out), 0);
        assert!(out.is_empty());
        let other = from_controller(Kind::Open, START, START, &[9, 8, 0]);
        assert_eq!(link.take(&other, &mut out), Event::Version(9));
    }

    #[test]
    fn no_more_is_under_way_than_the_window_and_positions_wrap() {
        let mut link = opened(1500);
        let mut out = Vec::new();
        assert_eq!(link.write(&[7; 4000], &mut out), 1500);
        let packets = sent(&out);
        assert_eq!(packets.iter().map(|packet| packet.payload.len()).collect::<Vec<_>>(), [1024, 476]);
        assert_eq!(packets[1].position, START.wrapping_add(1024));
        assert_eq!(link.write(&[7; 4000], &mut out), 0);
        out.clear();
        let confirmed = from_controller(Kind::Data, START, START.wrapping_add(1024), b"");
        assert_eq!(link.take(&confirmed, &mut out), Event::Progress);
        assert!(out.is_empty());
        assert_eq!(link.write(&[7; 4000], &mut out), 1024);
    }

    #[test]
    fn a_repeated_confirmation_sends_again_once() {
        let mut link = opened(4000);
        let mut out = Vec::new();
        link.write(&[7; 3000], &mut out);
        out.clear();
        let repeated = from_controller(Kind::Data, START, START, b"");
        link.take(&repeated, &mut out);
        assert_eq!(sent(&out).len(), 3);
        out.clear();
        link.take(&repeated, &mut out);
        assert!(out.is_empty());
        link.repeat(&mut out);
        assert_eq!(sent(&out).len(), 3, "but after a while, again");
    }

    #[test]
    fn a_gap_is_not_read_over_and_what_is_known_is_read_once() {
        let mut link = opened(4000);
        let mut out = Vec::new();
        let gap = from_controller(Kind::Data, START.wrapping_add(3), START, b"defg");
        assert_eq!(link.take(&gap, &mut out), Event::Nothing);
        assert_eq!(sent(&out)[0].acknowledged, START);
        for (position, payload) in [(START, b"abcd".as_slice()), (START, b"abcd"), (START.wrapping_add(2), b"cdefg")] {
            link.take(&from_controller(Kind::Data, position, START, payload), &mut out);
        }
        assert_eq!(sent(&out).last().map(|packet| packet.acknowledged), Some(START.wrapping_add(7)));
        let mut text = [0; 20];
        assert_eq!(link.read(&mut text), 7);
        assert_eq!(&text[..7], b"abcdefg");
    }

    #[test]
    fn what_waits_to_be_read_is_bounded() {
        let mut link = opened(4000);
        let mut position = START;
        for _ in 0..2 * ROOM / LONGEST {
            link.take(&from_controller(Kind::Data, position, START, &[7; LONGEST]), &mut Vec::new());
            position = link.expected;
        }
        assert_eq!(link.received.len(), ROOM);
        link.read(&mut [0; LONGEST]);
        let next = from_controller(Kind::Data, position, START, &[7; LONGEST]);
        assert_eq!(link.take(&next, &mut Vec::new()), Event::Progress);
    }
}
