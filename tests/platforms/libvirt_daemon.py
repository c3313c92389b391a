"""A real libvirtd of the tests' own: system mode, with every file of it in a private folder, and none left behind.

It runs in a mount namespace in which its folders, /etc/libvirt among them, are below ours; the machine's own libvirt,
if there is one, is neither seen nor changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from virtgauge.host.process import child_setup, end_process

FOLDERS = ("/etc/libvirt", "/run/libvirt", "/var/lib/libvirt", "/var/cache/libvirt", "/var/log/libvirt")
MADE = Path(tempfile.gettempdir(), "virtgauge-libvirtd-folders")
"""Which of them were made, locked by all that use them."""
CGROUPS = Path("/sys/fs/cgroup")
START_S = 60.0
HYPERVISORS_USER = 64055
"""Debian's number for the user of QEMU's processes (libvirt-qemu), and for its group."""

# The package without services brings no user for QEMU, and the daemon does not start where there is none of that name.
# A KVM that hangs would be asked for what it can do, minutes long.  LXC does not start in a hybrid of both cgroups.
SETUP = """
set -e
root=$1
listen=$2
shift 2
for folder in "$@"; do mount --bind "$root$folder" "$folder"; done
for table in passwd group; do
    { grep -v '^libvirt-qemu:' /etc/$table || true; } > "$root/$table"
done
echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin' >> "$root/passwd"
echo 'libvirt-qemu:x:64055:' >> "$root/group"
grep -q '^kvm:' "$root/group" || echo 'kvm:x:64056:' >> "$root/group"
for table in passwd group; do mount --bind "$root/$table" /etc/$table; done
if [ -d /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi
: > "$root/no-kvm"
chmod 600 "$root/no-kvm"
if [ -e /dev/kvm ]; then mount --bind "$root/no-kvm" /dev/kvm; fi
exec /usr/sbin/libvirtd --config "$root/etc/libvirt/libvirtd.conf" --pid-file "$root/libvirtd.pid" $listen
"""


@contextlib.contextmanager
def private_libvirtd(tcp_port: int | None = None) -> Iterator[Path]:
    """Run one; yields the path of its socket.

    Args:
        tcp_port: of the loopback, at which it answers as the daemon of another machine does; nobody is asked who he is.
    """
    root = Path(tempfile.mkdtemp(prefix="lvd"))
    partitions = set(CGROUPS.glob("*/machine"))
    for folder in FOLDERS:
        root.joinpath(folder[1:]).mkdir(parents=True)
    socket = root / "libvirt-sock"
    (root / "etc/libvirt/qemu.conf").write_text('stdio_handler = "file"\nsecurity_driver = "none"\nnamespaces = []\n')
    (root / "etc/libvirt/libvirtd.conf").write_text(
        f'unix_sock_dir = "{root}"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\nlog_outputs = "3:stderr"\n'
    )
    if tcp_port is not None:
        with (root / "etc/libvirt/libvirtd.conf").open("a") as more:
            more.write(
                'listen_tls = 0\nlisten_tcp = 1\nauth_tcp = "none"\nlisten_addr = "127.0.0.1"\n'
                f'tcp_port = "{tcp_port}"\n'
            )
    listen = "--listen" if tcp_port is not None else ""
    places = contextlib.ExitStack()
    places.enter_context(mount_points())
    with (root / "libvirtd.log").open("wb") as log:
        daemon = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "slave", "sh", "-c", SETUP, "sh", str(root), listen, *FOLDERS],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=child_setup(),
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_S
        while not socket.exists():
            assert daemon.poll() is None, (root / "libvirtd.log").read_text()
            assert time.monotonic() < deadline, (root / "libvirtd.log").read_text()
            time.sleep(0.05)
        yield socket
        assert daemon.poll() is None, (root / "libvirtd.log").read_text()
    finally:
        daemon.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(10)
        end_process(daemon)
        shutil.rmtree(root, ignore_errors=True)
        places.close()
        for folder in set(CGROUPS.glob("*/machine")) - partitions:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


@contextlib.contextmanager
def mount_points() -> Iterator[None]:
    """The folders on which the daemon's are mounted.

    Of several daemons at a time, the last removes what was made: a folder that goes takes with it what is mounted on it
    in other namespaces.
    """
    with MADE.open("a+") as made:
        fcntl.flock(made, fcntl.LOCK_SH)
        for folder in map(Path, FOLDERS):
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)
                made.write(f"{folder}\n")
        made.flush()
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
                made.seek(0)
                for path in made.read().splitlines():
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
                made.truncate(0)
