//! The commands, from JSON to JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::audit::audit;
use crate::disk;
use crate::drivers;
use crate::failure::{Failure, Kind};
use crate::files;
use crate::flushes;
use crate::measure::measure;
use crate::null;
use crate::prepare::prepare;
use crate::spec::{AboutSpec, AuditSpec, DiskSpec, FilesSpec, FlushesSpec, MeasureSpec, NullSpec, PrepareSpec};

/// The names of all commands.
pub const NAMES: [&str; 11] =
    ["about", "prepare", "measure", "audit", "count", "drop", "rest", "disk", "files", "flushes", "null"];

/// Carries a command out; `None` if there is no such command.
///
/// # Errors
/// What the command says.
#[must_use]
pub fn carry_out(name: &str, specification: &str) -> Option<Result<Value, Failure>> {
    Some(match name {
        "about" => parse(specification).and_then(|spec: AboutSpec| answer(drivers::open(&spec.store, None)?.about()?)),
        "drop" => parse(specification).and_then(|spec: AboutSpec| {
            drivers::open(&spec.store, None)?.drop_table()?;
            Ok(json!({}))
        }),
        "count" => parse(specification)
            .and_then(|spec: AboutSpec| Ok(json!({"rows": drivers::open(&spec.store, None)?.count()?}))),
        "files" => parse(specification)
            .and_then(|spec: FilesSpec| answer(files::allocated(&spec.folder, &spec.data, &spec.log)?)),
        "rest" => parse(specification).and_then(|spec: AboutSpec| {
            drivers::open(&spec.store, None)?.rest()?;
            Ok(json!({}))
        }),
        "prepare" => parse(specification).and_then(|spec: PrepareSpec| {
            answer(prepare(&spec, drivers::open(&spec.store, Some(&spec.data))?.as_ref())?)
        }),
        "measure" => parse(specification).and_then(|spec: MeasureSpec| {
            answer(measure(&spec, drivers::open(&spec.store, Some(&spec.data))?.as_ref())?)
        }),
        "audit" => parse(specification)
            .and_then(|spec: AuditSpec| answer(audit(&spec, drivers::open(&spec.store, Some(&spec.data))?.as_ref())?)),
        "disk" => parse(specification).and_then(|spec: DiskSpec| answer(disk::probe(&spec)?)),
        "flushes" => parse(specification).and_then(|spec: FlushesSpec| answer(flushes::read(&spec.path)?)),
        "null" => parse(specification).and_then(|spec: NullSpec| {
            null::serve(&spec)?;
            Ok(json!({}))
        }),
        _ => return None,
    })
}

fn parse<Spec: DeserializeOwned>(specification: &str) -> Result<Spec, Failure> {
    serde_json::from_str(specification)
        .map_err(|error| Failure::new(Kind::BadRequest, format!("the specification: {error}")))
}

fn answer(told: impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(told).map_err(|error| Failure::new(Kind::Database, format!("the answer: {error}")))
}
