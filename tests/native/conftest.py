"""The shim's programs, compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shim_programs import SOURCES


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled programs."""
    folder = tmp_path_factory.mktemp("shim-programs")

    def compiled(*words: str | Path) -> None:
        done = subprocess.run([str(word) for word in words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    compiled("cc", "-O1", "-pthread", "-o", "semantics", SOURCES / "semantics.c")
    compiled("c++", "-O1", "-std=c++17", "-pthread", "-o", "waiting", SOURCES / "waiting.cpp")
    compiled("cc", "-shared", "-fPIC", "-o", "libearly.so", SOURCES / "early.c")
    compiled("cc", "-o", "late", SOURCES / "late.c", "-L.", "-learly", "-Wl,-rpath,$ORIGIN")
    compiled("cc", "-O1", "-static", "-pthread", "-o", "static", SOURCES / "semantics.c")
    return folder
