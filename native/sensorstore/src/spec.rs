//! The specifications that come in as JSON; their fields are described in docs/sensorstore.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::drivers::Driver;
use crate::failure::{Failure, Kind};
use crate::files::Patterns;
use crate::generator::Data;

/// Where a database is, and how it is spoken to.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreSpec {
    /// Which.
    pub driver: Driver,
    /// The server's IP address or name.
    #[serde(default)]
    pub address: Option<String>,
    /// Its TCP port.
    #[serde(default)]
    pub port: Option<u16>,
    /// Where an existing server is given by one, in place of address, port, user, password and database.
    #[serde(default)]
    pub uri: Option<String>,
    /// User.
    #[serde(default)]
    pub user: Option<String>,
    /// Password.
    #[serde(default)]
    pub password: Option<String>,
    /// Database (keyspace, …) on the server.
    #[serde(default = "virtgauge")]
    pub database: String,
    /// An embedded database's file.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// The shared object that an embedded database is in.
    #[serde(default)]
    pub library: Option<PathBuf>,
    /// The table (collection, measurement, …).
    #[serde(default = "readings")]
    pub table: String,
    /// How long one statement or one attempt to connect may take, in milliseconds.
    #[serde(default = "ten_seconds")]
    pub timeout_ms: u64,
    /// The driver's own.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

fn virtgauge() -> String {
    "virtgauge".into()
}

fn readings() -> String {
    "virtgauge_readings".into()
}

fn ten_seconds() -> u64 {
    10_000
}

impl StoreSpec {
    /// The longest that a statement may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Address and port of the server.
    ///
    /// # Errors
    /// `bad-request` where either is missing.
    pub fn endpoint(&self) -> Result<(&str, u16), Failure> {
        match (&self.address, self.port) {
            (Some(address), Some(port)) => Ok((address, port)),
            (None, _) => Err(missing("store.address")),
            (_, None) => Err(missing("store.port")),
        }
    }

    /// An embedded database's file.
    ///
    /// # Errors
    /// `bad-request` where it is missing.
    pub fn path(&self) -> Result<&Path, Failure> {
        self.path.as_deref().ok_or_else(|| missing("store.path"))
    }

    /// The table's name, which goes into statements unquoted: lower-case letters, digits and `_`.
    ///
    /// # Errors
    /// `bad-request` where it is not such a name.
    pub fn table(&self) -> Result<&str, Failure> {
        identifier("store.table", &self.table)
    }

    /// The database's name, likewise.
    ///
    /// # Errors
    /// `bad-request` where it is not such a name.
    pub fn database(&self) -> Result<&str, Failure> {
        identifier("store.database", &self.database)
    }

    /// One of the values that an option may have; the first of them where it is not given.
    ///
    /// # Errors
    /// `bad-request` names the option and what it may be.
    pub fn choice<'a>(&'a self, option: &str, allowed: &[&'a str]) -> Result<&'a str, Failure> {
        let Some(given) = self.options.get(option) else { return Ok(allowed[0]) };
        if allowed.contains(&given.as_str()) {
            return Ok(given);
        }
        let message = format!("store.options.{option} is `{given}`, and may be {}", allowed.join(", "));
        Err(Failure::new(Kind::BadRequest, message))
    }

    /// A whole number that an option says, if it is given.
    ///
    /// # Errors
    /// `bad-request` names the option.
    pub fn number(&self, option: &str) -> Result<Option<u64>, Failure> {
        let Some(given) = self.options.get(option) else { return Ok(None) };
        let wrong = |_| Failure::new(Kind::BadRequest, format!("store.options.{option} is `{given}`, not a number"));
        given.parse().map(Some).map_err(wrong)
    }

    /// Refuses options that the driver does not know: one that was mistyped would silently measure something else.
    ///
    /// # Errors
    /// `bad-request` names the option.
    pub fn only_options(&self, known: &[&str]) -> Result<(), Failure> {
        match self.options.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let message = format!("store.options.{name} is unknown to this driver; it has: {}", known.join(", "));
                Err(Failure::new(Kind::BadRequest, message))
            }
        }
    }
}

fn missing(field: &str) -> Failure {
    Failure::new(Kind::BadRequest, format!("{field} is missing"))
}

fn identifier<'a>(field: &str, name: &'a str) -> Result<&'a str, Failure> {
    let fits = |(place, letter): (usize, char)| match letter {
        'a'..='z' | '_' => true,
        '0'..='9' => place > 0,
        _ => false,
    };
    if !name.is_empty() && name.len() <= 48 && name.chars().enumerate().all(fits) {
        return Ok(name);
    }
    let message = format!("{field} `{name}` is not a name of lower-case letters, digits and _, of at most 48");
    Err(Failure::new(Kind::BadRequest, message))
}

/// What `about`, `count`, `drop` and `rest` are told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AboutSpec {
    /// Which database.
    pub store: StoreSpec,
}

/// What `prepare` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareSpec {
    /// Which database.
    pub store: StoreSpec,
    /// With an index on (sensor, timestamp).
    pub index: bool,
    /// A table that is there already may be dropped.
    pub drop: bool,
    /// Which readings.
    pub data: Data,
    /// How many of them, of each sensor.
    #[serde(default)]
    pub preload: u64,
}

/// What `measure` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureSpec {
    /// Which database.
    pub store: StoreSpec,
    /// Which readings.
    pub data: Data,
    /// Loads that run at the same time.
    pub streams: Vec<StreamSpec>,
    /// How long they run before they count.
    pub warmup_ms: u64,
    /// How long they count.
    pub duration_ms: u64,
    /// How many answers each client is to have meanwhile, those to a pipeline as one: it counts longer until it has, but
    /// not for a client that fails, nor for one that hardly has its turn beside the others.  Of closed loops alone.
    #[serde(default)]
    pub least_operations: u64,
    /// By how much longer at most.
    #[serde(default)]
    pub longer_ms: u64,
    /// The file that holds what was acknowledged, beyond a kill -9.
    #[serde(default)]
    pub acknowledged: Option<PathBuf>,
    /// The first failure ends it, and is none of the measurement.
    #[serde(default)]
    pub until_failure: bool,
}

/// What `audit` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSpec {
    /// Which database.
    pub store: StoreSpec,
    /// Which readings.
    pub data: Data,
    /// The file that `measure` left.
    pub acknowledged: PathBuf,
    /// The loads that `measure` was told.
    pub streams: Vec<StreamSpec>,
}

/// What `disk` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// Where the file is made.
    pub folder: PathBuf,
    /// How long it is written.
    pub duration_ms: u64,
    /// How much is written before each flush.
    pub block_bytes: usize,
}

/// What `files` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesSpec {
    /// A database's data folder.
    pub folder: PathBuf,
    /// What in it holds tables.
    #[serde(default)]
    pub data: Patterns,
    /// What in it is the database's log.
    #[serde(default)]
    pub log: Patterns,
}

/// What `flushes` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushesSpec {
    /// The counters' file.
    pub path: PathBuf,
}

/// The protocols that a null server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// PostgreSQL's, which QuestDB understands as well.
    Postgres,
    /// MongoDB's.
    Mongo,
    /// Cassandra's.
    Cassandra,
    /// That of InfluxDB and VictoriaMetrics.
    Http,
}

/// What `null` is told.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NullSpec {
    /// What is spoken.
    pub protocol: Protocol,
    /// Where it listens.
    pub address: String,
    /// Likewise.
    pub port: u16,
    /// The readings that reads are answered with.
    pub data: Data,
}

/// The kinds of statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Consecutive readings of one sensor are written.
    Write,
    /// Consecutive readings of one sensor are read, and checked.
    Read,
    /// The newest reading of one sensor is.
    LastValue,
    /// Count, mean, minimum and maximum of consecutive readings of one sensor are.
    Window,
}

/// When statements are begun.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Loop {
    /// Each client begins as its last statement is answered.
    Closed,
    /// At this rate, whatever the answers do.
    Open {
        /// Of all clients of the stream together.
        rate_per_s: f64,
        /// How the times of their beginning are spread.
        arrivals: Arrivals,
    },
    /// So many at once, every so often.
    Burst {
        /// From one burst's beginning to the next, in milliseconds.
        every_ms: f64,
        /// Statements of a burst.
        size: u64,
    },
}

/// How the beginnings of an open loop are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Independent of each other.
    Poisson,
    /// At equal distances.
    Even,
}

/// One load.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// What its statements do.
    pub operation: Operation,
    /// Readings per statement.
    pub values: u64,
    /// Threads, each with a connection of its own.
    pub clients: u32,
    /// Statements that are sent before the first answer is waited for.
    #[serde(default = "one")]
    pub pipeline: u32,
    /// Readings of each sensor that `prepare` has put there.
    #[serde(default)]
    pub preload: u64,
    /// When they are begun.
    pub r#loop: Loop,
}

fn one() -> u32 {
    1
}
