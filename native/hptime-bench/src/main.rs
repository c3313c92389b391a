//! Measures hptime beside other clocks and sleeps, on one pinned processor, and prints one JSON object a line.
//!
//!     hptime-bench cost  [ROUNDS]     cost of one reading
//!     hptime-bench error [SECONDS]    departure from the kernel's clocks
//!     hptime-bench sleep [SECONDS]    lateness and CPU use of sleeps, SECONDS for each target and way to sleep

// Every figure is in nanoseconds, and its name says so.
#![allow(clippy::struct_field_names)]

mod readings;
mod sleep;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let Ok(number) = arguments.next().map(|text| text.parse::<u32>()).transpose() else {
        return usage();
    };
    pin();
    println!("{}", machine());
    match what.as_str() {
        "cost" => readings::cost(number.unwrap_or(15)),
        "error" => readings::error(number.unwrap_or(60)),
        "sleep" => sleep::measure(number.unwrap_or(10)),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: hptime-bench cost [ROUNDS] | error [SECONDS] | sleep [SECONDS]");
    ExitCode::from(2)
}

/// Binds this thread to the last processor it may run on: the first ones get the interrupts.
fn pin() {
    // SAFETY: sets on the stack, for the calling thread.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size, &raw mut allowed);
        let Some(last) = (0..libc::CPU_SETSIZE as usize).rev().find(|&cpu| libc::CPU_ISSET(cpu, &allowed)) else {
            return;
        };
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(last, &mut only);
        libc::sched_setaffinity(0, size, &raw const only);
    }
}

/// The first line: what hptime's clock says of itself here.
fn machine() -> String {
    let clock = hptime::clock();
    clock.settle();
    let status = clock.status();
    let fallback_reason = clock.fallback_reason().map_or("null".into(), |reason| format!("{:?}", reason.text()));
    format!(
        r#"{{"kind":"clock","running":{},"refusal":{fallback_reason},"frequency_hz":{:.1}}}"#,
        status.running, status.frequency_hz
    )
}

/// The value below which a part of the sorted values lies.
fn quantile(sorted: &[i64], part: f64) -> i64 {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}
