//! The header says what the library has: every function with its types, every structure with its layout, every number.

use std::mem::{offset_of, size_of};
use std::process::{Command, Stdio};

use hptime::{Cause, Fallback};
use hptime_c::{HptimeStatus, HptimeWake};

const HEADER: &str = include_str!("../include/hptime.h");
const SOURCE: &str = include_str!("../src/lib.rs");

/// A Rust type of the interface as C writes it.
fn in_c(rust: &str) -> &'static str {
    match rust.trim() {
        "u64" => "uint64_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "c_int" => "int",
        "*const c_char" => "const char *",
        "*mut HptimeStatus" => "struct hptime_status *",
        "*mut HptimeWake" => "struct hptime_wake *",
        other => panic!("a type that the header has no word for: {other}"),
    }
}

fn declaration(kind: &str, name: &str) -> String {
    if kind.ends_with('*') { format!("{kind}{name}") } else { format!("{kind} {name}") }
}

/// `fn name(a: u64) -> u64 {` as the header has to declare it.
fn declared(signature: &str) -> String {
    let (head, rest) = signature.split_once('(').unwrap();
    let (parameters, result) = rest.split_once(')').unwrap();
    let parameters: Vec<String> = parameters
        .split(',')
        .filter_map(|parameter| parameter.split_once(':'))
        .map(|(name, kind)| declaration(in_c(kind), name.trim()))
        .collect();
    let parameters = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
    let result = result.trim_end_matches('{').trim().strip_prefix("->").map_or("void", in_c);
    format!("{}({parameters});", declaration(result, head.trim()))
}

#[test]
fn every_exported_function_is_declared_with_its_types_and_nothing_else_is() {
    let exported: Vec<String> =
        SOURCE.lines().filter_map(|line| Some(declared(line.split_once("extern \"C\" fn ")?.1))).collect();
    assert!(exported.len() >= 10);
    let declared: Vec<&str> = HEADER.lines().filter(|line| line.ends_with(");") && line.contains("hptime_")).collect();
    for function in &exported {
        assert!(declared.contains(&function.as_str()), "missing in hptime.h: {function}");
    }
    assert_eq!(declared.len(), exported.len());
}

/// What a C compiler has to agree with.
fn assertions() -> String {
    let mut lines = vec!["#include <stddef.h>".to_owned(), "#include <hptime.h>".to_owned()];
    let mut equal = |left: &str, right: usize| {
        lines.push(format!("typedef char assert_{}[({left}) == {right}u ? 1 : -1];", lines.len()));
    };
    macro_rules! layout {
        ($rust:ident, $c:literal, $($field:ident),*) => {
            equal(concat!("sizeof(struct ", $c, ")"), size_of::<$rust>());
            $(equal(concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"), offset_of!($rust, $field));)*
        };
    }
    layout!(HptimeWake, "hptime_wake", lateness_ns, spin_ns, guard_ns, cause, reserved);
    layout!(
        HptimeStatus,
        "hptime_status",
        running,
        fallback_reason,
        frequency_hz,
        difference_error_ppm,
        absolute_error_ns,
        absolute_error_ppm,
        alarm_ppm,
        alarms,
        quiet,
        measurements
    );
    let refusals = ["NO_COUNTER", "FORBIDDEN", "NOT_INVARIANT", "NOT_SYNCHRONIZED", "TRAPPED", "WENT_BACK", "DRIFTED"];
    assert_eq!(refusals.len(), Fallback::ALL.len());
    for (name, reason) in refusals.iter().zip(Fallback::ALL) {
        equal(&format!("HPTIME_{name}"), reason as usize);
    }
    let causes = [
        ("SLEPT", Cause::Slept),
        ("SPUN_ONLY", Cause::SpunOnly),
        ("LATE_WAKE", Cause::LateWake),
        ("PAST", Cause::Past),
        ("INTERRUPTED", Cause::Interrupted),
    ];
    for (name, cause) in causes {
        equal(&format!("HPTIME_{name}"), cause as usize);
    }
    lines.push("int main(void) { return 0; }\n".to_owned());
    lines.join("\n")
}

/// Whether a compiler takes the header, strictly, and agrees on layout and numbers; false when it is not installed.
fn compiles(compiler: &str, language: &str, standard: &str) -> bool {
    // Asked when it runs: a cache of builds is shared by checkouts, and the one that compiled this may be gone.
    let include = format!("-I{}/include", std::env::var("CARGO_MANIFEST_DIR").unwrap());
    let spawned = Command::new(compiler)
        .args(["-x", language, standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", &include, "-"])
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else { return false };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), assertions().as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{compiler} does not agree with hptime.h as {language}");
    true
}

#[test]
fn c_and_cpp_compilers_agree_on_layout_and_numbers() {
    // The linker of Rust itself is `cc`, so that one is always there.
    assert!(compiles("cc", "c", "-std=c99"));
    if !compiles("c++", "c++", "-std=c++11") {
        println!("no C++ compiler here: the header was compiled as C only");
    }
}
