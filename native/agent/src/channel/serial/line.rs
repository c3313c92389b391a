//! The agent's end of a serial line: a thread reads packets, and whoever writes repeats what is not confirmed.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::link::{Event, Link};
use super::packet::Scanner;
use crate::channel::stream::{Input, Output};

/// How often the agent asks for the link before the controller is there.
const ASK_EVERY: Duration = Duration::from_millis(250);

/// How long it asks: a person may have to connect the line first.
const ASK_FOR: Duration = Duration::from_secs(600);

/// Without any confirmation for so long, everything is sent again; then after twice that, and so on up to the longest.
const REPEAT_AFTER: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// Without any confirmation for so long, the controller is gone.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

const READ_SIZE: usize = 4096;

/// What the controller sends over the line.
#[derive(Debug)]
pub struct SerialInput(Arc<Line>);

/// What it is sent.  Flushing waits until the controller has it.
#[derive(Debug)]
pub struct SerialOutput(Arc<Line>);

#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    link: Link,
    output: Output,
    ended: Option<Ended>,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    /// In order, or the line was hung up.
    Closed,
    Failed(ErrorKind),
}

/// Opens the link over a line that passes every byte; waits until the controller has answered.
pub fn open(input: OwnedFd, output: OwnedFd) -> io::Result<(SerialInput, SerialOutput)> {
    let (mut state, mut scanner) =
        (State { link: Link::new(random()?), output: Output::new(output), ended: None }, Scanner::default());
    meet(&input, &mut state, &mut scanner)?;
    let line = Arc::new(Line { state: Mutex::new(state), changed: Condvar::new() });
    let (reader, device) = (Arc::clone(&line), Input::new(input));
    thread::Builder::new().name("serial line".into()).spawn(move || reader.receive(device, scanner))?;
    Ok((SerialInput(Arc::clone(&line)), SerialOutput(line)))
}

/// Asks until the controller answers.
fn meet(input: &OwnedFd, state: &mut State, scanner: &mut Scanner) -> io::Result<()> {
    let mut buffer = [0; READ_SIZE];
    let started = Instant::now();
    while started.elapsed() < ASK_FOR {
        state.send(Link::ask)?;
        let asked = Instant::now();
        while asked.elapsed() < ASK_EVERY {
            let count = match nix::unistd::read(input, &mut buffer) {
                Ok(0) | Err(Errno::EIO) => return Err(io::Error::other("the serial line was hung up")),
                Ok(count) => count,
                Err(Errno::EAGAIN | Errno::EINTR) => {
                    wait_until(input, asked + ASK_EVERY)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for packet in scanner.feed(&buffer[..count]) {
                // With the answer, there can be nothing more in these bytes than the first packets of the stream.
                match state.send(|link, out| link.take(&packet, out))? {
                    Event::Version(version) => {
                        return Err(io::Error::other(format!(
                            "the controller's serial stream is of version {version}"
                        )));
                    }
                    Event::Closed => return Err(io::Error::other("the controller has closed the line at once")),
                    Event::Nothing | Event::Opened | Event::Progress => {}
                }
            }
            if state.link.is_open() {
                return Ok(());
            }
        }
    }
    Err(io::Error::other(format!("no controller answered on the serial line within {} s", ASK_FOR.as_secs())))
}

fn wait_until(input: &OwnedFd, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    match poll(&mut polled, PollTimeout::from(u16::try_from(left).unwrap_or(u16::MAX))) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl State {
    /// Does something with the link and sends what it comes to.
    fn send<Value>(&mut self, action: impl FnOnce(&mut Link, &mut Vec<u8>) -> Value) -> io::Result<Value> {
        let mut out = Vec::new();
        let value = action(&mut self.link, &mut out);
        self.output.write_all(&out)?;
        Ok(value)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes packets until the line or the stream ends.
    fn receive(&self, mut device: Input, mut scanner: Scanner) {
        let mut buffer = [0; READ_SIZE];
        let ended = loop {
            match device.read(&mut buffer) {
                Ok(0) => break Ended::Closed,
                Err(error) => break Ended::Failed(error.kind()),
                Ok(count) => {
                    if let Some(ended) = self.take(&scanner.feed(&buffer[..count])) {
                        break ended;
                    }
                }
            }
        };
        self.end(ended);
    }

    fn take(&self, packets: &[super::packet::Packet]) -> Option<Ended> {
        let mut state = self.lock();
        for packet in packets {
            match state.send(|link, out| link.take(packet, out)) {
                Ok(Event::Closed) => return Some(Ended::Closed),
                Ok(Event::Progress) => self.changed.notify_all(),
                Ok(Event::Nothing | Event::Opened | Event::Version(_)) => {}
                Err(error) => return Some(Ended::Failed(error.kind())),
            }
        }
        None
    }

    fn end(&self, ended: Ended) {
        self.lock().ended.get_or_insert(ended);
        self.changed.notify_all();
    }

    /// Waits until something holds or the stream has ended, and repeats meanwhile what the controller does not confirm.
    fn wait_for(&self, holds: impl Fn(&Link) -> bool) -> io::Result<()> {
        let mut state = self.lock();
        let (mut pause, mut progress) = (REPEAT_AFTER, Instant::now());
        let mut repeat_at = progress + pause;
        let mut base = state.link.base();
        loop {
            if holds(&state.link) {
                return Ok(()); // also where the end of the stream came with the last confirmation
            }
            if state.ended.is_some() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let now = Instant::now();
            if base != state.link.base() {
                base = state.link.base();
                (pause, progress, repeat_at) = (REPEAT_AFTER, now, now + REPEAT_AFTER);
            } else if now >= progress + GIVE_UP_AFTER {
                state.ended = Some(Ended::Failed(ErrorKind::TimedOut));
                self.changed.notify_all();
                return Err(ErrorKind::TimedOut.into());
            } else if now >= repeat_at {
                state.send(Link::repeat)?;
                pause = (2 * pause).min(LONGEST_PAUSE);
                repeat_at = now + pause;
            }
            let wait = repeat_at.saturating_duration_since(now);
            state = self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Read for SerialInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        loop {
            let count = state.link.read(buffer);
            match state.ended {
                _ if count > 0 || buffer.is_empty() => return Ok(count),
                Some(Ended::Closed) => return Ok(0),
                Some(Ended::Failed(kind)) => return Err(kind.into()),
                None => state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Write for SerialOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.0.wait_for(Link::has_room)?;
            let mut state = self.0.lock();
            if state.ended.is_some() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let count = state.send(|link, out| link.write(bytes, out))?;
            if count > 0 || bytes.is_empty() {
                return Ok(count);
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.wait_for(Link::settled)
    }
}

impl Drop for SerialOutput {
    fn drop(&mut self) {
        // The machine may go on without its agent, so the end of the line does not tell the end of the stream.
        let _ = self.0.lock().send(Link::close);
        self.0.end(Ended::Closed);
    }
}

fn random() -> io::Result<u32> {
    let mut bytes = [0; 4];
    // SAFETY: the kernel writes no more than the buffer holds.
    let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if count == 4 {
        return Ok(u32::from_ne_bytes(bytes));
    }
    // A kernel that has just started may have no random numbers yet; its clock differs from boot to boot.
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_REALTIME)?;
    Ok(time.tv_nsec() as u32 ^ time.tv_sec() as u32)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::packet::{Kind, Packet};
    use super::*;

    /// The controller's part of a conversation, by hand.
    struct Controller {
        stream: UnixStream,
        scanner: Scanner,
        packets: Vec<Packet>,
    }

    impl Controller {
        fn next(&mut self) -> Packet {
            while self.packets.is_empty() {
                let mut buffer = [0; READ_SIZE];
                let count = self.stream.read(&mut buffer).unwrap();
                assert!(count > 0, "the agent went away");
                self.packets = self.scanner.feed(&buffer[..count]);
            }
            self.packets.remove(0)
        }

        fn send(&mut self, kind: Kind, position: u32, acknowledged: u32, payload: &[u8]) {
            let mut line = Vec::new();
            Packet { kind, position, acknowledged, payload: payload.to_vec() }.write_to(&mut line);
            self.stream.write_all(&line).unwrap();
        }
    }

    fn nonblocking(stream: &UnixStream) -> (OwnedFd, OwnedFd) {
        stream.set_nonblocking(true).unwrap();
        (stream.try_clone().unwrap().into(), stream.try_clone().unwrap().into())
    }

    fn met() -> (Controller, SerialInput, SerialOutput, u32) {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (input, output) = nonblocking(&near);
        drop(near);
        let opening = thread::spawn(move || open(input, output).unwrap());
        let mut controller = Controller { stream: far, scanner: Scanner::default(), packets: Vec::new() };
        let asked = controller.next();
        assert_eq!(asked.kind, Kind::Open);
        controller.stream.write_all(b"garbage before the answer").unwrap();
        controller.send(Kind::Open, asked.position, asked.position, &[2, 0x40, 0]);
        let (input, output) = opening.join().unwrap();
        controller.packets.clear();
        (controller, input, output, asked.position)
    }

    #[test]
    fn it_asks_until_it_is_answered() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (input, output) = nonblocking(&near);
        drop(near);
        let opening = thread::spawn(move || open(input, output).map(|_| ()));
        let mut scanner = Scanner::default();
        let mut asked = Vec::new();
        while asked.len() < 3 {
            let mut buffer = [0; READ_SIZE];
            let count = far.read(&mut buffer).unwrap();
            asked.extend(scanner.feed(&buffer[..count]));
        }
        assert!(asked.iter().all(|packet| *packet == asked[0]));
        drop(far);
        let error = opening.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("hung up"), "{error}");
    }

    #[test]
    fn what_is_lost_is_sent_again_and_a_flush_waits_for_it() {
        let (mut controller, _input, mut output, start) = met();
        let writing = thread::spawn(move || {
            output.write_all(b"answer").unwrap();
            output.flush().unwrap();
            output
        });
        let first = controller.next();
        assert_eq!((first.kind, first.payload.as_slice()), (Kind::Data, b"answer".as_slice()));
        // Not confirmed: as if it had been lost.
        assert_eq!(controller.next(), first);
        assert!(!writing.is_finished());
        controller.send(Kind::Data, start, start.wrapping_add(6), b"");
        drop(writing.join().unwrap());
        let mut last = controller.next();
        while last.kind == Kind::Data {
            last = controller.next();
        }
        assert_eq!(last.kind, Kind::Close);
    }

    #[test]
    fn a_reader_gets_everything_and_then_the_end() {
        let (mut controller, mut input, _output, start) = met();
        controller.send(Kind::Data, start, start, b"que");
        controller.send(Kind::Data, start.wrapping_add(3), start, b"stion");
        controller.send(Kind::Close, start.wrapping_add(8), start, b"");
        let mut text = String::new();
        input.read_to_string(&mut text).unwrap();
        assert_eq!(text, "question");
    }

    #[test]
    fn a_writer_whose_line_is_hung_up_is_told() {
        let (controller, _input, mut output, _) = met();
        drop(controller);
        let error = output.write_all(&vec![7; 100_000]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
