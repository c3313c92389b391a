"""Build time and size of the image that boots anywhere, beside the size of a distribution's minimal cloud image.

A peer's size is what its publisher's server says of the file at the time, or for one of them what the publisher's
documentation says; nothing of it is downloaded.
"""

from __future__ import annotations

import argparse
import hashlib
import time
import urllib.error
import urllib.request
from pathlib import Path

from benchmark import BenchmarkError, Outcome, figure, main, progress, spread
from by_hand import scratch

from virtgauge.errors import VirtgaugeError
from virtgauge.image.build import build, find_ingredients
from virtgauge.image.contents import SerialChannel
from virtgauge.image.formats import Format
from virtgauge.provision.progress import silence

PUBLISHED = "https://cloud.debian.org/images/cloud/bookworm/latest"
PEERS = {
    "Debian 12 genericcloud": "debian-12-genericcloud-amd64",
    "Debian 12 nocloud": "debian-12-nocloud-amd64",
}
"""Debian's images for clouds: without drivers of real hardware, and with a user to log in without any cloud."""

CITED = "Ubuntu minimal, since 23.10"
CITED_BYTES = {Format.QCOW2: round(226.75 * 2**20)}
CITED_FROM = (
    "Canonical, Ubuntu base and minimal images, "
    "https://documentation.ubuntu.com/public-cloud/en/latest/all-clouds-explanation/ubuntu-base-and-minimal-images/ "
    "(a copy of the page, seen on 2026-11-22)"
)
"""What a publisher writes of the download of a cloud image that was made minimal on purpose: a qcow2 of 226.75 MiB, for
whoever has no network to ask a server by."""

_PEER_FORMATS = {Format.RAW: "raw", Format.QCOW2: "qcow2"}
_MB = 1e-6
_BOUND_S = 20.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--builds", type=int, default=3, help="builds of each format, compared byte by byte")
    parser.add_argument("--offline", action="store_true", help="ask nobody for the size of the peers")


def measure(arguments: argparse.Namespace) -> Outcome:
    builds = 2 if arguments.quick else arguments.builds
    rows, values, notes = [], {}, []
    sizes = {} if arguments.offline else _published(notes)
    if arguments.offline:
        notes.append("The peers' sizes were not asked for (--offline).")
    shown = (*(PEERS if sizes else ()), CITED)
    with scratch() as folder:
        for format in Format:
            seconds, size = _built(format, folder, builds)
            peers = sizes.get(format, {}) | ({CITED: CITED_BYTES[format]} if format in CITED_BYTES else {})
            rows.append(
                [
                    format.value,
                    spread(seconds),
                    figure(size * _MB),
                    *(figure(peers[name] * _MB) if name in peers else "–" for name in shown),
                    *(f"1 : {peers[name] / size:.0f}" if name in peers else "–" for name in shown),
                ]
            )
            values[format.value] = {"build_s": seconds, "bytes": size, "peers": peers}
            progress(f"{format}: {seconds[-1]:.1f} s, {size * _MB:.1f} MB")
    return Outcome(
        columns=(
            "format",
            "build, s",
            "size, MB",
            *(f"{name}, MB" for name in shown),
            *(f"ours : {name}" for name in shown),
        ),
        rows=rows,
        meaning="What has to be carried to a hypervisor before a guest of it can be measured.",
        peers={CITED: CITED_FROM} | ({name: f"{PUBLISHED}/{file}.*" for name, file in PEERS.items()} if sizes else {}),
        notes=[
            f"{builds} builds a format, each from the cache's kernel, agent and boot loader; all were the same bytes.",
            f"{CITED}: a qcow2 of 226.75 MiB, by {CITED_FROM}.",
            "The peers are systems with packages, users and services; ours is a kernel and an agent.",
            "A build compresses agent and drivers anew each time; that is most of it.",
            *notes,
        ],
        values=values,
    )


def _built(format: Format, folder: Path, builds: int) -> tuple[list[float], int]:
    """Seconds of each build, and the image's bytes."""
    seconds, digests = [], set()
    path = folder / f"image.{format}"
    try:
        ingredients = find_ingredients(SerialChannel(), format)
        for _ in range(builds):
            began = time.monotonic()
            build(ingredients, format, path, silence)
            seconds.append(time.monotonic() - began)
            digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    except VirtgaugeError as error:
        raise BenchmarkError(str(error)) from error
    if len(digests) != 1:
        raise BenchmarkError(f"{builds} builds of {format} are {len(digests)} different files")
    size = path.stat().st_size
    path.unlink()
    return seconds, size


def _published(notes: list[str]) -> dict[Format, dict[str, int]]:
    """What the peers' server says of their length, by format; what it does not say is noted."""
    found: dict[Format, dict[str, int]] = {}
    for format, suffix in _PEER_FORMATS.items():
        for name, file in PEERS.items():
            address = f"{PUBLISHED}/{file}.{suffix}"
            try:
                request = urllib.request.Request(address, method="HEAD")
                with urllib.request.urlopen(request, timeout=_BOUND_S) as answer:
                    found.setdefault(format, {})[name] = int(answer.headers["Content-Length"])
            except (OSError, urllib.error.URLError, TypeError, ValueError) as error:
                notes.append(f"The size of {address} could not be fetched: {error}.")
    return found


if __name__ == "__main__":
    main(measure, __doc__, options)
