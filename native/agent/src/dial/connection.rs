//! A TLS connection whose two directions are used by different threads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use rustls::ClientConnection;

/// A controller that has not let itself be heard for so long is gone; it does so four times as often.
const LEASE: Duration = Duration::from_secs(600);

/// Both directions; neither waits while it holds the lock, so that each can go on while the other cannot.
#[derive(Debug)]
struct Shared {
    tls: Mutex<ClientConnection>,
    socket: TcpStream,
    heard: AtomicBool,
}

/// The receiving side.  End of stream reads as zero bytes, however it came.
#[derive(Debug)]
pub(super) struct SecureInput(Arc<Shared>);

/// The sending side.  A peer that went away is [`ErrorKind::BrokenPipe`].
#[derive(Debug)]
pub(super) struct SecureOutput(Arc<Shared>);

/// Tells afterwards whether anything was ever received.
#[derive(Debug)]
pub(super) struct Heard(Arc<Shared>);

impl Heard {
    pub(super) fn anything(&self) -> bool {
        self.0.heard.load(Ordering::Relaxed)
    }
}

/// Splits a connection that is past its handshake.
pub(super) fn split(tls: ClientConnection, socket: TcpStream) -> io::Result<(SecureInput, SecureOutput, Heard)> {
    socket.set_nonblocking(true)?;
    let shared = Arc::new(Shared { tls: Mutex::new(tls), socket, heard: AtomicBool::new(false) });
    Ok((SecureInput(Arc::clone(&shared)), SecureOutput(Arc::clone(&shared)), Heard(shared)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the socket is ready, broken or hung up; false when nothing was for as long as the lease.
    fn wait(&self, events: PollFlags) -> io::Result<bool> {
        let bound = PollTimeout::try_from(LEASE).unwrap_or(PollTimeout::MAX);
        let mut polled = [PollFd::new(self.socket.as_fd(), events)];
        loop {
            match nix::poll::poll(&mut polled, bound) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes what has come, if it can be had without waiting: `None` when there is nothing yet.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut tls = self.lock();
        loop {
            match tls.reader().read(buffer) {
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match tls.read_tls(&mut &self.socket) {
                Ok(0) => return Ok(Some(0)),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if gone(&error) => return Ok(Some(0)),
                Err(error) => return Err(error),
            }
            let processed = tls.process_new_packets();
            while tls.wants_write() && tls.write_tls(&mut &self.socket).is_ok() {}
            processed.map_err(io::Error::other)?;
        }
    }
}

impl Read for SecureInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(count) = self.0.receive(buffer)? {
                self.0.heard.fetch_or(count > 0, Ordering::Relaxed);
                return Ok(count);
            }
            if !self.0.wait(PollFlags::POLLIN)? {
                return Ok(0);
            }
        }
    }
}

impl Write for SecureOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.0.lock().writer().write(bytes)?;
        self.flush()?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        loop {
            {
                let mut tls = self.0.lock();
                while tls.wants_write() {
                    match tls.write_tls(&mut &self.0.socket) {
                        Ok(_) => {}
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) if gone(&error) => return Err(ErrorKind::BrokenPipe.into()),
                        Err(error) => return Err(error),
                    }
                }
                if !tls.wants_write() {
                    return Ok(());
                }
            }
            if !self.0.wait(PollFlags::POLLOUT)? {
                return Err(ErrorKind::BrokenPipe.into());
            }
        }
    }
}

/// Whether an error only says that the other side, or the way to it, is no longer there.
fn gone(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | HostUnreachable | NetworkUnreachable | TimedOut
    )
}
