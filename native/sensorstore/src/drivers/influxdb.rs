//! InfluxDB 1.x: written by its line protocol, read by `InfluxQL` with the answer as CSV, both by HTTP.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::SET_UP_FACTOR;
use super::http::{Http, encoded};
use super::uri::{self, Server};
use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Reading, Schema, Session, Store, Window};

/// What bears on durability, in the server's diagnostics.
const SETTINGS: [&str; 4] =
    ["wal-fsync-delay", "cache-snapshot-memory-size", "cache-snapshot-write-cold-duration", "cache-max-memory-size"];

/// Times beyond this many milliseconds are beyond InfluxDB's 64 bits of nanoseconds.
const LAST_MILLISECOND: i64 = i64::MAX / 1_000_000;

struct Influxdb {
    server: Server,
    table: String,
    timeout: Duration,
    make_database: bool,
}

/// A store on this server.  Option: `make_database`, `true` where a database that there is not is to be made, as on a
/// server of our own.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&["make_database"])?;
    Ok(Box::new(Influxdb {
        server: uri::server(spec, &["influxdb", "http"], 8086)?,
        table: spec.table()?.into(),
        timeout: spec.timeout(),
        make_database: spec.choice("make_database", &["false", "true"])? == "true",
    }))
}

impl Influxdb {
    fn connection(&self) -> Result<Http, Failure> {
        Http::connect(&self.server, self.timeout)
    }

    /// The series that a statement of setting up brings.
    fn query(&self, statement: &str) -> Result<Vec<Value>, Failure> {
        let mut http = self.connection()?;
        http.wait_for(self.timeout * SET_UP_FACTOR)?;
        let target = format!("/query?db={}&epoch=ms&q={}", encoded(&self.server.database), encoded(statement));
        // What changes something has to be a POST.
        let answer = http.ask("POST", &target, &[])?.successful()?;
        series_of(answer.body)
    }

    /// That the database is there.
    fn check_database(&self) -> Result<(), Failure> {
        let series = self.query("SHOW DATABASES")?;
        let names = series.iter().filter_map(|series| series["values"].as_array()).flatten();
        if names.into_iter().any(|name| name[0] == self.server.database.as_str()) {
            return Ok(());
        }
        Err(Failure::new(Kind::Schema, format!("there is no database {} on the server", self.server.database)))
    }

    fn is_there(&self) -> Result<bool, Failure> {
        let series = self.query(&format!("SHOW MEASUREMENTS WITH MEASUREMENT = \"{}\"", self.table))?;
        Ok(!series.is_empty())
    }
}

/// The series of the first result in an answer.
fn series_of(answer: &[u8]) -> Result<Vec<Value>, Failure> {
    let mut answer: Value = serde_json::from_slice(answer).map_err(|error| {
        Failure::new(Kind::Database, format!("what the server answers is not InfluxDB's JSON: {error}"))
    })?;
    if let Some(error) = answer["results"][0]["error"].as_str() {
        let kind = if error.contains("database not found") { Kind::Schema } else { Kind::Database };
        return Err(Failure::new(kind, error));
    }
    match answer.pointer_mut("/results/0/series").map(Value::take) {
        Some(Value::Array(series)) => Ok(series),
        _ => Ok(Vec::new()),
    }
}

impl Store for Influxdb {
    fn about(&self) -> Result<About, Failure> {
        let mut about = About::default();
        for series in self.query("SHOW DIAGNOSTICS")? {
            let columns = series["columns"].as_array().into_iter().flatten();
            let values = series["values"][0].as_array().into_iter().flatten();
            let row: BTreeMap<_, _> =
                columns.zip(values).filter_map(|(name, value)| Some((name.as_str()?, value))).collect();
            match series["name"].as_str() {
                Some("build") => {
                    about.version =
                        format!("InfluxDB {}", row.get("Version").and_then(|text| text.as_str()).unwrap_or(""));
                }
                Some("config-data") => about.settings.extend(SETTINGS.iter().filter_map(|name| {
                    let value = row.get(name)?;
                    Some(((*name).to_owned(), value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
                })),
                _ => {}
            }
        }
        if !self.make_database {
            self.check_database()?;
        }
        Ok(about)
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        if !schema.index {
            return Err(Failure::new(Kind::Unsupported, "InfluxDB always has its index on tags and time"));
        }
        if self.make_database {
            self.query(&format!("CREATE DATABASE {}", quoted(&self.server.database)))?;
        }
        self.check_database()?;
        // A measurement comes to be by its first reading.
        match (self.is_there()?, schema.drop) {
            (false, _) => Ok(()),
            (true, true) => self.drop_table(),
            (true, false) => Err(Failure::new(Kind::Exists, format!("there is a measurement {} already", self.table))),
        }
    }

    fn drop_table(&self) -> Result<(), Failure> {
        if self.is_there()? {
            self.query(&format!("DROP MEASUREMENT \"{}\"", self.table))?;
        }
        Ok(())
    }

    fn count(&self) -> Result<u64, Failure> {
        let series = self.query(&format!("SELECT count(value) FROM \"{}\"", self.table))?;
        // No series where there is no reading.
        let count = series.first().map_or(Some(0), |series| series["values"][0][1].as_u64());
        count.ok_or_else(|| Failure::new(Kind::Database, "the server's count is no number"))
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let mut http = self.connection()?;
        http.add_field("Accept: application/csv");
        let database = encoded(&self.server.database);
        Ok(Box::new(InfluxdbSession {
            http,
            write_target: format!("/write?precision=ms&db={database}"),
            read_target: format!("/query?epoch=ms&db={database}&q="),
            table: self.table.clone(),
            lines: Vec::new(),
        }))
    }
}

/// A name in `InfluxQL`.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

struct InfluxdbSession {
    http: Http,
    write_target: String,
    read_target: String,
    table: String,
    lines: Vec<u8>,
}

impl InfluxdbSession {
    fn gather(&mut self, sensor: Uuid, readings: &[Reading]) {
        self.lines.clear();
        put_lines(&self.table, sensor, readings, &mut self.lines);
        self.http.gather("POST", &self.write_target, &self.lines);
    }

    /// Hands on the columns of each row from the time on, behind name and tags; `row` answers nothing for what is none.
    fn select(
        &mut self,
        what: &str,
        of: &str,
        row: &mut dyn FnMut(&mut dyn Iterator<Item = &str>) -> Option<()>,
    ) -> Result<(), Failure> {
        let statement = format!("SELECT {what} FROM \"{}\" WHERE {of}", self.table);
        let target = format!("{}{}", self.read_target, encoded(&statement));
        let answer = self.http.ask("GET", &target, &[])?.successful()?;
        for line in answer.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            // Their names stand above.
            if !line.starts_with(b"name,") {
                let columns = std::str::from_utf8(line).ok().map(|line| line.split(',').skip(2));
                let taken = columns.and_then(|mut columns| row(&mut columns));
                taken.ok_or_else(|| Failure::new(Kind::Database, answer.text()))?;
            }
        }
        Ok(())
    }

    fn rows(&mut self, what: &str, of: &str, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        self.select(what, of, &mut |columns| {
            let (time, value) = (columns.next()?, columns.next()?);
            into.push(Reading { timestamp: time.parse().ok()?, value: value.parse().ok()? });
            Some(())
        })
    }
}

/// InfluxDB's line protocol: measurement, tag, field, time; QuestDB takes it as well.
pub(super) fn put_lines(table: &str, sensor: Uuid, readings: &[Reading], lines: &mut Vec<u8>) {
    let series = format!("{table},sensor={sensor} value=");
    let (mut value, mut time) = (zmij::Buffer::new(), itoa::Buffer::new());
    for reading in readings {
        lines.extend_from_slice(series.as_bytes());
        lines.extend_from_slice(value.format(reading.value).as_bytes());
        lines.push(b' ');
        lines.extend_from_slice(time.format(reading.timestamp).as_bytes());
        lines.push(b'\n');
    }
}

impl Session for InfluxdbSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.gather(sensor, readings);
        self.http.exchange(1, &mut |_| ())
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        let (from, to) = (from.max(-LAST_MILLISECOND), to.min(LAST_MILLISECOND));
        self.rows("value", &format!("sensor = '{sensor}' AND time >= {from}ms AND time <= {to}ms"), into)
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.rows("last(value)", &format!("sensor = '{sensor}'"), into)
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        let reckoned = "count(value), mean(value), min(value), max(value)";
        let mut window = Window::default(); // there is no row where there are no readings
        let of = format!("sensor = '{sensor}' AND time >= {from}ms AND time <= {to}ms");
        self.select(reckoned, &of, &mut |columns| {
            columns.next()?;
            let count = columns.next()?.parse().ok()?;
            let mut number = || columns.next()?.parse().ok();
            window = Window { count, mean: number()?, min: number()?, max: number()? };
            Some(())
        })?;
        Ok(window)
    }

    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        for (sensor, readings) in writes {
            self.gather(*sensor, readings);
        }
        self.http.exchange(writes.len(), acknowledged)
    }
}


#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_server_says_is_an_answer_or_a_failure() {
        fuzz::fuzz("influxdb", include_str!("../../../fuzz/corpus/influxdb.txt"), |input| {
            let _ = series_of(input);
            let mut session = InfluxdbSession {
                http: Http::holding(input),
                write_target: String::new(),
                read_target: String::new(),
                table: "readings".into(),
                lines: Vec::new(),
            };
            let (sensor, reading, mut read) = (Uuid::nil(), Reading { timestamp: 1, value: 0.5 }, Vec::new());
            let _ = session.read(sensor, 0, 9, &mut read);
            let _ = session.window(sensor, 0, 9);
            let _ = session.write_pipelined(&[(sensor, &[reading]), (sensor, &[reading])], &mut |_| ());
        });
    }

    #[test]
    fn an_answer_without_results_has_no_series() {
        for answer in [&b"{}"[..], b"[]", b"null", br#"{"results":[]}"#, br#"{"results":[7]}"#] {
            assert_eq!(series_of(answer).unwrap(), Vec::<Value>::new(), "{}", String::from_utf8_lossy(answer));
        }
        assert_eq!(series_of(br#"{"results":[{"series":[1]}]}"#).unwrap(), [1]);
    }
}
