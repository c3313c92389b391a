"""The reports: a run's own file where it is up to date, else made for this once, in a process of its own.

Nothing is written to a run's folder.  Making a report takes a processor for seconds, so none is made while a run is
under way, and only one at a time, by ``python -m virtgauge.serve.reports FOLDER``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shlex
import stat
import sys
from collections import OrderedDict
from pathlib import Path
from typing import BinaryIO

from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.serve.runs import REPORT_NAME, FoundRun, Stamp, plain

LARGEST_PAGE = 256 * 2**20
_KEPT_BYTES = 96 * 2**20
_TIME_LIMIT_S = 180.0
_MEMORY = 8 * 2**30
_PROCESSOR_S = 300


def stored_report(run: FoundRun) -> BinaryIO | None:
    """The run's own report, open; None when it has none, or the ledger was written to since."""
    try:
        descriptor = os.open(run.folder / REPORT_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    found = os.fstat(descriptor)
    newest = max((written for _, _, written in run.stamp()), default=0)
    if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_PAGE and found.st_mtime_ns >= newest:
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    return None


class ReportBuilder:
    """Makes reports, and keeps the last few in memory; one that takes too long is given up."""

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._kept: OrderedDict[tuple[str, Stamp], bytes] = OrderedDict()
        self._process: asyncio.subprocess.Process | None = None

    def kept(self, run: FoundRun) -> bytes | None:
        """A report that was made before and still holds."""
        return self._kept.get((run.run_id, run.stamp()))

    async def build(self, run: FoundRun) -> bytes:
        """The report of a run as a page. Raises VirtgaugeError: it cannot be made, or takes too long."""
        async with self._one_at_a_time:
            key = run.run_id, run.stamp()
            if key not in self._kept:
                self._kept[key] = await self._build(run.folder)
                while len(self._kept) > 1 and sum(map(len, self._kept.values())) > _KEPT_BYTES:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    async def _build(self, folder: Path) -> bytes:
        # In a session of its own, so that Ctrl-C reaches the server only, which then ends it; -P keeps modules of the
        # folder that the server was started in from being taken for the library's.
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "virtgauge.serve.reports", os.fsencode(folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            page, complaint = await asyncio.wait_for(process.communicate(), _TIME_LIMIT_S)
        except TimeoutError:
            raise UnavailableError(
                f"the report was not made within {_TIME_LIMIT_S:.0f} s",
                f"virtgauge report {shlex.quote(str(folder))} --format html",
            ) from None
        finally:
            self.stop()
            await process.wait()
        if process.returncode:
            last = complaint.decode(errors="replace").strip().splitlines()
            raise VirtgaugeError(f"the report cannot be made: {plain(last[-1] if last else process.returncode)}")
        return page

    def stop(self) -> None:
        """End what is being made; once, because a second kill would reap it before the event loop does."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def main() -> None:
    """Write the report on the run whose folder is the only argument to standard output.

    It reads the ledger only, comes after everything else on the machine, and may take so much memory and time.
    """
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))
    folder = Path(sys.argv[1])
    try:
        with ReadOnlyLedger.for_command(folder, limit_s=_PROCESSOR_S) as ledger:
            from virtgauge import report  # takes a second, and none of it where there is no ledger

            page = report.render_html(report.build(ledger))
    except VirtgaugeError as error:
        sys.exit(error.message)
    except Exception as error:  # of a ledger that may be anything
        sys.exit(f"{type(error).__name__}: {error}")
    if len(page) > LARGEST_PAGE:
        sys.exit(f"the page has {len(page) >> 20} MiB: more than {LARGEST_PAGE >> 20}")
    sys.stdout.buffer.write(page.encode(errors="replace"))


if __name__ == "__main__":
    main()
