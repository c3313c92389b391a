"""virtgauge: measure natively and inside guests, pair the results, decide."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("virtgauge")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"
