//! A terminal and a port joined into one stream: how the controller reaches the console of a guest in a guest.
//!
//! In the first domain of a Xen host that is itself a virtual machine, the console of another domain is a terminal, and
//! what leads to the controller is a virtio port.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use crate::channel::stream::{Input, Output};
use crate::init::Port;

const BUFFER_BYTES: usize = 4096;

/// Copies in both directions until one of them ends: the terminal is hung up, or the host has left the port.
///
/// `port` is as the kernel's command line names a channel (`virtio:NAME`); the host has to be there within a minute.
pub fn run(terminal: &Path, port: &str) -> io::Result<()> {
    let terminal = Port::at(terminal)?;
    let port = Port::open(port).map_err(io::Error::other)?;
    let (ended, ending) = mpsc::channel();
    for (name, from, to) in [("outwards", terminal.input, port.output), ("inwards", port.input, terminal.output)] {
        let ended = ended.clone();
        thread::Builder::new().name(name.into()).spawn(move || {
            // Whoever waits may have gone with the other direction.
            let _ = ended.send(copy(Input::new(from), Output::new(to)));
        })?;
    }
    ending.recv().unwrap_or(Ok(()))
}

fn copy(mut from: Input, mut to: Output) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count])?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn everything_is_copied_until_the_end() {
        let ((near, mut far), (onward, mut last)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let copier =
            thread::spawn(move || copy(Input::new(OwnedFd::from(near)), Output::new(OwnedFd::from(onward))).unwrap());
        let sent: Vec<u8> = (0..100_000u32).map(|index| (index % 251) as u8).collect();
        let expected = sent.clone();
        let sender = thread::spawn(move || far.write_all(&sent).unwrap());
        let mut received = Vec::new();
        last.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        copier.join().unwrap();
        assert!(received == expected);
    }

    #[test]
    fn a_terminal_that_is_not_there_is_an_error() {
        assert!(run(Path::new("/nowhere/to/be/found"), "virtio:none").is_err());
    }
}
