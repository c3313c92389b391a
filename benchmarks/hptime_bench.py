"""The comparison program native/hptime-bench: built once, asked for one kind of measurement, read line by line."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmark import ROOT, BenchmarkError, progress

_WORKSPACE = ROOT / "native"
_PEERS = ("quanta", "minstant", "fastant", "spin_sleep")


def measured(kind: str, amount: int) -> list[dict[str, Any]]:
    """What ``hptime-bench KIND AMOUNT`` printed, one record a line; the first says what the clock is."""
    program = _built()
    progress(f"hptime-bench {kind} {amount}")
    done = subprocess.run([program, kind, str(amount)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"hptime-bench {kind} ended with status {done.returncode}: {done.stderr.strip()}")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    if not records[0]["running"]:
        raise BenchmarkError(f"hptime does not use the counter here: {records[0]['refusal']}")
    return records


def peers(*names: str) -> dict[str, str]:
    """Versions of the crates beside hptime, as locked."""
    lock = tomllib.loads((_WORKSPACE / "Cargo.lock").read_text(encoding="utf-8"))
    return {package["name"]: package["version"] for package in lock["package"] if package["name"] in (names or _PEERS)}


def in_order(records: Iterable[dict[str, Any]], *keys: str) -> list[tuple[Any, ...]]:
    """The different values of some keys, in the order in which they first came."""
    return list(dict.fromkeys(tuple(record[key] for key in keys) for record in records))


def _built() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or Path.home() / ".cache" / "virtgauge" / "target")
    command = ["cargo", "build", "--release", "--locked", "--package", "hptime-bench"]
    command += ["--message-format", "json-render-diagnostics"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    try:
        done = subprocess.run(command, cwd=_WORKSPACE, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise BenchmarkError("cargo is not on PATH; install Rust with rustup, then try again") from None
    if done.returncode != 0:
        raise BenchmarkError("hptime-bench could not be built; what cargo said stands above")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(Path(message["executable"]) for message in messages if message.get("executable"))
