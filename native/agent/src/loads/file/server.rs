//! The agent's own file service.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hptime::OsClock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::statfs::{FsType, fstatfs};
use serde::{Deserialize, Serialize};

use super::own::{Operation, Request, WELCOME, read_greeting};
use super::{LARGEST_FILE, LONGEST_BLOCK, LONGEST_TEXT, MOST_FILES};
use crate::cancellation::Cancellation;
use crate::failure::Failure;
use crate::loads::Load;
use crate::parameters::{Int, Parsed, Text};
use crate::roots::Folder;

/// How long a stranger may take to show the token.
const GREETING_TIME: Duration = Duration::from_secs(5);

/// Most connections at a time, those that have not shown the token among them.
const MOST_CONNECTIONS: usize = 2 * MOST_FILES as usize;

const STACK_BYTES: usize = 128 * 1024;

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    address: Parsed<IpAddr>,
    port: Int<1, 65_535>,
    token: Text<LONGEST_TEXT>,
    folder: Option<Text<1024>>,
}

/// A service that runs.
#[derive(Debug)]
pub struct FileServer {
    service: Arc<Service>,
    stop: Arc<Cancellation>,
    acceptor: JoinHandle<()>,
    started_ns: u64,
}

/// What a service did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileServerWork {
    elapsed_ns: u64,
    /// Where the files were, as the kernel names its kind; `None` where it is none that is known here.
    filesystem: Option<&'static str>,
    read_bytes: u64,
    written_bytes: u64,
    /// Reads, writes and flushes.
    operations: u64,
    flushes: u64,
    /// Operations that failed.
    errors: u64,
    /// Connections that showed the token.
    connections: u64,
    /// And those that did not.
    refused: u64,
}

/// What the connections share.
#[derive(Debug)]
struct Service {
    folder: Folder,
    /// Whether files have names there, or each connection has one without.
    by_name: bool,
    token: String,
    filesystem: Option<&'static str>,
    counts: Counts,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Counts {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    operations: AtomicU64,
    flushes: AtomicU64,
    errors: AtomicU64,
    connections: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct Connections {
    closing: bool,
    open: Vec<(Arc<TcpStream>, JoinHandle<()>)>,
}

impl Load for FileServer {
    const NAME: &'static str = "file_server";
    type Parameters = Asked;
    type Work = FileServerWork;

    /// Listens on the address, and on no other.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let address = SocketAddr::new(asked.address.0, asked.port.0 as u16);
        let (token, by_name) = (asked.token.0, asked.folder.is_some());
        let folder = asked.folder.map_or_else(Folder::working, |path| Folder::make(&path.0))?;
        if !by_name {
            let made = folder.unnamed();
            made.map_err(|error| Failure::os("making a file in the folder in which the agent was started", &error))?;
        }
        let listener =
            TcpListener::bind(address).map_err(|error| Failure::os(&format!("listening on {address}"), &error))?;
        listener.set_nonblocking(true).map_err(|error| Failure::os("making a socket non-blocking", &error))?;
        let stop = Arc::new(Cancellation::new().map_err(|error| Failure::os("eventfd", &error))?);
        let filesystem = filesystem(&folder);
        let (counts, connections) = (Counts::default(), Mutex::default());
        let service = Arc::new(Service { folder, by_name, token, filesystem, counts, connections });
        let acceptor = {
            let (service, stop) = (Arc::clone(&service), Arc::clone(&stop));
            named("file-server").spawn(move || accept(&listener, &service, &stop))
        };
        let acceptor = acceptor.map_err(|error| Failure::os("starting a thread", &error))?;
        Ok(Self { service, stop, acceptor, started_ns: OsClock::Monotonic.now_ns() })
    }

    fn halt(&mut self) {
        self.stop.request();
        let mut connections = self.service.connections();
        connections.closing = true;
        for (stream, _) in &connections.open {
            // One that the client has closed is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn finish(self) -> FileServerWork {
        let _ = self.acceptor.join();
        let open = std::mem::take(&mut self.service.connections().open);
        for (_, thread) in open {
            let _ = thread.join();
        }
        if self.service.by_name {
            for file in 0..MOST_FILES as u16 {
                self.service.folder.remove(&name(file));
            }
        }
        self.service.folder.remove_if_empty();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.service.counts;
        FileServerWork {
            elapsed_ns: OsClock::Monotonic.now_ns().saturating_sub(self.started_ns),
            filesystem: self.service.filesystem,
            read_bytes: count(&counts.read_bytes),
            written_bytes: count(&counts.written_bytes),
            operations: count(&counts.operations),
            flushes: count(&counts.flushes),
            errors: count(&counts.errors),
            connections: count(&counts.connections),
            refused: count(&counts.refused),
        }
    }
}

fn name(file: u16) -> String {
    format!("file-{file}")
}

fn named(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.into()).stack_size(STACK_BYTES)
}

fn accept(listener: &TcpListener, service: &Arc<Service>, stop: &Cancellation) {
    while !stop.requested() {
        let refused = match listener.accept() {
            Ok((stream, _)) => {
                service.admit(stream);
                continue;
            }
            Err(error) => error.kind(),
        };
        let mut polled =
            [PollFd::new(stop.descriptor(), PollFlags::POLLIN), PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut polled[..awaited(refused)], PollTimeout::from(1000u16));
    }
}

/// How many of the two are waited for: where no descriptor is left for a connection, another one is no news for a second.
fn awaited(refused: io::ErrorKind) -> usize {
    match refused {
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => 2,
        _ => 1,
    }
}

impl Service {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection on a thread of its own; closes it when there are too many.
    fn admit(self: &Arc<Self>, stream: TcpStream) {
        let mut connections = self.connections();
        connections.open.retain(|(_, thread)| !thread.is_finished());
        if connections.closing || connections.open.len() == MOST_CONNECTIONS {
            return;
        }
        let stream = Arc::new(stream);
        let (service, served) = (Arc::clone(self), Arc::clone(&stream));
        let spawned = named("file-server").spawn(move || {
            // A client that goes away or breaks the protocol harms only itself.
            let _ = service.serve(&served);
            let _ = served.shutdown(Shutdown::Both);
        });
        if let Ok(thread) = spawned {
            connections.open.push((stream, thread));
        }
    }

    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING_TIME))?;
        let number = read_greeting(&mut stream, &self.token).ok().filter(|&file| u64::from(file) < MOST_FILES);
        let Some(number) = number else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        stream.set_read_timeout(None)?;
        let file = if self.by_name { self.folder.file(&name(number)) } else { self.folder.unnamed() }?;
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        stream.write_all(&[WELCOME])?;
        let mut block = Vec::new();
        while let Some(request) = Request::read(&mut stream)? {
            self.answer(request, &file, &mut block, stream)?;
        }
        Ok(())
    }

    fn answer(&self, request: Request, file: &File, block: &mut Vec<u8>, mut stream: &TcpStream) -> io::Result<()> {
        let end = request.offset.checked_add(request.length);
        if request.length > LONGEST_BLOCK || end.is_none_or(|end| end > LARGEST_FILE) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The answer's error number stands before the block.
        let length = request.length as usize;
        block.resize(4 + length, 0);
        let (answered, done) = match request.operation {
            Operation::Read => {
                let done = file.read_exact_at(&mut block[4..], request.offset);
                (if done.is_ok() { 4 + length } else { 4 }, done)
            }
            Operation::Write => {
                stream.read_exact(&mut block[4..])?;
                (4, file.write_all_at(&block[4..], request.offset))
            }
            Operation::Flush => (4, file.sync_data()),
        };
        self.count(request, done.is_ok());
        // Reading beyond the end has no number of its own.
        let errno = done.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        block[..4].copy_from_slice(&errno.to_be_bytes());
        stream.write_all(&block[..answered])
    }

    fn count(&self, request: Request, succeeded: bool) {
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.counts.operations, 1);
        if !succeeded {
            add(&self.counts.errors, 1);
            return;
        }
        match request.operation {
            Operation::Read => add(&self.counts.read_bytes, request.length),
            Operation::Write => add(&self.counts.written_bytes, request.length),
            Operation::Flush => add(&self.counts.flushes, 1),
        };
    }
}

/// The kind of filesystem that holds a folder, by its magic number (`fstatfs(2)`).
fn filesystem(folder: &Folder) -> Option<&'static str> {
    const KINDS: [(FsType, &str); 14] = [
        (FsType(0x0102_1994), "tmpfs"),
        (FsType(0x8584_58f6), "ramfs"),
        (FsType(0xef53), "ext4"),
        (FsType(0x5846_5342), "xfs"),
        (FsType(0x9123_683e), "btrfs"),
        (FsType(0x794c_7630), "overlay"),
        (FsType(0x2fc1_2fc1), "zfs"),
        (FsType(0xf2f5_2010), "f2fs"),
        (FsType(0x0102_1997), "9p"),
        (FsType(0x6573_5546), "fuse"),
        (FsType(0x6969), "nfs"),
        (FsType(0x00c0_ffee), "hostfs"),
        (FsType(0x7371_7368), "squashfs"),
        (FsType(0x4d44), "fat"),
    ];
    let found = fstatfs(folder).ok()?.filesystem_type();
    KINDS.iter().find(|&&(magic, _)| magic == found).map(|&(_, name)| name)
}
