"""A machine that is not idle is said to be so, with the name of who uses it."""

import subprocess
import sys

import pytest

from virtgauge.host.load import ambient_load

pytestmark = pytest.mark.slow


@pytest.mark.alone
async def test_a_busy_process_is_named_and_counted():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            share, busiest = await ambient_load()
        finally:
            busy.kill()
    assert share > 0.1
    assert any(f"({busy.pid})" in process for process in busiest)
