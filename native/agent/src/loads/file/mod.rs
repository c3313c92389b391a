//! The I/O- and network-bound load: files that one machine serves and another reads and writes over a network.
//!
//! The server is the agent's own ([`server`]) or an NFS server; the client is always the agent's ([`client`]), so that what
//! is asked of either service is the same.

pub mod client;
mod nfs;
mod own;
pub mod server;

use std::io;

/// Longest block that is read or written at a time.
const LONGEST_BLOCK: u64 = 1024 * 1024;

/// Largest file.
const LARGEST_FILE: u64 = 1024 * 1024 * 1024;

/// Most files, each with a connection of its own.
const MOST_FILES: u64 = 256;

/// Longest token or name.
const LONGEST_TEXT: usize = 128;

/// One open file of a service.
trait RemoteFile: Send {
    /// Writes all of the block.
    fn write(&mut self, offset: u64, block: &[u8]) -> io::Result<()>;

    /// Fills the block.
    fn read(&mut self, offset: u64, block: &mut [u8]) -> io::Result<()>;

    /// Returns when all that was written is on the server's storage.
    fn flush(&mut self) -> io::Result<()>;
}
