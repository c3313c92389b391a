"""A platform with a known truth: proves that the pipeline reports what it was given."""

from virtgauge.platforms.simulated.platform import SimulatedPlatform, SimulatedSettings

__all__ = ["SimulatedPlatform", "SimulatedSettings"]
