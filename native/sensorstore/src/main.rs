//! The executable; see docs/sensorstore.md.

use std::process::ExitCode;

use sensorstore::commands::{NAMES, carry_out};
use serde_json::json;

/// Holds the specification where no argument does: other users see a process's arguments, and there may be a password in it.
const SPECIFICATION: &str = "SENSORSTORE_SPECIFICATION";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match &arguments[..] {
        [name, specification] => carry_out(name, specification),
        [name] => std::env::var(SPECIFICATION).ok().and_then(|specification| carry_out(name, &specification)),
        _ => None,
    };
    match done {
        Some(Ok(answer)) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Some(Err(failure)) => {
            println!("{}", json!({"error": {"kind": failure.kind, "message": failure.message}}));
            ExitCode::from(1)
        }
        None => {
            eprintln!("usage: sensorstore {} 'SPECIFICATION AS JSON' (or in ${SPECIFICATION})", NAMES.join("|"));
            ExitCode::from(2)
        }
    }
}
