//! Where an existing server is: `scheme://user:password@host:port/database`.

use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;

/// A server, as whom to speak to it, and the database on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// Name or IP address.
    pub(super) host: String,
    /// TCP.
    pub(super) port: u16,
    /// User, if one is named.
    pub(super) user: Option<String>,
    /// Password, if one is given.
    pub(super) password: Option<String>,
    /// The database's name.
    pub(super) database: String,
}

/// The server of a specification: that of its URI, else of its address, port, user, password and database.
///
/// # Errors
/// `bad-request` names what is missing, or what of the URI cannot be followed.
pub(super) fn server(spec: &StoreSpec, schemes: &[&str], default_port: u16) -> Result<Server, Failure> {
    if let Some(uri) = &spec.uri {
        return parse(uri, schemes, default_port, &spec.database);
    }
    let (host, port) = spec.endpoint()?;
    Ok(Server {
        host: host.into(),
        port,
        user: spec.user.clone(),
        password: spec.password.clone(),
        database: spec.database.clone(),
    })
}

fn parse(uri: &str, schemes: &[&str], default_port: u16, database: &str) -> Result<Server, Failure> {
    // The URI itself stays out of the message: it may hold a password.
    let wrong = |what: &str| {
        let form = format!("{}://user:password@host:{default_port}/database", schemes[0]);
        Failure::new(Kind::BadRequest, format!("store.uri: {what}; it has the form {form}"))
    };
    let (scheme, rest) = uri.split_once("://").ok_or_else(|| wrong("there is no scheme"))?;
    if !schemes.contains(&scheme) {
        return Err(wrong("its scheme is not this driver's"));
    }
    if rest.contains(['?', '#']) {
        return Err(wrong("parameters are not understood; settings of a session belong into store.options"));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (identity, place) = authority.rsplit_once('@').map_or((None, authority), |(who, place)| (Some(who), place));
    let (user, password) = match identity.map(|identity| identity.split_once(':').ok_or(identity)) {
        None => (None, None),
        Some(Ok((user, password))) => (Some(decode(user)), Some(decode(password))),
        Some(Err(user)) => (Some(decode(user)), None),
    };
    let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(wrong("there is no host"));
    }
    let port = port.map_or(Ok(default_port), str::parse).map_err(|_| wrong("its port is not a number"))?;
    let text = |decoded: Option<Option<String>>| match decoded {
        None => Ok(None),
        Some(None) => Err(wrong("a % in it is not followed by two hexadecimal digits")),
        Some(some) => Ok(some),
    };
    let database = if path.is_empty() { database.into() } else { text(Some(decode(path)))?.unwrap_or_default() };
    Ok(Server { host: host.into(), port, user: text(user)?, password: text(password)?, database })
}

/// Text with `%41` for `A` (RFC 3986, section 2.1).
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(uri: &str) -> Result<Server, Failure> {
        parse(uri, &["postgresql", "postgres"], 5432, "virtgauge")
    }

    #[test]
    fn whatever_is_given_as_a_uri_is_one_or_refused() {
        fuzz::fuzz("uri", include_str!("../../../fuzz/corpus/uri.txt"), |input| {
            let text = String::from_utf8_lossy(input);
            let _ = (parsed(&text), decode(&text));
        });
    }

    #[test]
    fn a_uri_names_server_user_and_database() {
        let server = parsed("postgresql://me:p%40ss%3a@db.example:6000/measure").unwrap();
        assert_eq!(server.host, "db.example");
        assert_eq!(server.port, 6000);
        assert_eq!(server.user.as_deref(), Some("me"));
        assert_eq!(server.password.as_deref(), Some("p@ss:"));
        assert_eq!(server.database, "measure");
    }

    #[test]
    fn what_a_uri_leaves_out_is_the_default() {
        let server = parsed("postgres://[::1]").unwrap();
        assert_eq!((server.host.as_str(), server.port, server.database.as_str()), ("::1", 5432, "virtgauge"));
        assert_eq!((server.user, server.password), (None, None));
    }

    #[test]
    fn a_uri_that_cannot_be_followed_is_refused_without_telling_its_password() {
        for uri in [
            "mysql://secret@h/d",
            "secret",
            "postgres://u:secret@/d",
            "postgres://u:secret@h:x/d",
            "postgres://u:secret%4@h/d",
            "postgres://u:secret@h/d?sslmode=require",
        ] {
            let failure = parsed(uri).unwrap_err();
            assert_eq!(failure.kind, Kind::BadRequest, "{uri}");
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
    }
}
