"""Frames, bits and the medium: frame sizes count the frame check sequence, as in RFC 2544 (64 is 60 in software)."""

from __future__ import annotations

SMALLEST_FRAME_BYTES = 64
LARGEST_FRAME_BYTES = 1518
WIRE_OVERHEAD_BYTES = 20
"""Preamble, start of frame and the smallest gap between frames: what a frame takes on an Ethernet beside itself."""


def wire_frames_per_s(frame_bytes: int, medium_bits_per_s: float) -> float:
    """The most frames of a size that an Ethernet of this speed carries: 1,488,095 of 64 bytes at 1 Gbit/s.

    Raises:
        ValueError: the size is not an Ethernet frame's, or the speed not positive.
    """
    check_frame_bytes(frame_bytes)
    if medium_bits_per_s <= 0:
        raise ValueError(f"{medium_bits_per_s:g} bit/s: a medium's speed must be above 0")
    return medium_bits_per_s / (8 * (frame_bytes + WIRE_OVERHEAD_BYTES))


def bits_per_s(frames_per_s: float, frame_bytes: int, *, on_wire: bool = False) -> float:
    """The rate in bits of frames (with check sequence); with ``on_wire``, preamble and gap too."""
    return frames_per_s * 8 * (frame_bytes + (WIRE_OVERHEAD_BYTES if on_wire else 0))


def check_frame_bytes(frame_bytes: int) -> None:
    """Raise ValueError unless the size is that of an untagged Ethernet frame."""
    if not SMALLEST_FRAME_BYTES <= frame_bytes <= LARGEST_FRAME_BYTES:
        raise ValueError(
            f"{frame_bytes} bytes: an Ethernet frame with its check sequence has "
            f"{SMALLEST_FRAME_BYTES} to {LARGEST_FRAME_BYTES}"
        )
