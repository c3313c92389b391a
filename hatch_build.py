"""Puts agent and shim into the wheel: the agent is static, so the wheel fits every Python of its machine type.

The shim is a shared object that asks for the C library's interface of some version, and the wheel's tag says which.
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

IN_WHEEL = ("virtgauge/native/virtgauge-agent", "virtgauge/native/libhptime_preload.so")


def platform_tag(images: list[bytes]) -> str:
    """The oldest manylinux tag (PEP 600) that is true of some binaries: by the latest version of glibc that one names.

    The scheme begins at 2.17, before the first Linux that this project runs on; a static executable names none.
    """
    named = [found for image in images for found in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", image)]
    major, minor = max([(2, 17), *((int(major), int(minor)) for major, minor in named)])
    return f"manylinux_{major}_{minor}_{platform.machine()}"


class AgentBuildHook(BuildHookInterface[Any]):
    """Builds agent and shim with cargo and includes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build both where that is needed, and put them into a wheel.

        An editable install takes those that stand in the tree, if they do; ``VIRTGAUGE_SKIP_AGENT`` says that somebody
        else builds them, as `make` does.  A wheel gets fresh ones, except on a machine without cargo that has both
        already.
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
        runpy.run_path(str(setup / "agent.py"))["build_agent"]()
        runpy.run_path(str(setup / "shim.py"))["build_shim"]()
