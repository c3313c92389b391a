#!/bin/sh
# The beginning of every set-up: the Python environment from a lock file, and the agent beside it, because one waits for
# the network and the other for the processors.  Where the agent cannot be built yet (no C linker), the parts that
# `virtgauge provision` brings come first, and it is built then.
#
#   setup/start.sh LOCK
set -eu
cd "$(dirname "$0")/.."

agent=
if command -v cargo >/dev/null && command -v cc >/dev/null; then
    "$(setup/environment.sh --python)" setup/agent.py &
    agent=$!
fi
status=0
VIRTGAUGE_SKIP_AGENT=1 setup/environment.sh "$1" || status=$?
[ -z "$agent" ] || wait "$agent" || true # it is tried again, with its log, when it is needed
exit $status
