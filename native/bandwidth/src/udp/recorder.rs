//! The listener's account of what came.

use failure::Failure;

use crate::control::message::{COALESCED, Ignored, Report};
use crate::control::token::Token;
use crate::udp::packet;

/// Most probes of a stream that are told one by one: so many fit into a report.
pub const MOST_TOLD: u32 = 200_000;

/// Most probes of a stream that are only counted.
pub const MOST_COUNTED: u32 = 1 << 28;

/// What will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Number of the stream.
    pub stream: u32,
    /// How many at most.
    pub packets: u32,
    /// Length of what each carries.
    pub payload_bytes: u32,
    /// They are counted only.
    pub count_only: bool,
}

/// What one stream has brought so far.
#[derive(Debug)]
struct Current {
    expected: Expected,
    /// One bit for each number; empty where they are only counted.
    seen: Vec<u64>,
    report: Report,
    last_ns: Option<i64>,
    ignored_before: Ignored,
}

/// Judges what comes during a session.
#[derive(Debug)]
pub struct Recorder {
    token: Token,
    current: Option<Current>,
    ignored: Ignored,
}

impl Recorder {
    /// For the session of this token.
    #[must_use]
    pub fn new(token: Token) -> Self {
        Self { token, current: None, ignored: Ignored::default() }
    }

    /// Begins with a stream.
    ///
    /// # Errors
    /// [`Failure::Invalid`] for one that is too long to be told, or whose packets cannot be probes.
    pub fn expect(&mut self, expected: &Expected) -> Result<(), Failure> {
        let most = if expected.count_only { MOST_COUNTED } else { MOST_TOLD };
        if !(1..=most).contains(&expected.packets) {
            return Err(Failure::Invalid(format!(
                "a stream of {} packets: accepted are 1 to {most}",
                expected.packets
            )));
        }
        if !(packet::HEAD as u32..packet::LONGEST_BYTES).contains(&expected.payload_bytes) {
            return Err(Failure::Invalid(format!("probes that carry {} B", expected.payload_bytes)));
        }
        let words = if expected.count_only { 0 } else { expected.packets.div_ceil(64) as usize };
        let report = Report { stream: expected.stream, ..Report::default() };
        let (seen, ignored_before) = (vec![0; words], self.ignored);
        self.current = Some(Current { expected: *expected, seen, report, last_ns: None, ignored_before });
        Ok(())
    }

    /// Whether a stream is under way.
    #[must_use]
    pub fn expects(&self) -> bool {
        self.current.is_some()
    }

    /// Different probes of this stream so far, or all where they are only counted.
    #[must_use]
    pub fn received(&self) -> u32 {
        self.current.as_ref().map_or(0, |current| current.report.received)
    }

    /// Everything that was ignored since the session began.
    #[must_use]
    pub fn ignored(&self) -> Ignored {
        self.ignored
    }

    /// Counts a packet of somebody who has no session.
    pub fn ignore_stranger(&mut self) {
        self.ignored.stranger += 1;
    }

    /// Judges a packet from the session's address: its beginning, its whole length, and when it came.  Whether it is
    /// one that the stream was still waiting for.
    #[inline]
    pub fn observe(&mut self, beginning: &[u8], length: usize, at_ns: i64, flags: u8) -> bool {
        let Some(head) = packet::parse(beginning, &self.token) else {
            self.ignored.wrong_token += 1;
            return false;
        };
        let Some(current) = &mut self.current else {
            self.ignored.stale += 1;
            return false;
        };
        let expected = &current.expected;
        if head.stream != expected.stream {
            self.ignored.stale += 1;
            return false;
        }
        if head.sequence >= expected.packets || length != expected.payload_bytes as usize {
            self.ignored.malformed += 1;
            return false;
        }
        if !expected.count_only {
            let (word, bit) = (head.sequence as usize / 64, 1 << (head.sequence % 64));
            if current.seen[word] & bit != 0 {
                current.report.duplicates += 1;
                return false;
            }
            current.seen[word] |= bit;
            // One stamp for several packets: they came in one piece, whoever divided it.
            let coalesced = if current.last_ns == Some(at_ns) { COALESCED } else { 0 };
            current.report.sequences.extend(head.sequence.to_le_bytes());
            current.report.times.extend(at_ns.to_le_bytes());
            current.report.flags.push(flags | coalesced);
            current.last_ns = Some(at_ns);
        }
        current.report.received = current.report.received.saturating_add(1);
        true
    }

    /// Ends the stream: what came of it.  `None` when there is none.
    pub fn finish(&mut self) -> Option<Report> {
        let mut current = self.current.take()?;
        current.report.ignored = self.ignored.since(&current.ignored_before);
        Some(current.report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::message::BY_PROGRAM;

    const EXPECTED: Expected = Expected { stream: 7, packets: 100, payload_bytes: 200, count_only: false };

    fn probe(token: &Token, stream: u32, sequence: u32) -> Vec<u8> {
        let mut payload = vec![0; 200];
        packet::fill(&mut payload, token, stream);
        packet::write(&mut payload, sequence, 0, 0);
        payload
    }

    fn recorder() -> (Recorder, Token) {
        let token = Token::random().unwrap();
        let mut recorder = Recorder::new(token);
        recorder.expect(&EXPECTED).unwrap();
        (recorder, token)
    }

    #[test]
    fn each_probe_counts_once_and_stands_in_the_order_of_arrival() {
        let (mut recorder, token) = recorder();
        for (at_ns, sequence) in [(10, 0), (20, 2), (30, 1), (40, 2), (50, 99)] {
            recorder.observe(&probe(&token, 7, sequence), 200, at_ns, 0);
        }
        let report = recorder.finish().unwrap();
        assert_eq!((report.received, report.duplicates), (4, 1));
        let sequences: Vec<u32> =
            report.sequences.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        let times: Vec<i64> = report.times.chunks(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!((sequences, times), (vec![0, 2, 1, 99], vec![10, 20, 30, 50]));
        assert_eq!(report.flags.as_slice(), [0; 4]);
    }

    #[test]
    fn packets_of_one_stamp_are_marked_from_the_second_on() {
        let (mut recorder, token) = recorder();
        for (sequence, at_ns) in [(0, 10), (1, 10), (2, 10), (3, 20)] {
            recorder.observe(&probe(&token, 7, sequence), 200, at_ns, BY_PROGRAM);
        }
        let marked = BY_PROGRAM | COALESCED;
        assert_eq!(recorder.finish().unwrap().flags.as_slice(), [BY_PROGRAM, marked, marked, BY_PROGRAM]);
    }

    #[test]
    fn what_does_not_belong_to_the_stream_is_ignored_and_counted_by_its_kind() {
        let (mut recorder, token) = recorder();
        let stranger = Token::random().unwrap();
        recorder.ignore_stranger();
        assert!(!recorder.observe(&probe(&stranger, 7, 0), 200, 0, 0));
        assert!(!recorder.observe(&probe(&token, 7, 0)[..20], 20, 0, 0));
        assert!(!recorder.observe(&probe(&token, 6, 0), 200, 0, 0));
        assert!(!recorder.observe(&probe(&token, 7, 100), 200, 0, 0));
        assert!(!recorder.observe(&probe(&token, 7, 0), 199, 0, 0));
        let report = recorder.finish().unwrap();
        assert_eq!(report.ignored, Ignored { stranger: 1, wrong_token: 2, stale: 1, malformed: 2 });
        assert_eq!((report.received, report.ignored.total()), (0, 6));
        // After its end, a straggler is stale; the next stream's account does not hold what came before it.
        assert!(!recorder.observe(&probe(&token, 7, 0), 200, 0, 0));
        recorder.expect(&Expected { stream: 8, ..EXPECTED }).unwrap();
        assert_eq!(recorder.finish().unwrap().ignored, Ignored::default());
        assert_eq!(recorder.ignored().stale, 2);
    }

    #[test]
    fn a_stream_that_is_only_counted_takes_no_memory_for_each_probe() {
        let (mut recorder, token) = recorder();
        recorder.expect(&Expected { packets: MOST_COUNTED, count_only: true, ..EXPECTED }).unwrap();
        (0..1000).for_each(|sequence| assert!(recorder.observe(&probe(&token, 7, sequence % 10), 200, 0, 0)));
        let report = recorder.finish().unwrap();
        assert_eq!((report.received, report.times.len()), (1000, 0));
    }

    #[test]
    fn streams_beyond_the_limits_are_refused() {
        let (mut recorder, _) = recorder();
        for wrong in [
            Expected { packets: 0, ..EXPECTED },
            Expected { packets: MOST_TOLD + 1, ..EXPECTED },
            Expected { payload_bytes: 35, ..EXPECTED },
            Expected { payload_bytes: 9000, ..EXPECTED },
        ] {
            assert!(matches!(recorder.expect(&wrong), Err(Failure::Invalid(_))), "{wrong:?}");
        }
    }
}
