//! PostgreSQL's driver against a real server, which each test starts in a folder of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sensorstore::drivers;
use sensorstore::failure::{Failure, Kind};
use sensorstore::generator::Data;
use sensorstore::spec::StoreSpec;
use sensorstore::store::{Reading, Schema, Store};
use serde_json::{Value, json};

const DATA: Data = Data { seed: 5, sensors: 4, step_ms: 1000, late: None };

/// A user for each way of authentication.
const USERS: &str = "host all virtgauge 127.0.0.1/32 trust\nhost all scram 127.0.0.1/32 scram-sha-256\n\
                     host all md5 127.0.0.1/32 md5\nhost all plain 127.0.0.1/32 password\n";

const FRESH: Schema = Schema { index: true, drop: false };

/// A server, as long as it is held.
struct Server {
    folder: PathBuf,
    port: u16,
    process: Child,
}

impl Server {
    fn start(name: &str) -> Self {
        let programs = programs();
        let folder = std::env::temp_dir().join(format!("sensorstore-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let unprivileged = unprivileged(&folder);
        let data = folder.join("data");
        let mut initdb = command(unprivileged, &programs.join("initdb"));
        initdb.args(["--auth=trust", "--username=virtgauge", "--no-sync", "--pgdata"]).arg(&data).current_dir("/");
        assert!(initdb.stdout(Stdio::null()).status().unwrap().success(), "initdb failed");
        fs::write(data.join("pg_hba.conf"), USERS).unwrap();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut postgres = command(unprivileged, &programs.join("postgres"));
        postgres.arg("-D").arg(&data).args(["-p", &port.to_string(), "-c", "fsync=off"]);
        postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]).current_dir("/");
        let process = postgres.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { folder, port, process };
        let begun = Instant::now();
        while let Err(failure) = server.store(&json!({})).about() {
            assert_eq!(failure.kind, Kind::Refused, "{failure}");
            assert!(begun.elapsed() < Duration::from_secs(30), "the server does not start: {failure}");
            sleep(Duration::from_millis(20));
        }
        server
    }

    fn specification(&self, changes: &Value) -> StoreSpec {
        let mut spec = json!({
            "driver": "postgres", "address": "127.0.0.1", "port": self.port, "user": "virtgauge",
            "database": "postgres", "timeout_ms": 5000,
        });
        spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn store(&self, changes: &Value) -> Box<dyn Store> {
        drivers::open(&self.specification(changes), None).unwrap()
    }

    fn sql(&self, statement: &str) -> String {
        let mut psql = Command::new(programs().join("psql"));
        psql.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "virtgauge", "-d", "postgres", "-Atc"]);
        let output = psql.arg(statement).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().into()
    }

    fn signal(&self, signal: &str) {
        // To the whole tree: the backends are children of the postmaster.
        let pid = self.process.id().to_string();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let all = [pid.as_str()].into_iter().chain(children.split_whitespace());
        Command::new("kill").arg(signal).args(all).stderr(Stdio::null()).status().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Immediate shutdown: a kill -9 would leave its shared memory behind.
        self.signal("-QUIT");
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn programs() -> PathBuf {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed.map(|version| version.path().join("bin")).filter(|bin| bin.join("postgres").exists()).max();
    newest.expect(
        "there is no PostgreSQL server in /usr/lib/postgresql/*/bin; this test needs one (apt install postgresql)",
    )
}

/// PostgreSQL does not run as root: whom it runs as then, the owner of its folder.
fn unprivileged(folder: &Path) -> Option<u32> {
    // SAFETY: it only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let user = users.lines().find_map(|line| line.strip_prefix("postgres:x:")?.split(':').next()?.parse().ok());
    let user = user.expect("the user postgres, whom the server would run as, is missing");
    chown(folder, Some(user), None).unwrap();
    Some(user)
}

fn command(unprivileged: Option<u32>, program: &Path) -> Command {
    let Some(user) = unprivileged else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), "--clear-groups", "--"]).arg(program);
    command
}

fn readings(sensor: u64, first: u64, count: u64) -> Vec<Reading> {
    let mut readings = Vec::new();
    DATA.readings(sensor, first, count, &mut readings);
    readings
}

fn kind<T>(result: Result<T, Failure>) -> Kind {
    result.err().expect("this should have failed").kind
}

#[test]
fn what_is_written_in_any_way_is_read_back_to_the_bit() {
    let server = Server::start("round-trip");
    for mode in ["unnest", "copy", "insert", "values"] {
        let store = server.store(&json!({ "options": { "write_mode": mode } }));
        store.create(Schema { index: mode != "copy", drop: false }).unwrap();
        let (mut session, mut read) = (store.connect().unwrap(), Vec::new());
        session.write(DATA.sensor(0), &readings(0, 0, 1)).unwrap();
        session.write(DATA.sensor(0), &readings(0, 1, 1000)).unwrap();
        let (one, many) = (readings(1, 0, 1), readings(1, 1, 500));
        let writes: Vec<(_, &[Reading])> = vec![(DATA.sensor(1), &one), (DATA.sensor(1), &many)];
        session.write_pipelined(&writes, &mut |_| ()).unwrap();
        store.settle().unwrap();
        assert_eq!(store.count().unwrap(), 1001 + 501, "{mode}");
        session.read(DATA.sensor(0), DATA.timestamp(0), DATA.timestamp(1000), &mut read).unwrap();
        assert_eq!(read, readings(0, 0, 1001), "{mode}");
        session.read(DATA.sensor(1), DATA.timestamp(500), DATA.timestamp(500), &mut read).unwrap();
        assert_eq!(read, readings(1, 500, 1), "{mode}");
        session.read(DATA.sensor(2), 0, i64::MAX, &mut read).unwrap();
        assert!(read.is_empty());
        let indexes = server.sql("SELECT count(*) FROM pg_indexes WHERE tablename = 'virtgauge_readings'");
        assert_eq!(indexes, if mode == "copy" { "0" } else { "1" });
        store.drop_table().unwrap();
    }
}

#[test]
fn a_table_that_is_there_is_left_alone_unless_it_may_be_dropped() {
    let server = Server::start("exists");
    server.sql("CREATE TABLE virtgauge_readings (precious text)");
    server.sql("INSERT INTO virtgauge_readings VALUES ('mine')");
    let store = server.store(&json!({}));
    assert_eq!(kind(store.create(FRESH)), Kind::Exists);
    assert_eq!(kind(store.connect()), Kind::Schema);
    assert_eq!(server.sql("SELECT precious FROM virtgauge_readings"), "mine");
    store.create(Schema { drop: true, ..FRESH }).unwrap();
    assert_eq!(store.count().unwrap(), 0);
    store.drop_table().unwrap();
    assert_eq!(kind(store.connect()), Kind::Schema);
}

#[test]
fn every_way_of_authentication_accepts_the_password_and_no_other() {
    let server = Server::start("authentication");
    server.sql("CREATE USER scram PASSWORD 'p@ss'; SET password_encryption = md5; CREATE USER md5 PASSWORD 'p@ss'");
    server.sql("CREATE USER plain PASSWORD 'p@ss'");
    for user in ["scram", "md5", "plain"] {
        server.store(&json!({ "user": user, "password": "p@ss" })).about().unwrap();
        assert_eq!(kind(server.store(&json!({ "user": user, "password": "wrong" })).about()), Kind::Denied);
        let uri = format!("postgresql://{user}:p%40ss@127.0.0.1:{}/postgres", server.port);
        server.store(&json!({ "uri": uri })).about().unwrap();
    }
    assert_eq!(kind(server.store(&json!({ "user": "nobody" })).about()), Kind::Denied);
    assert_eq!(kind(server.store(&json!({ "database": "nowhere" })).about()), Kind::Schema);
}

#[test]
fn a_session_has_the_settings_that_it_is_told_and_about_says_what_holds() {
    let server = Server::start("settings");
    let about = server.store(&json!({ "options": { "synchronous_commit": "off" } })).about().unwrap();
    assert!(about.version.starts_with("PostgreSQL 1"), "{}", about.version);
    assert_eq!(about.settings["synchronous_commit"], "off");
    assert_eq!(about.settings["fsync"], "off");
    assert_eq!(about.settings["wal_writer_delay"], "200ms");
    let mistyped = server.store(&json!({ "options": { "synchronous_comit": "off" } })).about();
    assert_eq!(kind(mistyped), Kind::BadRequest);
}

#[test]
fn a_server_that_hangs_is_a_timeout_and_one_that_dies_is_lost() {
    let server = Server::start("faults");
    let store = server.store(&json!({ "timeout_ms": 2000 }));
    store.create(FRESH).unwrap();
    let mut session = store.connect().unwrap();
    let mut other = store.connect().unwrap();
    server.signal("-STOP");
    let begun = Instant::now();
    assert_eq!(kind(session.write(DATA.sensor(0), &readings(0, 0, 1))), Kind::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(10));
    server.signal("-CONT");
    other.write(DATA.sensor(0), &readings(0, 1, 1)).unwrap();
    assert_eq!(kind(session.write(DATA.sensor(0), &readings(0, 2, 1))), Kind::Lost);
    server.signal("-QUIT");
    assert_eq!(kind(other.write(DATA.sensor(0), &readings(0, 3, 1))), Kind::Lost);
}
