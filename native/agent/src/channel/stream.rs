//! Byte streams over file descriptors of any kind: pipes, sockets, virtio ports, terminals.
//!
//! A descriptor may be non-blocking, because its other end set it so (sockets of container runtimes) or because the
//! device needs it; both directions therefore wait in `poll` when the descriptor says that it would block.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};

/// The receiving side.  End of stream reads as zero bytes, however the device words it.
#[derive(Debug)]
pub struct Input {
    descriptor: OwnedFd,
    lease: Option<Duration>,
}

/// The sending side.  A peer that went away is [`ErrorKind::BrokenPipe`].
#[derive(Debug)]
pub struct Output {
    descriptor: OwnedFd,
}

impl Input {
    /// Reads from the descriptor from now on.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, lease: None }
    }

    /// The stream ends, as if the controller had gone, when nothing has come for so long.
    ///
    /// A network that fails tells nobody; only what is not heard any more does.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease: Some(lease), ..self }
    }

    /// Waits for something to read for as long as the lease runs; false when it has run out.
    fn heard(&self) -> io::Result<bool> {
        let Some(lease) = self.lease else { return Ok(true) };
        let deadline = Instant::now() + lease;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            // One millisecond more than remains, so that rounding down does not make it spin.
            let bound = PollTimeout::try_from(remaining + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut polled, bound) {
                Ok(0) if remaining.is_zero() => return Ok(false),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Output {
    /// Writes to the descriptor from now on.
    #[must_use]
    pub fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.heard()? {
                return Ok(0);
            }
            match nix::unistd::read(&self.descriptor, buffer) {
                Ok(count) => return Ok(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    wait(&self.descriptor, PollFlags::POLLIN)?;
                }
                // A reset socket, a virtio port that was unplugged, a terminal that was hung up.
                Err(Errno::ECONNRESET | Errno::EPIPE | Errno::ENODEV | Errno::EIO) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::write(&self.descriptor, bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let events = wait(&self.descriptor, PollFlags::POLLOUT)?;
                    if !events.contains(PollFlags::POLLOUT) {
                        return Err(ErrorKind::BrokenPipe.into());
                    }
                }
                Err(Errno::ECONNRESET | Errno::EPIPE | Errno::ENODEV | Errno::EIO) => {
                    return Err(ErrorKind::BrokenPipe.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sleeps until the descriptor is ready, broken or hung up, and says which.
fn wait(descriptor: &OwnedFd, events: PollFlags) -> io::Result<PollFlags> {
    let mut polled = [PollFd::new(descriptor.as_fd(), events)];
    loop {
        match nix::poll::poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => return Ok(polled[0].revents().unwrap_or(PollFlags::POLLERR)),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn nonblocking_pair() -> (UnixStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    #[test]
    fn a_nonblocking_socket_is_waited_for() {
        let (near, mut far) = nonblocking_pair();
        let sender = thread::spawn(move || {
            for byte in [b"a", b"b", b"c"] {
                thread::sleep(Duration::from_millis(5));
                far.write_all(byte).unwrap();
            }
        });
        let mut text = [0; 3];
        Input::new(near.into()).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"abc");
        sender.join().unwrap();
    }

    #[test]
    fn a_full_nonblocking_socket_is_waited_for_and_nothing_is_lost() {
        let (near, mut far) = nonblocking_pair();
        let sent: Vec<u8> = (0..2_000_000u32).map(|index| (index % 251) as u8).collect();
        let expected = sent.clone();
        let receiver = thread::spawn(move || {
            let mut received = Vec::new();
            thread::sleep(Duration::from_millis(20));
            far.read_to_end(&mut received).unwrap();
            received
        });
        let mut output = Output::new(near.into());
        output.write_all(&sent).unwrap();
        drop(output);
        assert!(receiver.join().unwrap() == expected);
    }

    #[test]
    fn a_lease_ends_the_stream_of_a_silent_peer_and_is_renewed_by_each_byte() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut input = Input::new(near.into()).with_lease(Duration::from_millis(300));
        let sender = thread::spawn(move || {
            for _ in 0..4 {
                thread::sleep(Duration::from_millis(100));
                far.write_all(b"x").unwrap();
            }
            far
        });
        let mut byte = [0];
        for _ in 0..4 {
            assert_eq!(input.read(&mut byte).unwrap(), 1);
        }
        let silent = sender.join().unwrap();
        assert_eq!(input.read(&mut byte).unwrap(), 0);
        drop(silent);
    }

    #[test]
    fn a_peer_that_left_is_a_broken_pipe() {
        let (near, far) = nonblocking_pair();
        drop(far);
        // The standard library ignores SIGPIPE in every program, tests included.
        let error = Output::new(near.into()).write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }
}
