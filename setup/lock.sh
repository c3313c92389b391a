#!/bin/sh
# Resolves the dependencies anew: what runs (requirements.lock), what develops (requirements-dev.lock: that, all extras
# and the tools), what builds (requirements-build.lock), and uv itself.
# The locks hold versions and hashes for every Python and machine type that is supported, and no index address.
#
#   setup/lock.sh            the newest versions
#   setup/lock.sh --keep     versions that are locked already stay
set -eu
cd "$(dirname "$0")/.."
upgrade=--upgrade
if [ "${1:-}" = --keep ]; then upgrade=; fi
uv=$(setup/environment.sh --uv)

resolve() {
    output=$1
    shift
    "$uv" pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet $upgrade \
        --custom-compile-command "make lock" --output-file "$output" "$@"
    printf '%-10s %s\n' lock "$output"
}

resolve requirements.lock pyproject.toml
# The developer's lock agrees with the user's wherever both name a package.
resolve requirements-dev.lock pyproject.toml --group dev --constraint requirements.lock \
    --extra attach --extra fleet --extra query
resolve requirements-build.lock --group build --constraint requirements-dev.lock
# Compiled against the machine's libvirt, where there is one; see setup/libvirt.sh.
echo libvirt-python | resolve requirements-libvirt.lock -
echo uv | resolve requirements-uv.lock -
