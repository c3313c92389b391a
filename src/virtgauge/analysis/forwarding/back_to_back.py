"""From back-to-back frames to buffer time (RFC 9004, section 5.4)."""

from __future__ import annotations


def implied_buffer_s(burst_frames: float, maximum_frames_per_s: float) -> float:
    """How long the longest lossless burst takes at the highest rate, as if nothing were forwarded meanwhile."""
    return burst_frames / maximum_frames_per_s


def corrected_buffer_s(burst_frames: float, maximum_frames_per_s: float, throughput_frames_per_s: float) -> float:
    """The buffer itself: less what the device forwards while the burst arrives.

    Raises:
        ValueError: the throughput is not below the highest rate; then no burst can fill the buffer (section 5.2).
    """
    if not 0 <= throughput_frames_per_s < maximum_frames_per_s:
        raise ValueError("a device that forwards the highest rate has no longest burst")
    implied = implied_buffer_s(burst_frames, maximum_frames_per_s)
    return implied - implied * throughput_frames_per_s / maximum_frames_per_s
