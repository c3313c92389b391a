//! Where a MongoDB is, and as whom and how to speak to it.

use std::time::Duration;

use crate::drivers::uri;
use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;

const DEFAULT_PORT: u16 = 27017;

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteConcern {
    /// Never: fire and forget, as the paper measured it.
    Unacknowledged,
    /// When the server has it in memory.
    Memory,
    /// When the server's journal has been flushed.
    Journal,
}

impl WriteConcern {
    /// As the option names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unacknowledged => "w0",
            Self::Memory => "w1",
            Self::Journal => "j",
        }
    }

    /// Whether writes are answered.
    pub(super) fn acknowledged(self) -> bool {
        self != Self::Unacknowledged
    }
}

/// Whom to authenticate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
    /// The database that the user is defined in.
    pub(super) source: String,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) credentials: Option<Credentials>,
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) concern: WriteConcern,
    /// The most documents of one batch of a read; as many as fit where it is not given.
    pub(super) batch_size: Option<i32>,
    pub(super) timeout: Duration,
}

impl Target {
    /// From a specification.
    ///
    /// # Errors
    /// `bad-request` names what is missing or wrong; `unsupported` names what of a URI is not spoken.
    pub(super) fn new(spec: &StoreSpec) -> Result<Self, Failure> {
        spec.only_options(&["write_concern", "batch_size"])?;
        let concern = match spec.choice("write_concern", &["w1", "w0", "j"])? {
            "w0" => WriteConcern::Unacknowledged,
            "j" => WriteConcern::Journal,
            _ => WriteConcern::Memory,
        };
        let batch_size = match spec.number("batch_size")?.map(i32::try_from) {
            Some(Err(_) | Ok(0)) => {
                let message = format!("store.options.batch_size is none from 1 to {}", i32::MAX);
                return Err(Failure::new(Kind::BadRequest, message));
            }
            Some(Ok(size)) => Some(size),
            None => None,
        };
        let (place, source) = place(spec)?;
        let credentials = place.user.zip(place.password);
        let credentials = credentials.map(|(user, password)| Credentials { user, password, source });
        let collection = spec.table()?.to_owned();
        let timeout = spec.timeout();
        let (host, port, database) = (place.host, place.port, place.database);
        Ok(Self { host, port, credentials, database, collection, concern, batch_size, timeout })
    }
}

/// The server, and the database that its user is defined in: of a URI, as MongoDB's connection string format has it,
/// `authSource`, else the database that it names, else `admin`.
fn place(spec: &StoreSpec) -> Result<(uri::Server, String), Failure> {
    let Some(uri) = &spec.uri else {
        spec.database()?;
        return Ok((uri::server(spec, &["mongodb"], DEFAULT_PORT)?, "admin".into()));
    };
    let unsupported = |what: &str| Failure::new(Kind::Unsupported, format!("store.uri: {what}"));
    let (uri, query) = uri.split_once('?').unwrap_or((uri, ""));
    if uri.rsplit('@').next().is_some_and(|place| place.contains(',')) {
        return Err(unsupported("several servers; name the one to be measured"));
    }
    let unnamed = StoreSpec { uri: Some(uri.into()), database: String::new(), ..spec.clone() };
    let mut server = uri::server(&unnamed, &["mongodb"], DEFAULT_PORT)?;
    let mut source = if server.database.is_empty() { "admin".into() } else { server.database.clone() };
    if server.database.is_empty() {
        spec.database()?.clone_into(&mut server.database);
    }
    if server.user.is_some() != server.password.is_some() {
        return Err(Failure::new(Kind::BadRequest, "store.uri: a user without a password"));
    }
    for option in query.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("authSource", name)) => {
                let broken = || Failure::new(Kind::BadRequest, "store.uri: authSource is not well encoded");
                source = uri::decode(name).ok_or_else(broken)?;
            }
            Some(("authMechanism", "SCRAM-SHA-256") | ("directConnection", "true") | ("tls" | "ssl", "false")) => {}
            // Ignored, it might change what is measured without anyone noticing.
            _ => return Err(unsupported(&format!("the option `{option}` is not spoken"))),
        }
    }
    Ok((server, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> Result<Target, Failure> {
        let spec = serde_json::json!({ "driver": "mongo", "uri": uri });
        Target::new(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_uri_says_where_and_as_whom() {
        let given = target("mongodb://me%40here:p%3aw@db.lab:2701/store?authSource=users").unwrap();
        let credentials = Credentials { user: "me@here".into(), password: "p:w".into(), source: "users".into() };
        assert_eq!((given.host.as_str(), given.port, given.database.as_str()), ("db.lab", 2701, "store"));
        assert_eq!(given.credentials, Some(credentials));
        let bare = target("mongodb://[::1]").unwrap();
        assert_eq!((bare.host.as_str(), bare.port, bare.database.as_str()), ("::1", DEFAULT_PORT, "virtgauge"));
        assert_eq!(bare.credentials, None);
        let source = |uri| target(uri).unwrap().credentials.unwrap().source;
        assert_eq!(source("mongodb://a:b@h/store"), "store");
        assert_eq!(source("mongodb://a:b@h"), "admin");
    }

    #[test]
    fn what_of_a_uri_would_not_be_done_is_refused() {
        let kind = |uri| target(uri).unwrap_err().kind;
        assert_eq!(kind("mongodb://h/store?tls=true"), Kind::Unsupported);
        assert_eq!(kind("mongodb://h1:1,h2:2/store"), Kind::Unsupported);
        assert_eq!(kind("postgresql://h/store"), Kind::BadRequest);
        assert_eq!(kind("mongodb://h:x/store"), Kind::BadRequest);
        assert_eq!(kind("mongodb://me:%4@h/store"), Kind::BadRequest);
        assert_eq!(kind("mongodb://me@h/store"), Kind::BadRequest);
    }
}
