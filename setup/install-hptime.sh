#!/bin/sh
# Builds hptime for C and installs header, shared and static library and hptime.pc.
# usage: PREFIX=/usr/local setup/install-hptime.sh        (DESTDIR, LIBDIR and INCLUDEDIR as usual)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
includedir=${INCLUDEDIR:-$prefix/include}
destination=${DESTDIR:-}
for folder in "$prefix" "$libdir" "$includedir"; do
    case $folder in
    /*) ;;
    *) echo "install-hptime: $folder is not an absolute path; set PREFIX, LIBDIR and INCLUDEDIR to absolute ones" >&2; exit 2 ;;
    esac
done

# Beside the workspace's own folder, whose objects are linked statically and would be built anew each time.
target=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/virtgauge/target}/shared
triple=$(rustc -vV | sed -n 's/^host: //p')
major=0
said=$(mktemp)
trap 'rm -f "$said"' EXIT

cd "$root/native"
version=$(cargo pkgid -p hptime-c | sed 's/.*[#@]//')
RUSTFLAGS="--cfg=remapped -C target-feature=-crt-static -C relocation-model=pic -C link-arg=-Wl,-soname,libhptime.so.$major" \
    CARGO_TARGET_DIR=$target \
    cargo rustc --locked --quiet --release -p hptime-c --target "$triple" --crate-type cdylib,staticlib \
    -- --print native-static-libs 2>"$said" || { cat "$said" >&2; exit 1; }
built=$target/$triple/release
# What the static library needs of the system.  Every C compiler adds its own run-time support (and only it knows which,
# with -static) and the C library.
needs=$(sed -n 's/.*native-static-libs: //p' "$said" | tail -n 1 | sed 's/-lgcc_s//; s/-lc$//; s/^ *//; s/ *$//')

install -d "$destination$libdir/pkgconfig" "$destination$includedir"
install -m 644 hptime-c/include/hptime.h "$destination$includedir/hptime.h"
install -m 644 "$built/libhptime_c.a" "$destination$libdir/libhptime.a"
# The standard library's debugging information is nine tenths of the archive.
if command -v strip >/dev/null; then strip --strip-debug "$destination$libdir/libhptime.a"; fi
install -m 755 "$built/libhptime_c.so" "$destination$libdir/libhptime.so.$version"
ln -sf "libhptime.so.$version" "$destination$libdir/libhptime.so.$major"
ln -sf "libhptime.so.$major" "$destination$libdir/libhptime.so"
cat >"$destination$libdir/pkgconfig/hptime.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=$includedir

Name: hptime
Description: Calibrated, disciplined clock on the processor's time stamp counter, and a sleep that ends on time
Version: $version
Libs: -L\${libdir} -lhptime
Libs.private: $needs
Cflags: -I\${includedir}
END
echo "hptime     $version in $destination$prefix"
