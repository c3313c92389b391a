#!/bin/sh
# Makes .venv from a lock file: finds a Python, finds or fetches uv, installs the locked packages and virtgauge itself.
# The only part of the set-up that runs before there is a virtual environment; needs nothing but a shell and Python.
#
#   setup/environment.sh LOCK          make or refresh .venv
#   setup/environment.sh --uv          print the path of uv, fetching it if need be
#   setup/environment.sh --python      print the path of the Python that is used
set -eu
cd "$(dirname "$0")/.."

case "${XDG_CACHE_HOME:-}" in
/*) cache=$XDG_CACHE_HOME/virtgauge ;;
*) cache=$HOME/.cache/virtgauge ;;
esac
log=$cache/logs/environment.log
mkdir -p "$cache/logs"

say() { printf '%-10s %s\n' environment "$*" >&2; }

fail() {
    [ -s "$log" ] && tail -n 20 "$log" >&2
    say "failed: $*"
    exit 1
}

quietly() { "$@" >>"$log" 2>&1 </dev/null; }

# Prints the path of a Python of at least 3.11: $PYTHON, else the first on PATH, newest name last because the
# plain name is the one the user chose.  sys.executable sees through pyenv's shims.
find_python() {
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 /usr/bin/python3; do
        "$name" -c 'import sys; assert sys.version_info >= (3, 11); print(sys.executable)' 2>/dev/null && return
    done
    fail "no Python 3.11 or newer on PATH (set PYTHON=/path/to/python3)"
}

# Debian keeps ensurepip in a package of its own; without it a virtual environment has no pip.
ensure_pip() {
    "$1" -c 'import ensurepip' 2>/dev/null && return
    "$1" -m pip --version >/dev/null 2>&1 && return
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $package"
        DEBIAN_FRONTEND=noninteractive
        export DEBIAN_FRONTEND
        apt="apt-get -o APT::Get::AllowUnauthenticated=false -o Acquire::AllowInsecureRepositories=false"
        # shellcheck disable=SC2086
        quietly $apt install -y --no-install-recommends "$package" ||
            { quietly $apt update && quietly $apt install -y --no-install-recommends "$package"; } ||
            fail "apt-get could not install $package"
    else
        fail "$1 has neither pip nor ensurepip (sudo apt-get install $package)"
    fi
}

# Prints the path of uv: the one on PATH if it runs (a pyenv shim may not), else a private one at the locked version.
find_uv() {
    if uv --version >/dev/null 2>&1; then
        command -v uv
        return
    fi
    version=$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements-uv.lock)
    private=$cache/uv/$version/uv
    if ! "$private" --version >/dev/null 2>&1; then
        python=$(find_python)
        ensure_pip "$python"
        say "fetching uv $version"
        mkdir -p "$cache/uv/$version"
        partial=$(mktemp -d "$cache/uv/.partial-XXXXXX")
        trap 'rm -rf "$partial"' EXIT
        if "$python" -c 'import ensurepip' 2>/dev/null; then
            quietly "$python" -m venv "$partial/venv" || fail "no virtual environment could be made for uv"
            pip=$partial/venv/bin/python
            quietly "$pip" -m pip install --require-hashes -r requirements-uv.lock || fail "pip could not fetch uv"
            mv "$partial/venv/bin/uv" "$partial/uv"
        else
            quietly "$python" -m pip install --require-hashes --target "$partial/packages" -r requirements-uv.lock ||
                fail "pip could not fetch uv"
            mv "$partial/packages/bin/uv" "$partial/uv"
        fi
        mv -f "$partial/uv" "$private"
    fi
    echo "$private"
}

if [ "${1:-}" = --python ]; then
    find_python
    exit
fi
: >"$log"
uv=$(find_uv)
if [ "${1:-}" = --uv ]; then
    echo "$uv"
    exit
fi
lock=$1

if ! .venv/bin/python -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null; then
    python=$(find_python)
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    quietly "$uv" venv --no-project --no-python-downloads --python "$python" .venv || fail "uv could not make .venv"
fi
say "installing $lock"
# --no-config: nobody's own uv.toml decides what is installed here; the lock does.
# What has to be built from source is built with what requirements-build.lock pins by hash.
quietly "$uv" pip sync --no-config --python .venv/bin/python --require-hashes \
    --build-constraints requirements-build.lock "$lock" ||
    fail "uv could not install $lock"
quietly "$uv" pip install --no-config --python .venv/bin/python --no-deps \
    --build-constraints requirements-build.lock --editable . ||
    fail "virtgauge could not be installed into .venv"
say "ok: $(.venv/bin/python --version), $(grep -c '^[a-zA-Z0-9].*==' "$lock") locked packages"
