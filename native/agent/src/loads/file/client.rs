//! The client: threads that each read and write a file of their own on a server elsewhere; what is read is checked.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hptime::OsClock;
use kernels::random::SplitMix64;
use serde::{Deserialize, Serialize};

use super::nfs::NfsFile;
use super::own::OwnFile;
use super::{LARGEST_FILE, LONGEST_BLOCK, LONGEST_TEXT, MOST_FILES, RemoteFile};
use crate::failure::{Code, Failure};
use crate::loads::Load;
use crate::loads::threads::Gate;
use crate::parameters::{Int, Parsed, Seed, Text};

/// Longest that the server may take for anything.
const OPERATION_TIME: Duration = Duration::from_secs(10);

/// Pause between two attempts to reach a server that is just starting.
const RETRY: Duration = Duration::from_millis(50);

const STACK_BYTES: usize = 256 * 1024;

/// A client that runs.
#[derive(Debug)]
pub struct FileClient {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<ThreadWork>>,
    started_ns: u64,
    halted_ns: u64,
}

/// What a client did, from the moment when every file was written once to the word to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileClientWork {
    threads: u32,
    elapsed_ns: u64,
    #[serde(flatten)]
    total: ThreadWork,
}

/// What one thread did, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct ThreadWork {
    /// Read, and found to be what was written.
    read_bytes: u64,
    written_bytes: u64,
    /// Reads, writes and flushes that succeeded.
    operations: u64,
    flushes: u64,
    /// Operations that failed, and reads that brought a wrong content.
    errors: u64,
    /// Those of them that brought a wrong content.
    wrong_content: u64,
    /// The first error in words.
    first_error: Option<String>,
    /// The longest that an operation took: the load stood still for one thread at most as long.
    slowest_operation_ns: u64,
}

/// What every thread does.
#[derive(Clone, Debug)]
struct Design {
    service: Service,
    address: SocketAddr,
    /// The token of the agent's own service, the name of an NFS server's export.
    key: String,
    blocks: u64,
    block_bytes: u64,
    write_percent: u64,
    flush_every: u64,
    seed: u64,
    /// By then every file has been opened and written once.
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Service {
    Agent,
    Nfs4,
}

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    service: Service,
    address: Parsed<IpAddr>,
    port: Int<1, 65_535>,
    token: Text<LONGEST_TEXT>,
    threads: Int<1, MOST_FILES>,
    file_bytes: Int<512, LARGEST_FILE>,
    block_bytes: Int<512, LONGEST_BLOCK>,
    write_percent: Int<0, 100>,
    flush_every: Int<0, 1_000_000>,
    seed: Seed,
    ready_ms: Int<1, 600_000>,
}

impl TryFrom<Asked> for Design {
    type Error = Failure;

    fn try_from(asked: Asked) -> Result<Self, Failure> {
        let (file_bytes, block_bytes) = (asked.file_bytes.0, asked.block_bytes.0);
        if block_bytes % 8 != 0 || file_bytes < block_bytes {
            return Err(Failure::bad_request(format!(
                "params.block_bytes: {block_bytes}; accepted: multiples of 8 up to params.file_bytes, {file_bytes}"
            )));
        }
        Ok(Self {
            service: asked.service,
            address: SocketAddr::new(asked.address.0, asked.port.0 as u16),
            key: asked.token.0,
            blocks: file_bytes / block_bytes,
            block_bytes,
            write_percent: asked.write_percent.0,
            flush_every: asked.flush_every.0,
            seed: asked.seed.0,
            deadline: Instant::now() + Duration::from_millis(asked.ready_ms.0),
        })
    }
}

impl Design {
    /// Opens a file, as soon as there is a server.
    fn open(&self, file: u16) -> io::Result<Box<dyn RemoteFile>> {
        loop {
            let opened = self.open_once(file);
            match opened {
                Err(error) if is_absence(&error) && Instant::now() + RETRY < self.deadline => thread::sleep(RETRY),
                _ => return opened,
            }
        }
    }

    fn open_once(&self, file: u16) -> io::Result<Box<dyn RemoteFile>> {
        let wait = self.deadline.saturating_duration_since(Instant::now()).clamp(RETRY, OPERATION_TIME);
        let stream = TcpStream::connect_timeout(&self.address, wait)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(OPERATION_TIME))?;
        stream.set_write_timeout(Some(OPERATION_TIME))?;
        Ok(match self.service {
            Service::Agent => Box::new(OwnFile::open(stream, &self.key, file)?),
            Service::Nfs4 => Box::new(NfsFile::open(stream, &self.key, file, self.seed)?),
        })
    }
}

/// Whether nobody listens yet, or the way there is not yet up.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | TimedOut)
}

impl Load for FileClient {
    const NAME: &'static str = "file_client";
    type Parameters = Asked;
    type Work = FileClientWork;

    /// Opens and writes the files; returns when all of them are written and all threads were let go.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let count = asked.threads.0;
        let design = Design::try_from(asked)?;
        let gate = Arc::new(Gate::default());
        let trouble = Arc::new(Mutex::new(None));
        let mut client = Self { gate: Arc::clone(&gate), threads: Vec::new(), started_ns: 0, halted_ns: 0 };
        for file in 0..count as u16 {
            let (gate, trouble, design) = (Arc::clone(&gate), Arc::clone(&trouble), design.clone());
            let builder = thread::Builder::new().name("file-client".into()).stack_size(STACK_BYTES);
            let spawned = builder.spawn(move || {
                let prepared = Worker::prepare(&design, file);
                let prepared = prepared.inspect_err(|failure| {
                    trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure.clone());
                });
                gate.pass();
                prepared.map(|worker| worker.run(&gate)).unwrap_or_default()
            });
            match spawned {
                Ok(thread) => client.threads.push(thread),
                Err(error) => return Err(client.abandon(Failure::os("starting a thread", &error))),
            }
        }
        gate.open_after(client.threads.len());
        let failure = trouble.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(failure) = failure {
            return Err(client.abandon(failure));
        }
        client.started_ns = OsClock::Monotonic.now_ns();
        Ok(client)
    }

    fn halt(&mut self) {
        self.gate.stop();
        self.halted_ns = OsClock::Monotonic.now_ns();
    }

    fn finish(self) -> FileClientWork {
        let mut total = ThreadWork::default();
        let threads = self.threads.len() as u32;
        for thread in self.threads {
            // A thread that panicked has nothing to add; its message is on standard error.
            if let Ok(work) = thread.join() {
                total.add(work);
            }
        }
        FileClientWork { threads, elapsed_ns: self.halted_ns.saturating_sub(self.started_ns), total }
    }
}

impl FileClient {
    fn abandon(mut self, failure: Failure) -> Failure {
        self.halt();
        self.finish();
        failure
    }
}

impl ThreadWork {
    fn add(&mut self, other: Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.operations += other.operations;
        self.flushes += other.flushes;
        self.errors += other.errors;
        self.wrong_content += other.wrong_content;
        self.slowest_operation_ns = self.slowest_operation_ns.max(other.slowest_operation_ns);
        self.first_error = self.first_error.take().or(other.first_error);
    }

    fn fail(&mut self, error: String) {
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }
}

/// One thread: a file, what is in it, and what was done to it.
struct Worker {
    remote: Box<dyn RemoteFile>,
    content: Content,
    block: Vec<u8>,
    random: SplitMix64,
    write_percent: u64,
    flush_every: u64,
    work: ThreadWork,
}

impl Worker {
    /// Opens the file and writes all of it, so that there is something to read.
    fn prepare(design: &Design, file: u16) -> Result<Self, Failure> {
        let opened = design.open(file);
        let mut worker = Self {
            remote: opened.map_err(|error| Failure::os(&format!("opening a file at {}", design.address), &error))?,
            content: Content::new(design.seed ^ u64::from(file), design.blocks as usize, design.block_bytes as usize),
            block: vec![0; design.block_bytes as usize],
            random: SplitMix64::new(design.seed.wrapping_add(u64::from(file) + 1)),
            write_percent: design.write_percent,
            flush_every: design.flush_every,
            work: ThreadWork::default(),
        };
        for block in 0..worker.content.blocks() {
            if Instant::now() > design.deadline {
                let message = format!("{block} of {} blocks were written in time", worker.content.blocks());
                return Err(Failure::new(Code::Timeout, message));
            }
            worker.write(block).map_err(|error| Failure::os("writing a file for the first time", &error))?;
        }
        worker.remote.flush().map_err(|error| Failure::os("flushing a file for the first time", &error))?;
        Ok(worker)
    }

    fn write(&mut self, block: usize) -> io::Result<()> {
        self.content.renew(block, &mut self.block);
        self.remote.write(self.content.offset(block), &self.block)
    }

    /// Reads and writes blocks anywhere in the file until the load is stopped, or the server fails.
    fn run(mut self, gate: &Gate) -> ThreadWork {
        let mut unflushed = 0;
        let mut before_ns = OsClock::Monotonic.now_ns();
        while !gate.stopped() {
            if let Err(error) = self.step(&mut unflushed) {
                self.work.fail(error.to_string());
                break;
            }
            let now_ns = OsClock::Monotonic.now_ns();
            self.work.slowest_operation_ns = self.work.slowest_operation_ns.max(now_ns.saturating_sub(before_ns));
            before_ns = now_ns;
        }
        self.work
    }

    fn step(&mut self, unflushed: &mut u64) -> io::Result<()> {
        if self.flush_every > 0 && *unflushed >= self.flush_every {
            *unflushed = 0;
            self.remote.flush()?;
            self.work.flushes += 1;
        } else {
            let block = self.random.below(self.content.blocks() as u64) as usize;
            let length = self.block.len() as u64;
            if self.random.below(100) < self.write_percent {
                self.write(block)?;
                *unflushed += 1;
                self.work.written_bytes += length;
            } else {
                self.remote.read(self.content.offset(block), &mut self.block)?;
                if !self.content.matches(block, &self.block) {
                    self.work.wrong_content += 1;
                    self.work.fail(format!("block {block} holds what was not written last"));
                    return Ok(());
                }
                self.work.read_bytes += length;
            }
        }
        self.work.operations += 1;
        Ok(())
    }
}

/// What is written to a file: every block is known by the file, its place and how often it was written.
#[derive(Debug)]
struct Content {
    file: u64,
    block_bytes: usize,
    /// How often each block was written.
    generations: Vec<u32>,
}

impl Content {
    fn new(file: u64, blocks: usize, block_bytes: usize) -> Self {
        Self { file, block_bytes, generations: vec![0; blocks] }
    }

    fn blocks(&self) -> usize {
        self.generations.len()
    }

    fn offset(&self, block: usize) -> u64 {
        block as u64 * self.block_bytes as u64
    }

    /// What to write next to a block.
    fn renew(&mut self, block: usize, bytes: &mut [u8]) {
        self.generations[block] = self.generations[block].wrapping_add(1);
        let mut words = self.words(block);
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&words.next_u64().to_le_bytes());
        }
    }

    /// Whether these bytes are what was written last to the block.
    fn matches(&self, block: usize, bytes: &[u8]) -> bool {
        let mut words = self.words(block);
        bytes.len() == self.block_bytes && bytes.chunks_exact(8).all(|chunk| chunk == words.next_u64().to_le_bytes())
    }

    fn words(&self, block: usize) -> SplitMix64 {
        let place = self.file.rotate_left(48) ^ (block as u64).rotate_left(24) ^ u64::from(self.generations[block]);
        SplitMix64::new(SplitMix64::new(place).next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_last_matches() {
        let mut content = Content::new(3, 2, 64);
        let (mut first, mut again, mut other) = ([0; 64], [0; 64], [0; 64]);
        content.renew(0, &mut first);
        assert!(content.matches(0, &first));
        content.renew(0, &mut again);
        assert!(content.matches(0, &again) && !content.matches(0, &first), "an earlier content is wrong");
        content.renew(1, &mut other);
        assert!(!content.matches(0, &other), "another block's content is wrong");
        again[63] ^= 1;
        assert!(!content.matches(0, &again), "a single flipped bit is wrong");
        assert!(!content.matches(1, &other[..56]), "half a block is wrong");
    }

    #[test]
    fn files_differ() {
        let (mut bytes, mut others) = ([0; 64], [0; 64]);
        Content::new(1, 1, 64).renew(0, &mut bytes);
        Content::new(2, 1, 64).renew(0, &mut others);
        assert_ne!(bytes, others);
    }
}
