//! The databases, one file each.

pub(crate) mod cassandra;
mod duckdb;
mod http;
mod influxdb;
pub(crate) mod mongo;
mod none;
pub(crate) mod postgres;
mod questdb;
mod sqlite;
pub(crate) mod uri;
pub(crate) mod victoriametrics;

use crate::failure::Failure;
use crate::generator::Data;
use crate::spec::{Driver, StoreSpec};
use crate::store::Store;

/// What sets up goes through the whole table, and may take so much longer than a statement that is measured.
const SET_UP_FACTOR: u32 = 60;

/// A store as specified; nothing has been connected to yet.  The readings are for the store that is none, which has
/// only them to answer reads from.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub fn open(spec: &StoreSpec, data: Option<&Data>) -> Result<Box<dyn Store>, Failure> {
    match spec.driver {
        Driver::None => none::open(spec, data),
        Driver::Sqlite => sqlite::open(spec),
        Driver::Duckdb => duckdb::open(spec),
        Driver::Postgres => postgres::open(spec),
        Driver::Mongo => mongo::open(spec),
        Driver::Cassandra => cassandra::open(spec),
        Driver::Influxdb => influxdb::open(spec),
        Driver::Victoriametrics => victoriametrics::open(spec),
        Driver::Questdb => questdb::open(spec),
    }
}
