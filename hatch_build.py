"""Puts what is built natively, the drawing library of the pages, and the notices of both into the wheel, which fits
every Python of its machine type.

Agent and bandwidth estimator are static; shim, flush laboratory, load generator and the estimator for the shim ask for
the C library's interface of some version, and the wheel's tag says which.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILDS = {
    "agent": "build_agent",
    "shim": "build_shim",
    "uml_registers": "build_uml_registers",
    "flushes": "build_flushes",
    "sensorstore": "build_sensorstore",
    "bandwidth": "build_bandwidth",
    "page": "build_page",
    "notices": "build_notices",
}
"""What is built, by scripts in ``setup/`` and a function in each."""

IN_WHEEL = tuple(
    f"virtgauge/native/{name}"
    for name in (
        "virtgauge-agent",
        "libhptime_preload.so",
        "libuml_registers.so",
        "virtgauge-flushes",
        "libvirtgauge_flushes.so",
        "sensorstore",
        "bandwidth",
        "bandwidth-dynamic",
        "vega-embed.js",
        "THIRD-PARTY-NOTICES",
    )
)


def platform_tag(images: list[bytes]) -> str:
    """The oldest manylinux tag (PEP 600) that is true of some binaries: by the latest version of glibc that one names.

    The scheme begins at 2.17, before the first Linux that this project runs on; a static executable names none.
    """
    named = [found for image in images for found in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", image)]
    major, minor = max([(2, 17), *((int(major), int(minor)) for major, minor in named)])
    return f"manylinux_{major}_{minor}_{platform.machine()}"


class AgentBuildHook(BuildHookInterface[Any]):
    """Builds what is native with cargo, bundles the drawing library, and includes both."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it where that is needed, and put it into a wheel.

        An editable install takes those that stand in the tree, if they do; ``VIRTGAUGE_SKIP_AGENT`` says that somebody
        else builds them, as `make` does.  A wheel gets fresh ones, except on a machine without cargo that has all of
        it already.
        """
        files = {Path(self.root) / "src" / name: name for name in IN_WHEEL}
        there = all(path.is_file() for path in files)
        if version == "editable":
            if not there and not os.environ.get("VIRTGAUGE_SKIP_AGENT"):
                self._build()
            return
        if shutil.which("cargo") or not there:
            self._build()
        build_data["force_include"].update({str(path): name for path, name in files.items()})
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag([path.read_bytes() for path in files])}"

    def _build(self) -> None:
        setup = Path(self.root) / "setup"
        for script, function in BUILDS.items():
            runpy.run_path(str(setup / f"{script}.py"))[function]()
