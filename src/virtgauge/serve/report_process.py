"""Makes one run's report and writes it to standard output: the process behind a page that has no report yet.

    python -m virtgauge.serve.report_process FOLDER

It reads the ledger only, comes after everything else on the machine, and may take so much memory and processor time.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from virtgauge.errors import VirtgaugeError
from virtgauge.ledger.read_only import ReadOnlyLedger

_MEMORY = 8 * 2**30
_PROCESSOR_S = 300


def main() -> None:
    """Report on the run whose folder is the only argument."""
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))
    folder = Path(sys.argv[1])
    try:
        with ReadOnlyLedger.open(folder, limit_s=_PROCESSOR_S) as ledger:
            from virtgauge import report  # takes a second, and none of it where there is no ledger

            page = report.render_html(report.build(ledger))
    except VirtgaugeError as error:
        sys.exit(error.message)
    except Exception as error:  # of a ledger that may be anything
        sys.exit(f"{type(error).__name__}: {error}")
    sys.stdout.buffer.write(page.encode(errors="replace"))


if __name__ == "__main__":
    main()
