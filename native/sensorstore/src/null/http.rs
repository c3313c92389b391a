//! The null server of the databases that speak HTTP: InfluxDB, VictoriaMetrics, and QuestDB's line protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::drivers::uri::decode;
use crate::drivers::victoriametrics::put_line;
use crate::generator::Answers;
use crate::store::Reading;

/// Serves one connection, until it is lost or asks what is not understood.
pub(super) fn converse(socket: TcpStream, answers: Arc<Answers>, rows: Arc<AtomicU64>) -> Option<()> {
    socket.set_nodelay(true).ok()?;
    let mut input = BufReader::with_capacity(64 << 10, &socket);
    let (mut line, mut body, mut answer, mut output) = (String::new(), Vec::new(), Vec::new(), Vec::new());
    let mut readings = Vec::new();
    loop {
        line.clear();
        input.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let target = line.split(' ').nth(1)?.to_owned();
        let mut length = 0;
        while line.trim_end() != "" {
            line.clear();
            input.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            if let Some(given) = line.strip_prefix("Content-Length: ") {
                length = given.trim_end().parse().ok()?;
            }
        }
        body.clear();
        (&mut input).take(length).read_to_end(&mut body).ok()?;
        answer.clear();
        let status = respond(&target, &body, &answers, &rows, &mut readings, &mut answer)?;
        write!(output, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", answer.len()).ok()?;
        output.extend_from_slice(&answer);
        if input.buffer().is_empty() {
            (&socket).write_all(&output).ok()?;
            output.clear();
        }
    }
}

/// Answers one request; `None` for one that no driver of ours makes.
fn respond(
    target: &str,
    body: &[u8],
    answers: &Answers,
    rows: &AtomicU64,
    readings: &mut Vec<Reading>,
    answer: &mut Vec<u8>,
) -> Option<&'static str> {
    let target = decode(target)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let counted = || rows.load(Ordering::Relaxed);
    match path {
        "/write" => {
            rows.fetch_add(body.split(|byte| *byte == b'\n').count() as u64 - 1, Ordering::Relaxed);
            return Some("204 No Content");
        }
        "/api/v1/import" => {
            let times = between(std::str::from_utf8(body).ok()?, "\"timestamps\":[", "]")?;
            rows.fetch_add(times.split(',').count() as u64, Ordering::Relaxed);
            return Some("204 No Content");
        }
        "/query" if query.contains("q=SELECT value") => {
            let sensor = Uuid::try_parse(between(query, "sensor = '", "'")?).ok()?;
            let (from, to) = (between(query, "time >= ", "ms")?, between(query, "time <= ", "ms")?);
            answers.read(sensor, from.parse().ok()?, to.parse().ok()?, readings);
            answer.extend_from_slice(b"name,tags,time,value\n");
            for reading in readings.iter() {
                answer.extend_from_slice(b"readings,,");
                answer.extend_from_slice(itoa::Buffer::new().format(reading.timestamp).as_bytes());
                answer.push(b',');
                answer.extend_from_slice(zmij::Buffer::new().format(reading.value).as_bytes());
                answer.push(b'\n');
            }
        }
        "/api/v1/export" => {
            let sensor = Uuid::try_parse(between(query, "sensor=\"", "\"")?).ok()?;
            let time = |name| Some((between(query, name, "&")?.parse::<f64>().ok()? * 1e3) as i64);
            answers.read(sensor, time("start=")?, time("end=")?, readings);
            if !readings.is_empty() {
                put_line("readings", sensor, readings, answer);
            }
        }
        "/query" => write!(answer, r#"{{"results":[{{{}}}]}}"#, influxdb_series(query, counted(), rows)?).ok()?,
        "/metrics" => answer.extend_from_slice(b"vm_app_version{version=\"null\", short_version=\"null\"} 1\n"),
        "/api/v1/query" => write!(answer, r#"{{"data":{{"result":[{{"value":[0,"{}"]}}]}}}}"#, counted()).ok()?,
        "/api/v1/series" if counted() > 0 => answer.extend_from_slice(br#"{"data":[{"__name__":"readings"}]}"#),
        "/api/v1/series" => answer.extend_from_slice(br#"{"data":[]}"#),
        "/api/v1/admin/tsdb/delete_series" => rows.store(0, Ordering::Relaxed),
        "/internal/force_flush" => {}
        _ => return None,
    }
    Some("200 OK")
}

/// The series that InfluxDB's statements of setting up bring.
fn influxdb_series(query: &str, counted: u64, rows: &AtomicU64) -> Option<String> {
    let statement = query.split_once("q=")?.1;
    Some(match statement.split(' ').take(2).collect::<Vec<_>>().join(" ").as_str() {
        "SHOW DATABASES" => format!(r#""series":[{{"values":[["{}"]]}}]"#, between(query, "db=", "&")?),
        "SHOW DIAGNOSTICS" => r#""series":[{"name":"build","columns":["Version"],"values":[["null"]]}]"#.into(),
        "SELECT count(value)" => format!(r#""series":[{{"values":[[0,{counted}]]}}]"#),
        "SHOW MEASUREMENTS" if counted > 0 => r#""series":[{"name":"measurements"}]"#.into(),
        "DROP MEASUREMENT" => {
            rows.store(0, Ordering::Relaxed);
            String::new()
        }
        _ => String::new(),
    })
}

fn between<'text>(text: &'text str, before: &str, after: &str) -> Option<&'text str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after).map_or(rest, |(part, _)| part))
}
