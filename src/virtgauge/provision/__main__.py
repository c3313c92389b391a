"""``python -m virtgauge.provision``: the same as ``virtgauge provision``."""

from __future__ import annotations

import sys

from virtgauge.errors import VirtgaugeError
from virtgauge.provision.command import app

try:
    app(prog_name="virtgauge provision")
except VirtgaugeError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
