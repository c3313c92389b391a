#!/bin/bash
# The compiler, by a name of no machine for where a crate's sources are: else $CARGO_HOME would be in what is built, and
# two machines would make different bytes of the same sources.  What a build script wrote is in $OUT_DIR.
# Not sh: dash drops variables with a dash in their names, such as CARGO_BIN_EXE_virtgauge-agent, which tests need.
if [ "${CARGO_MANIFEST_DIR:-}" ]; then
    set -- "$@" "--remap-path-prefix=${CARGO_MANIFEST_DIR%/*}=/crates" "--remap-path-prefix=${OUT_DIR:-/out}=/out"
fi
exec "$@"
