//! What can go wrong, as the caller needs to tell it apart.

use std::fmt;

/// The kinds of failure; their names are in docs/sensorstore.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What was asked for makes no sense; the message names the field.
    BadRequest,
    /// Nothing listens at the address.
    Refused,
    /// User or password are not accepted.
    Denied,
    /// There is no such database, or the table is not the one that is expected.
    Schema,
    /// The table exists already, and may not be dropped.
    Exists,
    /// The database's disk is full.
    Full,
    /// The connection was lost.
    Lost,
    /// The database did not answer in time.
    Timeout,
    /// The database cannot do what is asked.
    Unsupported,
    /// A read brought other readings than were written.
    WrongAnswer,
    /// Anything else that the database says.
    Database,
}

/// A failure and what the database says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which.
    pub kind: Kind,
    /// In words.
    pub message: String,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
