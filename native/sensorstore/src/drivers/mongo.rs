//! MongoDB, by `OP_MSG` messages of our own: its Rust driver refuses fire-and-forget writes, which the paper measured,
//! and one client for all write concerns keeps them comparable.

mod answer;
pub(crate) mod connection;
mod scram;
mod session;
mod target;

use std::thread;
use std::time::{Duration, Instant};

use bson::RawBsonRef;
use bson::raw::RawDocument;
use bson::rawdoc;

use self::connection::Connection;
use self::session::MongoSession;
use self::target::Target;
use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Schema, Session, Store};

/// Work on a whole collection may take so many times as long as a statement.
const PATIENCE: u32 = 10;

/// Between two looks at whether what was sent without being acknowledged has arrived.
const SETTLING_STEP: Duration = Duration::from_millis(100);

/// So many looks in succession have to find the same.
const SETTLED_LOOKS: u32 = 3;

/// The settings of the server that say when it flushes its journal.
const DURABILITY_PARAMETERS: [&str; 2] = ["journalCommitInterval", "syncdelay"];

/// Errors of the server that the store itself looks at, by their codes.
const NAMESPACE_NOT_FOUND: i64 = 26;

struct MongoStore {
    target: Target,
}

/// A store on this server.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    Ok(Box::new(MongoStore { target: Target::new(spec)? }))
}

impl MongoStore {
    fn patient(&self) -> Result<Connection, Failure> {
        let mut connection = Connection::open(&self.target)?;
        connection.wait_for(self.target.timeout * PATIENCE)?;
        Ok(connection)
    }

    fn exists(&self, connection: &mut Connection) -> Result<bool, Failure> {
        let command = rawdoc! {
            "listCollections": 1,
            "filter": { "name": self.target.collection.as_str() },
            "nameOnly": true,
            "authorizedCollections": true,
            "$db": self.target.database.as_str(),
        };
        let answer = connection.command(&command)?;
        Ok(answer::first_batch(answer)?.into_iter().next().is_some())
    }

    fn drop_with(&self, connection: &mut Connection) -> Result<(), Failure> {
        let command = rawdoc! { "drop": self.target.collection.as_str(), "$db": self.target.database.as_str() };
        let answer = connection.reply(&command)?;
        match answer::code(answer) {
            Some(NAMESPACE_NOT_FOUND) => Ok(()),
            _ => answer::check(answer),
        }
    }

    /// What the collection's own bookkeeping says, at once; not to be trusted after the server was killed.
    fn estimated_count(&self, connection: &mut Connection) -> Result<u64, Failure> {
        let command = rawdoc! { "count": self.target.collection.as_str(), "$db": self.target.database.as_str() };
        answer::count(connection.command(&command)?, "n")
    }
}

impl Store for MongoStore {
    fn about(&self) -> Result<About, Failure> {
        let mut connection = Connection::open(&self.target)?;
        let build = connection.command(&rawdoc! { "buildInfo": 1, "$db": "admin" })?;
        let version = build.get_str("version").map_err(|error| answer::malformed(&error))?;
        let mut about = About { version: format!("MongoDB {version}"), ..About::default() };
        about.settings.insert("write_concern".into(), self.target.concern.name().into());
        for name in DURABILITY_PARAMETERS {
            let mut command = rawdoc! { "getParameter": 1 };
            command.append(name, 1);
            command.append("$db", "admin");
            let answer = connection.reply(&command)?;
            let value = match answer::check(answer) {
                Ok(()) => answer.get(name).ok().flatten().map(text),
                // Who may write readings may not always ask for settings.
                Err(failure) => Some(failure.message),
            };
            about.settings.extend(value.map(|value| (name.into(), value)));
        }
        let answer = connection.reply(&rawdoc! { "getCmdLineOpts": 1, "$db": "admin" })?;
        match answer::check(answer) {
            Ok(()) => {
                let storage = answer.get_document("parsed").and_then(|parsed| parsed.get_document("storage"));
                if let Ok(storage) = storage {
                    flatten("storage", storage, &mut about.settings);
                }
            }
            Err(failure) => drop(about.settings.insert("storage".into(), failure.message)),
        }
        Ok(about)
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        let mut connection = self.patient()?;
        if schema.drop {
            self.drop_with(&mut connection)?;
        } else if self.exists(&mut connection)? {
            // Asked for first, since `create` of a collection that is alike is no error from MongoDB 7 on.
            let message = format!("{}.{} exists already", self.target.database, self.target.collection);
            return Err(Failure::new(Kind::Exists, message));
        }
        let (database, collection) = (self.target.database.as_str(), self.target.collection.as_str());
        connection.command(&rawdoc! { "create": collection, "$db": database })?;
        if schema.index {
            connection.command(&rawdoc! {
                "createIndexes": collection,
                "indexes": [{ "key": { "sensor": 1, "ts": 1 }, "name": "sensor_1_ts_1" }],
                "$db": database,
            })?;
        }
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        self.drop_with(&mut self.patient()?)
    }

    /// By a look at every document, since the collection's own count is wrong after the server was killed.
    fn count(&self) -> Result<u64, Failure> {
        let mut connection = self.patient()?;
        let command = rawdoc! {
            "aggregate": self.target.collection.as_str(),
            "pipeline": [{ "$group": { "_id": 1, "n": { "$sum": 1 } } }],
            "cursor": {},
            "$db": self.target.database.as_str(),
        };
        let answer = connection.command(&command)?;
        let Some(group) = answer::first_batch(answer)?.into_iter().next() else { return Ok(0) };
        match group.map_err(|error| answer::malformed(&error))? {
            RawBsonRef::Document(group) => answer::count(group, "n"),
            _ => Err(answer::malformed(&"a count that is no document")),
        }
    }

    /// Fire-and-forget writes have arrived when their number grows no more.
    fn settle(&self) -> Result<(), Failure> {
        if self.target.concern.acknowledged() {
            return Ok(());
        }
        let mut connection = Connection::open(&self.target)?;
        let begun = Instant::now();
        let (mut last, mut looks) = (self.estimated_count(&mut connection)?, 0);
        while looks < SETTLED_LOOKS {
            if begun.elapsed() > self.target.timeout * PATIENCE {
                return Err(Failure::new(Kind::Timeout, "unacknowledged writes do not stop to arrive"));
            }
            thread::sleep(SETTLING_STEP);
            let now = self.estimated_count(&mut connection)?;
            looks = if now == last { looks + 1 } else { 0 };
            last = now;
        }
        Ok(())
    }

    /// What arrived, by a checkpoint, which comes by itself once a minute.
    fn rest(&self) -> Result<(), Failure> {
        self.settle()?;
        self.patient()?.command(&rawdoc! { "fsync": 1, "$db": "admin" }).map(drop)
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let connection = Connection::open(&self.target)?;
        Ok(Box::new(MongoSession::new(connection, &self.target)))
    }
}

/// A document's values under the names of their paths.
fn flatten(path: &str, document: &RawDocument, into: &mut std::collections::BTreeMap<String, String>) {
    for (name, value) in document.iter().flatten() {
        let path = format!("{path}.{name}");
        match value {
            RawBsonRef::Document(inner) => flatten(&path, inner, into),
            value => drop(into.insert(path, text(value))),
        }
    }
}

fn text(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::String(text) => text.into(),
        RawBsonRef::Int32(number) => number.to_string(),
        RawBsonRef::Int64(number) => number.to_string(),
        RawBsonRef::Double(number) => number.to_string(),
        RawBsonRef::Boolean(truth) => truth.to_string(),
        other => format!("{other:?}"),
    }
}
