#!/bin/sh
# Formatting of all Rust, and lints of all crates but sensorstore, or of that; a distribution's cargo may come without either tool.
#
#   setup/rust-lint.sh [sensorstore]
#
# In release mode: build scripts and procedural macros are there from the build.
set -eu
cd "$(dirname "$0")/../native"

have() {
    cargo "$1" --version >/dev/null 2>&1 && return
    echo "rust-lint  skipped: cargo has no $1 (rustup component add $2)"
    return 1
}

lints="--locked --release --all-targets --quiet"
if [ "${1:-}" = sensorstore ]; then
    have clippy clippy || exit 0
    # shellcheck disable=SC2086
    exec ../.venv/bin/python ../setup/sensorstore.py clippy $lints -- --deny warnings
fi
if have fmt rustfmt; then
    cargo fmt --all --check
fi
if have clippy clippy; then
    # shellcheck disable=SC2086
    cargo clippy --workspace --exclude sensorstore $lints -- --deny warnings
fi
