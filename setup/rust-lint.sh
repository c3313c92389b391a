#!/bin/sh
# Formatting and lints of the Rust workspaces; a distribution's cargo may come without either tool.
set -eu
cd "$(dirname "$0")/../native"

have() {
    cargo "$1" --version >/dev/null 2>&1 && return
    echo "rust-lint  skipped: cargo has no $1 (rustup component add $2)"
    return 1
}

if have fmt rustfmt; then
    cargo fmt --all --check
    (cd sensorstore && cargo fmt --all --check)
fi
if have clippy clippy; then
    cargo clippy --locked --workspace --all-targets --quiet -- --deny warnings
    ../.venv/bin/python ../setup/sensorstore.py clippy --locked --all-targets --quiet -- --deny warnings
fi
