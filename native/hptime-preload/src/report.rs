//! What the shim says: one line of JSON when the process ends, and one line on standard error when it serves nothing.
//!
//! Without allocation: `_exit` is allowed in signal handlers, and comes here.

use core::fmt::{self, Write};

use crate::counters::{self, ENTRIES, NAMES};
use crate::settings::{self, Destination, Wishes};
use crate::timekeeper::{self, Mode};
use crate::{kernel, sleep};

/// Text of bounded length; what is too long is cut off.
struct Text {
    bytes: [u8; 4096],
    length: usize,
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; 4096], length: 0 }
    }

    fn write_to(&self, descriptor: i32) {
        // SAFETY: the bytes live; a report that cannot be written is none.
        unsafe {
            kernel::call(libc::SYS_write, [descriptor as usize, self.bytes.as_ptr() as usize, self.length]);
        }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.length;
        let taken = text.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        if taken == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Says why nothing is served, if that was wished for.
pub fn say_at_begin(wishes: Wishes) {
    if !wishes.verbose {
        return;
    }
    let mut text = Text::new();
    let said = match timekeeper::mode() {
        Mode::Disabled => writeln!(text, "hptime-preload: serves nothing: HPTIME_DISABLE is set"),
        Mode::Refused => writeln!(text, "hptime-preload: serves nothing: {}", reason()),
        Mode::Early | Mode::Serving => Ok(()),
    };
    let named = if wishes.unknown_rule {
        writeln!(text, "hptime-preload: HPTIME_RULE names no rule (adaptive, highpertimer, os): adaptive is used")
    } else {
        Ok(())
    };
    if said.and(named).is_ok() && text.length > 0 {
        text.write_to(libc::STDERR_FILENO);
    }
}

fn reason() -> &'static str {
    timekeeper::fallback_reason().map_or("the counter cannot be used", |reason| reason.text())
}

/// Writes the report, if one was asked for.
pub fn write(process: i32) {
    let Some(destination) = settings::destination() else {
        return;
    };
    let mut text = Text::new();
    if describe(&mut text, process).is_err() {
        return;
    }
    match destination {
        Destination::Descriptor(descriptor) => text.write_to(descriptor),
        Destination::File(path) => {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            let folder = libc::AT_FDCWD as usize;
            // SAFETY: a C string; the descriptor is our own.
            unsafe {
                let opened = kernel::call(libc::SYS_openat, [folder, path.as_ptr() as usize, flags as usize, 0o666]);
                if opened >= 0 {
                    text.write_to(opened as i32);
                    kernel::call(libc::SYS_close, [opened as usize]);
                }
            }
        }
    }
}

fn describe(text: &mut Text, process: i32) -> fmt::Result {
    // SAFETY: no arguments.
    let parent = unsafe { kernel::call(libc::SYS_getppid, []) };
    write!(text, "{{\"process\":{process},\"parent\":{parent},\"mode\":")?;
    match timekeeper::fallback_reason() {
        Some(fallback_reason) => write!(text, "\"refused\",\"reason\":\"{}\"", fallback_reason.text())?,
        None if timekeeper::mode() == Mode::Disabled => {
            write!(text, "\"disabled\",\"reason\":\"HPTIME_DISABLE is set\"")?;
        }
        None => write!(text, "\"serving\",\"reason\":null")?,
    }
    write!(text, ",\"rule\":\"{}\",\"served\":", settings::rule().name())?;
    let calls = counters::totals();
    describe_counts(text, &calls.served)?;
    write!(text, ",\"passed\":")?;
    describe_counts(text, &calls.passed)?;
    let sleeps = sleep::totals();
    writeln!(
        text,
        ",\"sleeps\":{},\"interrupted\":{},\"spin_ns\":{}}}",
        sleeps.sleeps, sleeps.interrupted, sleeps.spin_ns
    )
}

/// Only what was called at all.
fn describe_counts(text: &mut Text, counts: &[u64; ENTRIES]) -> fmt::Result {
    let mut separator = "";
    write!(text, "{{")?;
    for (name, count) in NAMES.iter().zip(counts).filter(|(_, count)| **count > 0) {
        write!(text, "{separator}\"{name}\":{count}")?;
        separator = ",";
    }
    write!(text, "}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_report_fits() {
        let mut text = Text::new();
        describe(&mut text, i32::MAX).unwrap();
        describe_counts(&mut text, &[u64::MAX; ENTRIES]).unwrap();
        describe_counts(&mut text, &[u64::MAX; ENTRIES]).unwrap();
        assert!(text.length < text.bytes.len() - 256);
    }
}
