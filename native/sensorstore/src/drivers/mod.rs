//! The databases, one file each.

mod http;
pub(crate) mod uri;

use crate::failure::Failure;
use crate::generator::Data;
use crate::spec::StoreSpec;
use crate::store::Store;

/// What sets up goes through the whole table, and may take so much longer than a statement that is measured.
const SET_UP_FACTOR: u32 = 60;

/// Declares the databases: the name in specifications is the variant's in lower case, and the module has `open`.
macro_rules! drivers {
    ($($(#[$about:meta])* $driver:ident => $module:ident,)*) => {
        $(pub(crate) mod $module;)*

        /// The databases that are spoken to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Driver {
            /// No database: what the loop itself costs.
            None,
            $($(#[$about])* $driver,)*
        }

        /// A store as specified; nothing has been connected to yet.  The readings are for the store that is none, which
        /// has only them to answer reads from.
        ///
        /// # Errors
        /// `bad-request` names what is missing or wrong in the specification.
        pub fn open(spec: &StoreSpec, data: Option<&Data>) -> Result<Box<dyn Store>, Failure> {
            match spec.driver {
                Driver::None => none::open(spec, data),
                $(Driver::$driver => $module::open(spec),)*
            }
        }
    };
}

mod none;

drivers! {
    /// SQLite, embedded.
    Sqlite => sqlite,
    /// DuckDB, embedded.
    Duckdb => duckdb,
    /// PostgreSQL.
    Postgres => postgres,
    /// MariaDB.
    Mariadb => mariadb,
    /// MongoDB.
    Mongo => mongo,
    /// Cassandra.
    Cassandra => cassandra,
    /// InfluxDB.
    Influxdb => influxdb,
    /// VictoriaMetrics.
    Victoriametrics => victoriametrics,
    /// QuestDB.
    Questdb => questdb,
}
