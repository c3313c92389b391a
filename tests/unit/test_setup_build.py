"""The scripts that build what is native: called again, they compile only what has changed."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "setup"
CARGO = """#!/bin/sh
echo "$*" >>"$CALLS"
[ -z "$BROKEN" ] || { echo "error: $BROKEN" >&2; exit 101; }
mkdir -p "$CARGO_TARGET_DIR"
[ "$CARGO_TARGET_DIR/program" -nt src/main.rs ] || cat src/main.rs >"$CARGO_TARGET_DIR/program"
printf '{"filenames":["%s"]}\\n' "$CARGO_TARGET_DIR/program"
"""


class Checkout:
    """A workspace whose cargo copies its source; ``calls`` counts how often."""

    def __init__(self, root: Path) -> None:
        self.workspace = root / "workspace"
        self.destination = root / "package" / "native" / "program"
        self.destination.parent.mkdir(parents=True)
        (self.workspace / "src").mkdir(parents=True)
        (self.workspace / "tests").mkdir()
        (self.workspace / "src" / "main.rs").write_text("one")
        self.script = runpy.run_path(str(SETUP / "agent.py"))
        self.script["build"].__globals__["ROOT"] = root

    def build(self, *arguments: str) -> str:
        self.script["build"](["build", *arguments], self.destination, workspace=self.workspace)
        return self.destination.read_text()

    @property
    def calls(self) -> int:
        log = Path(os.environ["CALLS"])
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("cargo", CARGO), ("rustc", '#!/bin/sh\necho "rustc $VERSION"\n')):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("VERSION", "1")
    monkeypatch.setenv("BROKEN", "")
    monkeypatch.delenv("CARGO_TARGET_DIR", raising=False)
    return Checkout(tmp_path)


def test_what_is_built_from_the_same_sources_is_not_built_again(checkout):
    assert checkout.build() == checkout.build() == "one"
    assert checkout.calls == 1


def test_a_changed_source_compiler_flag_or_file_is_built_anew(checkout, monkeypatch):
    def builds_again() -> bool:
        before = checkout.calls
        checkout.build()
        return checkout.calls > before

    checkout.build()
    (checkout.workspace / "src" / "main.rs").write_text("two")
    assert builds_again()
    assert checkout.destination.read_text() == "two"
    (checkout.workspace / "src" / "new.rs").write_text("")
    assert builds_again()
    monkeypatch.setenv("VERSION", "2")
    assert builds_again()
    monkeypatch.setenv("RUSTFLAGS", "-C debuginfo=1")
    assert builds_again()
    checkout.destination.write_text("damaged")
    assert builds_again()
    assert not builds_again()


def test_what_another_clone_has_built_meanwhile_is_not_taken_for_ones_own(checkout, tmp_path):
    """Cargo goes by times: this clone's sources are older than what the other has built in the folder of both."""
    other = Checkout(tmp_path / "other")
    (other.workspace / "src" / "main.rs").write_text("two")
    past = os.stat(checkout.workspace / "src" / "main.rs").st_mtime - 60
    os.utime(checkout.workspace / "src" / "main.rs", (past, past))
    assert other.build() == "two"
    assert checkout.build() == "one"
    assert other.build("--again") == "two"


def test_tests_are_no_sources(checkout):
    checkout.build()
    (checkout.workspace / "tests" / "test.rs").write_text("")
    checkout.build()
    assert checkout.calls == 1


def test_what_is_current_needs_no_cargo(checkout, monkeypatch, tmp_path):
    checkout.build()
    (tmp_path / "bin" / "cargo").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    shutil.copy("/bin/sh", tmp_path / "bin" / "sh")
    assert checkout.build() == "one"


def test_a_failed_build_shows_the_end_of_its_log_and_names_it(checkout, monkeypatch, tmp_path):
    monkeypatch.setenv("BROKEN", "no such type")
    with pytest.raises(RuntimeError, match="no such type") as raised:
        checkout.build()
    assert str(tmp_path / "cache" / "virtgauge" / "logs" / "build-program.log") in str(raised.value)
    assert not checkout.destination.exists()


def test_pruning_removes_what_builds_left_and_the_next_build_is_still_current(checkout, tmp_path):
    checkout.build()
    assert checkout.script["prune"]()
    assert not (tmp_path / "cache" / "virtgauge" / "target").exists()
    checkout.build()
    assert checkout.calls == 1


def test_pruning_leaves_a_chosen_folder_and_one_in_which_somebody_builds(checkout, monkeypatch, tmp_path):
    checkout.build()
    target = tmp_path / "cache" / "virtgauge" / "target"
    holding = "import fcntl, sys; fcntl.flock(9, fcntl.LOCK_SH); print(flush=True); sys.stdin.read()"
    lock = checkout.script["target_lock"]()
    argv = ["sh", "-c", 'exec 9>"$1"; exec "$2" -c "$3"', "sh", str(lock), sys.executable, holding]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as builder:
        builder.stdout.readline()
        assert not checkout.script["prune"]()
        builder.stdin.close()
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path / "chosen"))
    assert not checkout.script["prune"]()
    assert target.is_dir()


def test_the_drawing_library_is_not_made_again():
    page = runpy.run_path(str(SETUP / "page.py"))
    made = page["build_page"]().stat().st_mtime_ns
    assert page["build_page"]().stat().st_mtime_ns == made


def test_a_compiler_that_is_too_old_is_refused_with_both_versions(checkout, monkeypatch):
    monkeypatch.setenv("VERSION", "1.63.0")
    with pytest.raises(
        RuntimeError, match=r"Rust is version 1\.63, and the sources need 1\.\d+ or later; install Rust"
    ):
        checkout.build()
    assert checkout.calls == 0
