"""An OCI image archive of virtgauge, of distribution packages alone: setup/container_image.py [FOLDER], else dist/.

virtgauge's Debian package (`--deb`; else it is made) is installed into a minimal root of the Debian that builds it, by
its package sources: no registry is asked, and no package manager is left inside.  The archive is an OCI image layout in
a tar, with Docker's manifest beside it, which `podman load`, `docker load`, `skopeo copy oci-archive:…` and `ctr images
import` take.  Package, sources and SOURCE_DATE_EPOCH (by default the commit's) being equal, so is the archive, byte for
byte.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
USER = 65532  # what other images without a root user take, too
RUNS = "/runs"  # the volume: runs, and scratch files in its hidden folders
JOB = ROOT / "deploy" / "kubernetes" / "virtgauge_job.py"
PACKAGES = "e2fsprogs"  # has mkfs.ext4, for the disks of guests
LEFT_OUT = ("doc", "info", "lintian", "locale", "man")  # of /usr/share, but for the licences
LIBRARIES = "usr/lib/virtgauge/lib/python3*/site-packages"
LEFT_OUT_OF_LIBRARIES = ("scipy/*/tests", "pyarrow/include", "pyarrow/tests")
TYPE = "application/vnd.oci.image"
# DuckDB as a measured database is the library by which archives are queried: one file with two names.
DUCKDB = """
import importlib.metadata, importlib.util, os
from virtgauge.provision.cache import BROUGHT, staged
from virtgauge.provision.databases import DUCKDB, DUCKDB_LIBRARY
facts = {"product": DUCKDB.title, "version": importlib.metadata.version(DUCKDB.name)}
with staged(BROUGHT / "databases" / DUCKDB.name / "current", facts) as folder:
    os.link(importlib.util.find_spec("_duckdb").origin, folder / DUCKDB_LIBRARY)
"""


def build(folder: Path, deb: Path, include: str = "") -> Path:
    """Write the archive into a folder, and name it."""
    _, version, architecture = deb.stem.split("_")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _told("git", "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory(prefix="virtgauge-image-") as scratch:
        layer = Path(scratch) / "layer.tar"
        _root(deb, include, layer, epoch)
        files = dict(_layout(layer.read_bytes(), epoch, version, architecture))
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"virtgauge_{version}_{architecture}.oci.tar"
    with tarfile.open(made, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), epoch
            archive.addfile(entry, io.BytesIO(content))
    return made


def _root(deb: Path, include: str, layer: Path, epoch: int) -> None:
    """The root file system, as a tar with sorted names and no time after the epoch."""
    options = [
        "--quiet",
        "--variant=essential",
        "--format=tar",
        "--skip=output/dev,cleanup/apt,cleanup/mmdebstrap",  # what these two clean is gone by then
        '--aptopt=APT::Install-Recommends "0"',
    ]
    options += ["--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount"]
    options += [f"--include={one}" for one in (deb.resolve(), PACKAGES, include) if one]
    left_out = [f"usr/share/{one}" for one in LEFT_OUT] + [f"{LIBRARIES}/{one}" for one in LEFT_OUT_OF_LIBRARIES]
    options += [f"--dpkgopt=path-exclude=/{place}/*" for place in left_out]
    options += ["--dpkgopt=path-include=/usr/share/doc/*/copyright"]
    for hook in (
        f'install -m 755 "{JOB}" "$1/usr/bin/virtgauge-job"',
        f'install -d -m 1777 -o {USER} -g {USER} "$1{RUNS}"',
        f"chroot \"$1\" /usr/lib/virtgauge/bin/python -c '{DUCKDB}'",
        'find "$1" -xdev -perm /6000 -type f -exec chmod a-s {} +',  # nobody becomes root by these
        # Names of the machine that builds, and what only package managers and boots use.
        'cd "$1" && rm -rf etc/resolv.conf etc/hostname etc/dpkg/dpkg.cfg.d/* etc/rc?.d var/lib/dpkg/info/*.md5sums',
        'cd "$1" && rm -rf var/cache/* var/log/* usr/lib/systemd/system',
        # The builder's sources may name hosts and hold passwords. What is installed stays on record, for scanners.
        'cd "$1" && rm -rf etc/apt etc/dpkg var/lib/apt usr/bin/dpkg* usr/sbin/dpkg* usr/lib/dpkg usr/share/dpkg',
        'find "$1/var/lib/dpkg" -mindepth 1 ! -name status ! -name info ! -name "*.list" -delete',
    ):
        options.append(f"--customize-hook={hook}")
    suite = _told("sh", "-c", '. /etc/os-release; echo "$VERSION_CODENAME"')
    sources = sorted(Path("/etc/apt/sources.list.d").glob("*.sources")) or [Path("/etc/apt/sources.list")]
    # By the variable, byte code is checked by its source's hash: the times of sources change with the epoch.
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    command = ["mmdebstrap", *options, suite, str(layer), *map(str, sources)]
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)


def _layout(layer: bytes, epoch: int, version: str, architecture: str) -> Iterator[tuple[str, bytes]]:
    """The files of the layout by their names; see the OCI image specification 1.0."""
    created = datetime.fromtimestamp(epoch, UTC).isoformat()
    labels = {"created": created, "title": "virtgauge", "version": version, "licenses": "Apache-2.0"}
    labels["revision"] = _told("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    if url := os.environ.get("SOURCE_URL"):
        labels["source"] = url
    annotations = {f"org.opencontainers.image.{name}": text for name, text in labels.items()}
    machine = {"architecture": architecture, "os": "linux"}
    config = {
        "User": f"{USER}:{USER}",
        "Env": ["PATH=/usr/sbin:/usr/bin", f"HOME={RUNS}", "LANG=C.UTF-8", "VIRTGAUGE_NO_PROVISION=1"],
        "Entrypoint": ["virtgauge"],
        "Cmd": ["--help"],
        "WorkingDir": "/",  # where runs/ is the volume
        "Volumes": {RUNS: {}},
        "StopSignal": "SIGTERM",
        "Labels": annotations,
    }
    root = {"type": "layers", "diff_ids": [_digest(layer)]}
    history = [{"created": created, "created_by": "setup/container_image.py"}]
    whole = machine | {"created": created, "config": config, "rootfs": root, "history": history}
    blobs: dict[str, bytes] = {}

    def place(digest: str) -> str:
        return f"blobs/{digest.replace(':', '/')}"

    def blob(kind: str, content: bytes) -> dict[str, Any]:
        digest = _digest(content)
        blobs[place(digest)] = content
        return {"mediaType": f"{TYPE}.{kind}", "digest": digest, "size": len(content)}

    manifest = {"schemaVersion": 2, "mediaType": f"{TYPE}.manifest.v1+json", "annotations": annotations}
    configured = blob("config.v1+json", _json(whole))
    packed = blob("layer.v1.tar+gzip", gzip.compress(layer, 6, mtime=0))
    manifest |= {"config": configured, "layers": [packed]}
    named = blob("manifest.v1+json", _json(manifest)) | {"platform": machine}
    image = f"localhost/virtgauge:{version}"
    # The first is the specification's, the second what containerd names the image by.
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": image}
    index = {"schemaVersion": 2, "mediaType": f"{TYPE}.index.v1+json", "manifests": [named | {"annotations": names}]}
    yield "oci-layout", _json({"imageLayoutVersion": "1.0.0"})
    yield "index.json", _json(index)
    # What Docker's classic store looks for, and no other.
    docker = {"Config": place(configured["digest"]), "RepoTags": [image], "Layers": [place(packed["digest"])]}
    yield "manifest.json", _json([docker])
    yield from sorted(blobs.items())


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _told(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--deb", type=Path, help="virtgauge's package, where it is made already")
    parser.add_argument("--include", default="", metavar="PACKAGES", help="more of Debian's, with commas between")
    chosen = parser.parse_args()
    if not shutil.which("mmdebstrap"):
        sys.exit("mmdebstrap is missing: apt install mmdebstrap")
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="virtgauge-image-") as place:
        make_deb = runpy.run_path(str(Path(__file__).with_name("deb.py")))["build"]
        print(build(chosen.folder, chosen.deb or make_deb(Path(place), compression="none"), chosen.include))
