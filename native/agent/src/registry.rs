//! Probes and loads by their names.

use crate::channel::bounded::excerpt;
use crate::failure::{Code, Failure};

/// A kind of probe or load, and what begins one.
#[derive(Debug)]
pub struct Entry<Begin> {
    /// Its name in requests.
    pub name: &'static str,
    /// Begins one.
    pub begin: Begin,
}

/// The entry of a name.
///
/// # Errors
/// `not-found`, with the names that there are.
pub fn find<Begin>(what: &str, entries: &'static [Entry<Begin>], name: &str) -> Result<&'static Entry<Begin>, Failure> {
    entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        Failure::new(Code::NotFound, format!("no {what} {:?}; there are: {}", excerpt(name), names.join(", ")))
    })
}
