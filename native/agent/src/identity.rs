//! Which agent this is.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};

use sha2::{Digest, Sha256};

/// Version, hash and role of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the agent.
    pub version: &'static str,
    /// SHA-256 of its own executable, in hex; `None` where the file cannot be read.
    pub sha256: Option<String>,
    /// It was booted as the first process of a machine, and powers it off at the end.
    pub init: bool,
}

impl Identity {
    /// Hashes the running executable.
    #[must_use]
    pub fn of_this_process(init: bool) -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), sha256: sha256_of_file("/proc/self/exe").ok(), init }
    }
}

fn sha256_of_file(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 65_536];
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => digest.update(&block[..count]),
        }
    }
    Ok(digest.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes any text");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_an_empty_file_is_that_of_no_bytes() {
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_of_file("/dev/null").unwrap(), known);
    }
}
