"""The C examples are built with what pkg-config says of an installed hptime, and run, shared and static."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "native" / "hptime-c" / "examples" / "metronome.c"
README = ROOT / "native" / "hptime" / "README.md"

pytestmark = pytest.mark.slow


def said(*argv: str | Path, **environment: str) -> str:
    done = subprocess.run(argv, env=os.environ | environment, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, f"{argv[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prefix")
    said(ROOT / "setup" / "install-hptime.sh", PREFIX=str(folder))
    return folder


def built(prefix: Path, program: Path, *options: str, source: Path = EXAMPLE) -> Path:
    linking = [option for option in options if option == "-static"]
    asked = ["--static"] if linking else []
    flags = said(
        "pkg-config", *asked, "--cflags", "--libs", "hptime", PKG_CONFIG_PATH=str(prefix / "lib" / "pkgconfig")
    ).split()
    said("cc", "-std=gnu99", "-Wall", "-Wextra", "-Werror", *options, source, *flags, "-o", program)
    return program


@pytest.mark.parametrize("options", [(), ("-static",)], ids=["shared", "static"])
def test_the_example_keeps_its_beat(prefix, tmp_path, options):
    program = built(prefix, tmp_path / "metronome", *options)
    lines = said(program, "20", "2000000", LD_LIBRARY_PATH=str(prefix / "lib")).splitlines()
    assert re.fullmatch(r"clock: (\d+ Hz, within \d+\.\d+ ppm|the kernel's, because .+)", lines[0])
    beats = [re.fullmatch(r"beat (\d+): late by (-?\d+) ns, awake for (\d+) ns", line) for line in lines[1:-1]]
    assert [int(beat[1]) for beat in beats if beat] == list(range(1, 21))
    assert all(int(beat[2]) >= 0 for beat in beats if beat)
    took = re.fullmatch(r"took (\d+) ns", lines[-1])
    # Twenty beats of 2 ms: never less, but for the difference of two clocks, and not without end.
    assert took is not None
    assert 39_990_000 <= int(took[1]) < 10_000_000_000


def test_the_program_that_the_readme_shows_sleeps_for_a_millisecond(prefix, tmp_path):
    (shown,) = re.findall(r"^```c\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "wake.c").write_text(shown)
    program = built(prefix, tmp_path / "wake", source=tmp_path / "wake.c")
    took = re.fullmatch(r"(\d+) ns, late by -?\d+ ns\n", said(program, LD_LIBRARY_PATH=str(prefix / "lib")))
    assert took is not None
    assert 999_000 <= int(took[1]) < 10_000_000_000


def test_a_negative_period_is_an_error_of_the_call(prefix, tmp_path):
    program = built(prefix, tmp_path / "metronome")
    environment = os.environ | {"LD_LIBRARY_PATH": str(prefix / "lib")}
    argv = [program, "1", "-9223372036854775807"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "metronome: Invalid argument\n")


def test_the_shared_library_has_its_name_and_exports_the_header_only(prefix):
    library = prefix / "lib" / "libhptime.so"
    assert library.resolve().name.startswith("libhptime.so.0.")
    header = (prefix / "include" / "hptime.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"\b(hptime_\w+)\(", "\n".join(re.findall(r"^[a-z].*\);$", header, re.MULTILINE))))
    exported = {line.split()[-1] for line in said("nm", "-D", "--defined-only", library).splitlines() if " T " in line}
    assert declared == exported
    assert re.search(r"SONAME\s+libhptime\.so\.0\n", said("objdump", "-p", library))


def test_a_relative_prefix_is_refused():
    argv = [ROOT / "setup" / "install-hptime.sh"]
    environment = os.environ | {"PREFIX": "somewhere"}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "absolute" in done.stderr
