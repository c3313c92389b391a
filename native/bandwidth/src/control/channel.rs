//! Frames over TCP, with a limit of time on each.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use failure::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest payload.
pub const LARGEST: usize = 4 << 20;

/// Deepest nesting of a message: serde may set a mebibyte aside for each map or list that is only announced.
const DEEPEST: usize = 4;

/// How often an end is looked for that somebody asked for.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes read at a time.
const READ_BYTES: usize = 16 << 10;

/// Of a connection that failed.
pub(crate) fn failed(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionAborted => closed(),
        _ => Failure::os("the connection failed", error),
    }
}

fn closed() -> Failure {
    Failure::PeerLost("the other end closed the connection".into())
}

/// Of an end that has said nothing for so long, or takes nothing more.
pub(crate) fn silent(limit: Duration) -> Failure {
    Failure::NoAnswer(format!("nothing came for {} s", limit.as_secs_f64()))
}

/// A failure of a channel as the listener tells it.
pub(crate) fn reason(failure: Failure) -> String {
    match failure {
        Failure::Protocol(what) => format!("what came is no message: {what}"),
        other => other.to_string(),
    }
}

/// One end of a conversation.
///
/// Its methods fail with [`Failure::PeerLost`] where the other end, or its machine, closed the connection, with
/// [`Failure::NoAnswer`] where nothing came or went within the time given, with [`Failure::Protocol`] where what came is no
/// message, with [`Failure::Cancelled`] where somebody asked for an end, and as the connection does.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    received: Vec<u8>,
    /// The other end will say no more than what has been read.
    closed: bool,
}

impl Channel {
    /// Over a connection.
    pub fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, received: Vec::new(), closed: false })
    }

    /// The connection.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends a message, within a time.
    pub fn send(&mut self, message: &impl Serialize, limit: Duration, cancel: &AtomicBool) -> Result<(), Failure> {
        let payload = rmp_serde::to_vec_named(message).map_err(|error| Failure::Protocol(error.to_string()))?;
        if payload.len() > LARGEST {
            return Err(Failure::Protocol(format!("{} bytes, more than {LARGEST}", payload.len())));
        }
        let mut frame = (payload.len() as u32).to_be_bytes().to_vec();
        frame.extend(payload);
        let end = Instant::now() + limit;
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err(closed()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(libc::POLLOUT, end, limit, cancel)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Waits for the next message, within a time.
    pub fn receive<T: DeserializeOwned>(&mut self, limit: Duration, cancel: &AtomicBool) -> Result<T, Failure> {
        let end = Instant::now() + limit;
        loop {
            if let Some(message) = self.heard()? {
                return Ok(message);
            }
            self.wait(libc::POLLIN, end, limit, cancel)?;
            self.fill()?;
        }
    }

    /// Reads what has come, without waiting.
    pub fn fill(&mut self) -> Result<(), Failure> {
        let mut bytes = [0; READ_BYTES];
        // What is more than a frame waits for its turn in the kernel.
        while self.received.len() < 4 + LARGEST {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.closed = true;
                    break;
                }
                Ok(read) => self.received.extend(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// The next message, if all of it has been read; the end of the conversation after the last.
    pub fn heard<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        let Some(payload) = self.payload()? else {
            // What was said before the end is heard before it.
            return if self.closed { Err(closed()) } else { Ok(None) };
        };
        let mut decoder = rmp_serde::Deserializer::from_read_ref(&payload);
        decoder.set_max_depth(DEEPEST);
        let message = T::deserialize(&mut decoder);
        message.map(Some).map_err(|error| Failure::Protocol(error.to_string()))
    }

    /// The next frame's payload, if all of it has been read.
    fn payload(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let Some((length, rest)) = self.received.split_first_chunk::<4>() else { return Ok(None) };
        let announced = u32::from_be_bytes(*length);
        let length = announced as usize;
        if !(1..=LARGEST).contains(&length) {
            return Err(Failure::Protocol(format!("a frame of {announced} bytes")));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let payload = rest[..length].to_vec();
        self.received.drain(..4 + length);
        Ok(Some(payload))
    }

    fn wait(&self, events: i16, end: Instant, limit: Duration, cancel: &AtomicBool) -> Result<(), Failure> {
        loop {
            if cancel.load(Ordering::Relaxed) {
                return Err(Failure::Cancelled);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(silent(limit));
            }
            if ready(&mut [(self.stream.as_raw_fd(), events)], left.min(LOOK)).map_err(failed)?[0] {
                return Ok(());
            }
        }
    }
}

/// Waits until one of some descriptors is ready for its events, or failed; which of them are.
pub(crate) fn ready<const N: usize>(wanted: &mut [(i32, i16); N], limit: Duration) -> io::Result<[bool; N]> {
    let mut polled = wanted.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    let timeout = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos() as i32),
    };
    // SAFETY: reads and writes so many descriptors' entries, and reads one time.
    let answer = unsafe { libc::ppoll(polled.as_mut_ptr(), N as libc::nfds_t, &raw const timeout, std::ptr::null()) };
    if answer < 0 {
        let error = io::Error::last_os_error();
        // As if nothing had happened: whoever waits looks for what the signal said, and waits on.
        return if error.kind() == io::ErrorKind::Interrupted { Ok([false; N]) } else { Err(error) };
    }
    Ok(polled.map(|entry| entry.revents != 0))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::control::message::{Answer, Report, Request};

    const LIMIT: Duration = Duration::from_secs(20);
    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn pair() -> (Channel, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Channel::over(one).unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn whatever_the_other_end_says_is_messages_or_an_error() {
        let (channel, _other) = pair();
        fuzz::fuzz("bandwidth", include_str!("../../../fuzz/corpus/bandwidth.txt"), |input| {
            let held =
                || Channel { stream: channel.stream.try_clone().unwrap(), received: input.to_vec(), closed: true };
            let mut asked = held();
            while let Ok(Some(_)) = asked.heard::<Request>() {}
            let mut answered = held();
            while let Ok(Some(_)) = answered.heard::<Answer>() {}
        });
    }

    #[test]
    fn messages_arrive_as_they_were_sent_however_large() {
        let (mut one, other) = pair();
        let report = Report { times: vec![7; 1 << 20].into(), received: 131_072, stepped_ns: -5, ..Report::default() };
        let answers = [Answer::Report(report), Answer::Armed { stream: 3 }];
        let sent = answers.clone();
        let sending = std::thread::spawn(move || {
            let mut other = Channel::over(other).unwrap();
            for answer in &sent {
                other.send(answer, LIMIT, &GO_ON).unwrap();
            }
            other
        });
        for answer in answers {
            assert_eq!(one.receive::<Answer>(LIMIT, &GO_ON).unwrap(), answer);
        }
        drop(sending.join().unwrap());
        assert!(matches!(one.receive::<Answer>(LIMIT, &GO_ON), Err(Failure::PeerLost(_))));
    }

    #[test]
    fn silence_ends_with_the_time_and_a_wish_to_end_at_once() {
        let (mut one, _other) = pair();
        let silence = one.receive::<Answer>(Duration::from_millis(20), &GO_ON);
        assert!(matches!(silence, Err(Failure::NoAnswer(_))));
        let cancelled = one.receive::<Answer>(LIMIT, &AtomicBool::new(true));
        assert!(matches!(cancelled, Err(Failure::Cancelled)));
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused_before_anything_is_kept() {
        for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], &b"\0\0\0\0"[..], &b"SSH-2.0-OpenSSH\r\n"[..]] {
            let (mut one, mut other) = pair();
            other.write_all(bytes).unwrap();
            let answer = one.receive::<Answer>(LIMIT, &GO_ON);
            assert!(matches!(answer, Err(Failure::Protocol(_))), "{answer:?}");
        }
    }
}
