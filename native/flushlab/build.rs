//! Decides whether the entry points take the place of libc's.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(interpose)");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    // In a static executable there is nothing to take the place of, and a second `fsync` would not link.
    if !features.split(',').any(|feature| feature == "crt-static") {
        println!("cargo::rustc-cfg=interpose");
    }
}
