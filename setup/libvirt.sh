#!/bin/sh
# Puts the Python module of libvirt (the extra "libvirt") into .venv.  It is compiled against the machine's own libvirt,
# and so cannot be part of the environment that comes before the packages; where there is no libvirt, it is left out.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%-10s %s\n' libvirt "$*" >&2; }

if ! pkg-config --exists libvirt 2>/dev/null; then
    say "skipped: libvirt's headers are missing (sudo apt-get install --no-install-recommends pkg-config libvirt-dev)"
    exit
fi
uv=$(setup/environment.sh --uv)
if "$uv" pip install --no-config --quiet --python .venv/bin/python --require-hashes \
    --build-constraints requirements-build.lock -r requirements-libvirt.lock; then
    say "ok: $(.venv/bin/python -c 'import importlib.metadata as m; print("libvirt-python", m.version("libvirt-python"))')"
else
    say "skipped: it could not be built"
fi
