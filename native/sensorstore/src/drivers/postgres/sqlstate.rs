//! What PostgreSQL's error codes mean to the load generator.

use crate::failure::{Failure, Kind};

/// The kind of a SQLSTATE (PostgreSQL's documentation, appendix A).
fn kind(code: &str) -> Kind {
    match code {
        // The server starts up or recovers: it will listen soon, and does not yet.
        "57P03" => Kind::Refused,
        "57P01" | "57P02" | "57P05" => Kind::Lost,
        "57014" | "55P03" => Kind::Timeout,
        "53100" => Kind::Full,
        "42501" => Kind::Denied,
        "42P07" => Kind::Exists,
        "3D000" | "3F000" | "42P01" | "42703" | "42804" | "42809" | "42883" => Kind::Schema,
        // No such setting of a session, or not with this value.
        "42704" | "22023" => Kind::BadRequest,
        "0A000" => Kind::Unsupported,
        _ if code.starts_with("28") => Kind::Denied,
        _ if code.starts_with("08") => Kind::Lost,
        _ => Kind::Database,
    }
}

/// The failure that an `ErrorResponse` tells of: its fields, each a letter and a string that ends with a zero.
pub(super) fn failure(body: &[u8]) -> Failure {
    let (mut code, mut message, mut detail) = (String::new(), String::new(), String::new());
    for field in body.split(|byte| *byte == 0) {
        let Some((letter, text)) = field.split_first() else { break };
        let text = String::from_utf8_lossy(text).into_owned();
        match letter {
            b'C' => code = text,
            b'M' => message = text,
            b'D' => detail = format!(" ({text})"),
            _ => {}
        }
    }
    match code.as_str() {
        "" | "00000" => Failure::new(questdb_kind(&message), message),
        _ => Failure::new(kind(&code), format!("{message}{detail} [{code}]")),
    }
}

/// QuestDB speaks the protocol and gives no codes: what its words mean.
fn questdb_kind(message: &str) -> Kind {
    let says = |words: &[&str]| words.iter().any(|part| message.contains(part));
    if says(&["invalid username/password", "permission denied"]) {
        Kind::Denied
    } else if says(&["already exists"]) {
        Kind::Exists
    } else if says(&["does not exist", "Invalid column", "inconvertible", "there is no matching operator"]) {
        Kind::Schema
    } else if says(&["No space left", "errno=28", "[28]"]) {
        Kind::Full
    } else {
        Kind::Database
    }
}

/// That the server ends the connection with this error.
pub(super) fn fatal(body: &[u8]) -> bool {
    // V is the severity that is not translated.
    body.split(|byte| *byte == 0).any(|field| matches!(field, b"VFATAL" | b"VPANIC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_by_its_code_and_keeps_what_the_server_said() {
        let failure = failure(b"SFATAL\0C28P01\0Mpassword authentication failed\0\0");
        assert_eq!(failure, Failure::new(Kind::Denied, "password authentication failed [28P01]"));
    }

    #[test]
    fn questdb_is_understood_by_its_words() {
        let failure = failure(b"C00000\0Mtable already exists\0SERROR\0\0");
        assert_eq!(failure, Failure::new(Kind::Exists, "table already exists"));
    }

    #[test]
    fn codes_map_onto_what_a_caller_can_do_about_them() {
        let expected = [
            ("28000", Kind::Denied),
            ("3D000", Kind::Schema),
            ("42P01", Kind::Schema),
            ("42P07", Kind::Exists),
            ("53100", Kind::Full),
            ("57P01", Kind::Lost),
            ("57P03", Kind::Refused),
            ("23505", Kind::Database),
        ];
        for (code, expected) in expected {
            assert_eq!(kind(code), expected, "{code}");
        }
    }
}
