"""Puts the agent into the wheel: one static executable, so the wheel fits every Python of its machine type."""

from __future__ import annotations

import os
import platform
import runpy
import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

IN_WHEEL = "virtgauge/native/virtgauge-agent"


class AgentBuildHook(BuildHookInterface[Any]):
    """Builds the agent with cargo and includes it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the agent where that is needed, and put it into a wheel.

        An editable install takes the agent that stands in the tree, if there is one; ``VIRTGAUGE_SKIP_AGENT`` says that
        somebody else builds it, as `make` does.  A wheel gets a fresh one, except on a machine without cargo that has
        the agent already.
        """
        agent = Path(self.root) / "src" / IN_WHEEL
        if version == "editable":
            if not agent.is_file() and not os.environ.get("VIRTGAUGE_SKIP_AGENT"):
                self._build()
            return
        if shutil.which("cargo") or not agent.is_file():
            self._build()
        build_data["force_include"][str(agent)] = IN_WHEEL
        build_data["pure_python"] = False
        # A static executable asks nothing of the C library, so the oldest tag of the present scheme is true of it.
        build_data["tag"] = f"py3-none-manylinux_2_17_{platform.machine()}"

    def _build(self) -> None:
        runpy.run_path(str(Path(self.root) / "setup" / "agent.py"))["build_agent"]()
