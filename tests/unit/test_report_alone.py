"""A report is made of its ledger: no process, no connection, no look at the machine that reads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import cells, synthetic_ledger, usual_arms

pytestmark = pytest.mark.slow

WATCHED = """
import sys
from pathlib import Path

STARTED = {"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn",
           "socket.connect", "socket.bind"}

def watch(event, arguments):
    looked = event == "open" and str(arguments[0]).startswith(("/sys/", "/dev/", "/proc/"))
    if watching and (event in STARTED or looked):
        print("MEASURED", event, arguments[0], flush=True)

watching = False
sys.addaudithook(watch)
from virtgauge.ledger.store import Ledger
from virtgauge.report import build
from virtgauge.report.page import render_html
watching = True
with Ledger.open(Path(sys.argv[1])) as ledger:
    report = build(ledger)
    page = render_html(report)
exec(sys.argv[2])
watching = False
stages = ("agent", "execution", "host", "platforms", "provision")
for name in sys.modules:
    if name.split(".")[:1] == ["virtgauge"] and name.split(".")[1:2] and name.split(".")[1] in stages:
        print("LOADED", name)
print("MADE", len(report.arms), len(page) > 1000)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    arms = [arm for arm in usual_arms() if arm.record.usable]
    synthetic_ledger(folder, arms, 3, list(cells(("rdtsc",), (("usleep", "default"),), ("idle", "cpu")))).close()
    return folder


def told(run: Path, beside: str = "") -> list[str]:
    done = subprocess.run([sys.executable, "-c", WATCHED, str(run), beside], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_report_starts_nothing_and_looks_at_no_machine(run: Path) -> None:
    (made,) = told(run)
    assert made.startswith("MADE")
    assert made.endswith("True")


@pytest.mark.parametrize(
    ("beside", "found"),
    [
        ("import subprocess; subprocess.run(['true'])", "MEASURED subprocess.Popen"),
        ("open('/proc/stat').read()", "MEASURED open /proc/stat"),
        ("import virtgauge.execution.run", "LOADED virtgauge.execution"),
    ],
)
def test_one_that_did_would_be_seen(run: Path, beside: str, found: str) -> None:
    assert any(line.startswith(found) for line in told(run, beside))
