//! VictoriaMetrics: written by `/api/v1/import`, read by `/api/v1/export`, which gives the samples themselves rather than
//! values at the steps of a query.

use std::io::Write;
use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;

use super::SET_UP_FACTOR;
use super::http::{Http, encoded};
use super::uri::{self, Server};
use crate::failure::{Failure, Kind};
use crate::spec::StoreSpec;
use crate::store::{About, Reading, Schema, Session, Store, Window};

/// What bears on durability and on what is kept, among the server's flags.
const SETTINGS: [&str; 4] =
    ["retentionPeriod", "dedup.minScrapeInterval", "inmemoryDataFlushInterval", "storage.minFreeDiskSpaceBytes"];

/// Later than any reading, in milliseconds: VictoriaMetrics does not count further.
const LAST_MILLISECOND: i64 = 9_000_000_000_000;

/// As far back as an instant query looks for a value, where it does not say (`-search.maxStalenessInterval`).
const LOOKBACK: &str = "5m";

/// Earlier than any reading, in seconds; times that lead to before 1970 find nothing at all.
const FIRST_SECOND: u64 = 1_000_000_000;

struct VictoriaMetrics {
    server: Server,
    table: String,
    timeout: Duration,
}

/// A store on this server.  It has to keep readings that are years old (`-retentionPeriod`), else it drops them
/// silently.
///
/// # Errors
/// `bad-request` names what is missing or wrong in the specification.
pub(super) fn open(spec: &StoreSpec) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&[])?;
    Ok(Box::new(VictoriaMetrics {
        server: uri::server(spec, &["victoriametrics", "http"], 8428)?,
        table: spec.table()?.into(),
        timeout: spec.timeout(),
    }))
}

impl VictoriaMetrics {
    fn connection(&self) -> Result<Http, Failure> {
        Http::connect(&self.server, self.timeout)
    }

    /// What a request of setting up answers.
    fn ask(&self, target: &str) -> Result<Vec<u8>, Failure> {
        let mut http = self.connection()?;
        http.wait_for(self.timeout * SET_UP_FACTOR)?;
        Ok(http.ask("GET", target, &[])?.successful()?.body.to_vec())
    }

    fn data(&self, target: &str) -> Result<Value, Failure> {
        data_of(&self.ask(target)?)
    }
}

/// What stands under `data` in an answer; nothing where it has none.
fn data_of(answer: &[u8]) -> Result<Value, Failure> {
    let mut answer: Value = serde_json::from_slice(answer).map_err(|error| {
        Failure::new(Kind::Database, format!("what the server answers is not VictoriaMetrics' JSON: {error}"))
    })?;
    Ok(answer.get_mut("data").map(Value::take).unwrap_or_default())
}

impl Store for VictoriaMetrics {
    fn about(&self) -> Result<About, Failure> {
        let metrics =
            String::from_utf8_lossy(self.connection()?.ask("GET", "/metrics", &[])?.successful()?.body).into_owned();
        let label = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            Some(rest.split('"').next()?.to_owned())
        };
        let mut about = About::default();
        for line in metrics.lines() {
            if line.starts_with("vm_app_version{") {
                let version = label(line, "short_version").filter(|version| !version.is_empty());
                let version = version.or_else(|| label(line, "version")).unwrap_or_default();
                // Some distributions' builds do not say it.
                about.version = format!("VictoriaMetrics {version}").trim_end().into();
            } else if line.starts_with("flag{") {
                if let (Some(name), Some(value)) = (label(line, "name"), label(line, "value")) {
                    if SETTINGS.contains(&name.as_str()) {
                        about.settings.insert(name, value);
                    }
                }
            }
        }
        Ok(about)
    }

    fn create(&self, schema: Schema) -> Result<(), Failure> {
        if !schema.index {
            return Err(Failure::new(Kind::Unsupported, "VictoriaMetrics always has its index on labels and time"));
        }
        // A series comes to be by its first reading, and is found a second or two after it.
        self.settle()?;
        let found = self.data(&format!(
            "/api/v1/series?start={FIRST_SECOND}&end={}&match[]={}",
            LAST_MILLISECOND / 1000,
            self.table
        ))?;
        match (found.as_array().is_some_and(|series| !series.is_empty()), schema.drop) {
            (false, _) => Ok(()),
            (true, true) => self.drop_table(),
            (true, false) => Err(Failure::new(Kind::Exists, format!("there are series {} already", self.table))),
        }
    }

    fn drop_table(&self) -> Result<(), Failure> {
        // It deletes what it finds, and would keep a series that is not visible yet.
        self.settle()?;
        self.ask(&format!("/api/v1/admin/tsdb/delete_series?match[]={}", self.table)).map(drop)
    }

    fn count(&self) -> Result<u64, Failure> {
        self.settle()?;
        let query = encoded(&format!("sum(count_over_time({}[20y]))", self.table));
        let found = self.data(&format!("/api/v1/query?nocache=1&query={query}"))?;
        // No result where there is no reading.
        let count = found["result"][0]["value"][1].as_str().map_or(Ok(0), str::parse);
        count.map_err(|_| Failure::new(Kind::Database, "the server's count is no number"))
    }

    /// Makes what was written visible, which takes a second or two by itself.
    fn settle(&self) -> Result<(), Failure> {
        self.ask("/internal/force_flush").map(drop)
    }

    /// A snapshot writes the parts that are in memory to files (lib/storage/partition.go), and is deleted again.
    fn rest(&self) -> Result<(), Failure> {
        let answer = self.ask("/snapshot/create")?;
        let made: Value = serde_json::from_slice(&answer).unwrap_or_default();
        match made["snapshot"].as_str() {
            Some(name) => self.ask(&format!("/snapshot/delete?snapshot={}", encoded(name))).map(drop),
            None => Err(Failure::new(Kind::Database, format!("no snapshot: {}", String::from_utf8_lossy(&answer)))),
        }
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        let http = self.connection()?;
        Ok(Box::new(VictoriaMetricsSession { http, table: self.table.clone(), line: Vec::new() }))
    }
}

struct VictoriaMetricsSession {
    http: Http,
    table: String,
    line: Vec<u8>,
}

impl VictoriaMetricsSession {
    /// One line: the series, its values, their times.
    fn gather(&mut self, sensor: Uuid, readings: &[Reading]) {
        put_line(&self.table, sensor, readings, &mut self.line);
        self.http.gather("POST", "/api/v1/import", &self.line);
    }

    /// What these functions of `MetricsQL` make of a sensor's samples in a span that ends at a time; nothing where it has
    /// none.
    fn rollups<const COUNT: usize>(
        &mut self,
        functions: [&str; COUNT],
        sensor: Uuid,
        span: &str,
        to: i64,
    ) -> Result<Option<[f64; COUNT]>, Failure> {
        let target = rollup_target(&self.table, &functions, sensor, span, to);
        let answer = self.http.ask("GET", &target, &[])?.successful()?;
        let wrong = || Failure::new(Kind::Database, "what the server answers is not VictoriaMetrics' JSON");
        let told: Value = serde_json::from_slice(answer.body).map_err(|_| wrong())?;
        let series = told["data"]["result"].as_array().ok_or_else(wrong)?;
        if series.is_empty() {
            return Ok(None);
        }
        let mut found = [f64::NAN; COUNT];
        for (function, number) in functions.iter().zip(&mut found) {
            let one = series.iter().find(|one| one["metric"]["rollup"] == *function);
            let value = one.and_then(|one| one["value"][1].as_str()?.parse().ok());
            *number = value.ok_or_else(wrong)?;
        }
        Ok(Some(found))
    }
}

/// The form of `/api/v1/import` and `/api/v1/export`, into an emptied `line`.
pub(crate) fn put_line(table: &str, sensor: Uuid, readings: &[Reading], line: &mut Vec<u8>) {
    line.clear();
    // Writing into memory does not fail.
    let _ = write!(line, r#"{{"metric":{{"__name__":"{table}","sensor":"{sensor}"}},"values":["#);
    let (mut value, mut time) = (zmij::Buffer::new(), itoa::Buffer::new());
    for (number, reading) in readings.iter().enumerate() {
        line.extend_from_slice(if number > 0 { b"," } else { b"" });
        line.extend_from_slice(value.format(reading.value).as_bytes());
    }
    line.extend_from_slice(br#"],"timestamps":["#);
    for (number, reading) in readings.iter().enumerate() {
        line.extend_from_slice(if number > 0 { b"," } else { b"" });
        line.extend_from_slice(time.format(reading.timestamp).as_bytes());
    }
    line.extend_from_slice(b"]}\n");
}

/// The readings of one such line; `None` where it is none.
fn take_line(line: &str, into: &mut Vec<Reading>) -> Option<()> {
    let array = |name: &str| {
        let (_, rest) = line.split_once(&format!("\"{name}\":["))?;
        Some(rest.split(']').next()?.split(','))
    };
    for (value, time) in array("values")?.zip(array("timestamps")?) {
        into.push(Reading { timestamp: time.parse().ok()?, value: value.parse().ok()? });
    }
    Some(())
}

/// Seconds since 1970, in the middle of the millisecond: the server multiplies by 1000 and cuts off.
fn seconds(milliseconds: i64) -> String {
    let milliseconds = milliseconds.clamp(0, LAST_MILLISECOND);
    format!("{}.{:03}5", milliseconds / 1000, milliseconds % 1000)
}

/// The request of [`VictoriaMetricsSession::rollups`].
fn rollup_target(table: &str, functions: &[&str], sensor: Uuid, span: &str, to: i64) -> String {
    let query = format!("aggr_over_time((\"{}\"), {table}{{sensor=\"{sensor}\"}}[{span}])", functions.join("\", \""));
    format!("/api/v1/query?nocache=1&time={}&query={}", seconds(to), encoded(&query))
}

impl Session for VictoriaMetricsSession {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.gather(sensor, readings);
        self.http.exchange(1, &mut |_| ())
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        let series = encoded(&format!("{}{{sensor=\"{sensor}\"}}", self.table));
        let target = format!("/api/v1/export?start={}&end={}&match[]={series}", seconds(from), seconds(to));
        let answer = self.http.ask("GET", &target, &[])?.successful()?;
        into.clear();
        let wrong = || Failure::new(Kind::Database, "what the server exports is not VictoriaMetrics' JSON");
        for line in std::str::from_utf8(answer.body).map_err(|_| wrong())?.lines() {
            take_line(line, into).ok_or_else(wrong)?;
        }
        // A series may come in several parts, in any order.
        if !into.is_sorted_by_key(|reading| reading.timestamp) {
            into.sort_by_key(|reading| reading.timestamp);
        }
        Ok(())
    }

    fn last_value(&mut self, sensor: Uuid, now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        into.clear();
        let found = self.rollups(["tlast_over_time", "last_over_time"], sensor, LOOKBACK, now)?;
        into.extend(found.map(|[time, value]| Reading { timestamp: (time * 1e3).round() as i64, value }));
        Ok(())
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        let functions = ["count_over_time", "avg_over_time", "min_over_time", "max_over_time"];
        // The span's beginning is not of it.  Of one that ends at a series' very first sample, the server makes nothing.
        let found = self.rollups(functions, sensor, &format!("{}ms", to - from + 1), to)?;
        Ok(found.map_or_else(Window::default, |[count, mean, min, max]| Window { count: count as u64, mean, min, max }))
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
        fuzz::fuzz("victoriametrics", include_str!("../../../fuzz/corpus/victoriametrics.txt"), |input| {
            let _ = data_of(input);
            let http = Http::holding(input);
            let mut session = VictoriaMetricsSession { http, table: "readings".into(), line: Vec::new() };
            let (sensor, reading, mut read) = (Uuid::nil(), Reading { timestamp: 1, value: 0.5 }, Vec::new());
            let _ = session.read(sensor, 0, 9, &mut read);
            let _ = session.window(sensor, 0, 9);
            let _ = session.last_value(sensor, 9, &mut read);
            let _ = session.write(sensor, &[reading]);
        });
    }

    #[test]
    fn an_answer_that_is_no_object_has_no_data() {
        assert_eq!(data_of(b"[]").unwrap(), Value::Null);
        assert_eq!(data_of(br#"{"data":[1]}"#).unwrap(), serde_json::json!([1]));
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let readings = [1, 2, 3].map(|time| Reading { timestamp: time, value: time as f64 / 1000.0 });
        let (mut line, mut read) = (Vec::new(), Vec::new());
        put_line("readings", Uuid::nil(), &readings, &mut line);
        take_line(std::str::from_utf8(&line).unwrap(), &mut read).unwrap();
        assert_eq!(read, readings);
        assert!(take_line("{}", &mut read).is_none());
    }

    #[test]
    fn a_last_value_is_looked_for_in_the_five_minutes_before_it_is_asked_for() {
        let target = rollup_target("readings", &["last_over_time"], Uuid::nil(), LOOKBACK, 1_577_836_800_000);
        let (asked, query) = target.split_once("&query=").unwrap();
        assert_eq!(asked, "/api/v1/query?nocache=1&time=1577836800.0005");
        assert!(query.ends_with(&encoded("[5m])")), "{query}");
    }

    #[test]
    fn an_interval_is_cut_off_to_its_very_millisecond() {
        for milliseconds in [1_577_836_800_000_i64, 1_577_836_800_001, 1_577_836_800_999, 1_893_456_000_007] {
            let seconds: f64 = seconds(milliseconds).parse().unwrap();
            assert_eq!((seconds * 1e3) as i64, milliseconds);
        }
    }
}
