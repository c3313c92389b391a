//! The sender with the system's clock and sleep, linked dynamically, under the shim that puts hptime in their place: as
//! in the paper, which changed the timing of estimators without compiling them anew.

mod session;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use session::Listening;
use session::tries::in_one_of_five;

/// The workspace links statically, which no shim reaches; these flags are those of the shim's own build.
const FLAGS: &str = "--cfg=remapped -C target-feature=-crt-static -C relocation-model=pic";

const PACKETS: u64 = 200;

/// Compiles something of this workspace linked dynamically; the files that came of it.
fn compiled(arguments: &[&str]) -> Vec<PathBuf> {
    let executable = Path::new(env!("CARGO_BIN_EXE_bandwidth"));
    // TARGET/TRIPLE/PROFILE/bandwidth; the folder is the one that the set-up builds the shim in.
    let folder = executable.ancestors().nth(3).unwrap().join("shared");
    // Asked when it runs: a cache of builds is shared by checkouts, and the one that compiled this may be gone.
    let of_cargo = |name| PathBuf::from(std::env::var_os(name).unwrap());
    let output = Command::new(of_cargo("CARGO"))
        .args(arguments)
        .args(["--release", "--locked", "--message-format", "json-render-diagnostics"])
        .current_dir(of_cargo("CARGO_MANIFEST_DIR").parent().unwrap())
        .env("CARGO_TARGET_DIR", folder)
        .env("RUSTFLAGS", FLAGS)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let messages = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    messages
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .map(|name| PathBuf::from(name.as_str().unwrap()))
        .collect()
}

fn named(files: &[PathBuf], name: &str) -> PathBuf {
    files.iter().find(|file| file.file_name().is_some_and(|found| found == name)).unwrap().clone()
}

/// Sends a stream to a listener, under the shim; its result, and what the shim says of it.
fn send(program: &Path, shim: &Path, clock: &str, sleep: &str) -> (Value, Option<Value>) {
    let listening = Listening::on_loopback();
    let stats = std::env::temp_dir().join(format!("bandwidth-shim-{}-{clock}-{sleep}", std::process::id()));
    let port = listening.address.port().to_string();
    let packets = PACKETS.to_string();
    let Output { status, stdout, stderr } = Command::new(program)
        .args(["stream", "127.0.0.1", "--port", &port, "--packets", &packets, "--rate", "12e6"])
        // A margin that is learnt on a busy machine may be longer than the gaps, so that nothing is slept.
        .args(["--clock", clock, "--sleep", sleep, "--margin-us", "0"])
        .env("LD_PRELOAD", shim)
        .env("HPTIME_STATS", &stats)
        .output()
        .unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let result = String::from_utf8(stdout).unwrap();
    let result = serde_json::from_str(result.lines().last().unwrap()).unwrap();
    let said = std::fs::read_to_string(&stats).ok();
    let _ = std::fs::remove_file(&stats);
    (result, said.map(|said| serde_json::from_str(said.lines().last().unwrap()).unwrap()))
}

#[test]
fn the_shim_replaces_the_clock_and_the_sleep_of_a_sender_that_knows_nothing_of_it() {
    let program = named(&compiled(&["build", "--package", "bandwidth", "--bin", "bandwidth"]), "bandwidth");
    let shim = compiled(&["rustc", "--package", "hptime-preload", "--lib", "--crate-type", "cdylib"]);
    let shim = named(&shim, "libhptime_preload.so");
    for (clock, sleep, functions) in
        [("gettimeofday", "usleep", ["gettimeofday", "usleep"]), ("system", "system", ["clock_gettime", "nanosleep"])]
    {
        in_one_of_five(|| {
            let (result, said) = send(&program, &shim, clock, sleep);
            assert_eq!((&result["received"], &result["lost"]), (&PACKETS.into(), &0.into()), "{result}");
            let said = said.expect("the shim said nothing");
            let [read, asleep] = functions.map(|function| said["served"][function].as_u64().unwrap_or(0));
            assert!(read >= PACKETS / 2, "{said}");
            // A packet that is late already is not slept for.
            (asleep >= PACKETS / 2, said)
        });
        // With hptime linked in, there is nothing to replace: the stream's own times are not read through libc.
        let (_, said) = send(&program, &shim, "hptime", "hptime");
        let asleep = &said.expect("the shim said nothing")["served"][functions[1]];
        assert!(asleep.as_u64().is_none_or(|served| served < PACKETS / 4), "{asleep}");
    }
    // The static build, which runs in guests, is out of its reach.
    let (result, said) = send(Path::new(env!("CARGO_BIN_EXE_bandwidth")), &shim, "system", "system");
    assert_eq!((&result["received"], said), (&PACKETS.into(), None));
}
