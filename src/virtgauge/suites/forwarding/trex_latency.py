"""Latency of one TRex stream: from the HDR histogram where the server keeps one, else from its coarse bins.

Sources: ``src/time_histogram.cpp`` and "Per stream latency/jitter/packet errors" in ``doc/trex_stateless.asciidoc`` of
https://github.com/cisco-system-traffic-generator/trex-core; HdrHistogram's "V2" encoding in
https://github.com/HdrHistogram/HdrHistogram (``AbstractHistogram.encodeIntoByteBuffer``, ``ZigZagLEB128Codec``).
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from virtgauge.ledger.records import Histogram

_PS_PER_US = 1_000_000
_LIMIT = 16 << 20  # bytes of an inflated histogram; one of three digits up to an hour has 0.2 MB

_COMPRESSED_COOKIE, _COOKIE = 0x1C849304, 0x1C849303
_WORD_SIZE = 0xF0  # bits of a cookie that tell the width of a counter, which this encoding does not depend on
_COMPRESSED_HEADER = struct.Struct(">II")  # cookie, length
_HEADER = struct.Struct(">IIIIQQd")  # cookie, length, offset, digits, lowest, highest, ratio


def latency_histogram(lat: Mapping[str, Any]) -> Histogram | None:
    """The ``lat`` object of one packet group in ``get_pgid_stats``, in picoseconds; None when nothing was received.

    A server that was started with ``--hdrh`` gives microseconds to three digits.  Any other gives TRex's own bins: the
    first ten are 10 µs wide, the next nine 100 µs, and so on.  Values stand at the middles of their bins, so quantiles
    are good to half of one.  Minimum and maximum are the server's, to the microsecond; where they contradict the bins
    (the first ten frames of a stream have no part in ``total_max``), the bin's edge is taken.  Its ``average`` is a
    moving one and is not used: the mean is that of the bins.

    Raises:
        KeyError, TypeError, ValueError: it is not as published.
    """
    published = dict(lat)
    bins = hdr_bins(str(published["hdrh"])) if "hdrh" in published else coarse_bins(published.get("histogram") or {})
    if not bins:
        return None
    lowest, highest = min(bins), max(bins)
    minimum = min(max(round(published["total_min"]), lowest[0]), lowest[1]) * _PS_PER_US
    maximum = max(round(published["total_max"]), highest[0]) * _PS_PER_US
    counts: dict[int, int] = {}
    for (low, high), count in bins.items():
        # The middle may lie outside of what was observed: the only bin of 3 … 4 µs is that of 0 … 10 µs.
        value = min(max((low + high) * _PS_PER_US // 2, minimum), maximum)
        counts[value] = counts.get(value, 0) + count
    values = np.array(sorted(counts), dtype=np.int64)
    weights = np.array([counts[int(value)] for value in values], dtype=np.uint64)
    return Histogram(
        unit="ps",
        values=values,
        counts=weights,
        minimum=minimum,
        maximum=maximum,
        mean=float(np.average(values, weights=weights)),
    )


def coarse_bins(histogram: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Counts by TRex's bins, from and up to so many microseconds, from counts by the lower edges.

    Edges are 0, 10, 20 … 90, 100, 200 … 900, 1000 …: a bin is as wide as its edge's leading power of ten.

    Raises:
        ValueError: an edge or a count is negative or not a number.
    """
    bins: dict[tuple[int, int], int] = {}
    for key, frames in dict(histogram).items():
        edge, count = int(key), int(frames)
        if edge < 0 or count < 0:
            raise ValueError(f"bin {key!r} with {frames!r} frames")
        if count:
            bins[edge, edge + (10 if edge < 10 else 10 ** (len(str(edge)) - 1))] = count
    return bins


def hdr_bins(text: str) -> dict[tuple[int, int], int]:
    """Counts of an HDR histogram in its compressed V2 encoding, base64, by the ranges that counters stand for.

    Raises:
        ValueError: it is not one.
    """
    packed = base64.b64decode(text, validate=True)
    if len(packed) < _COMPRESSED_HEADER.size:
        raise ValueError("an HDR histogram ends within its header")
    cookie, length = _COMPRESSED_HEADER.unpack_from(packed)
    if cookie & ~_WORD_SIZE != _COMPRESSED_COOKIE:
        raise ValueError(f"an HDR histogram begins with {cookie:#x}, which is not a compressed V2 encoding")
    try:
        plain = zlib.decompressobj().decompress(packed[_COMPRESSED_HEADER.size :][:length], _LIMIT)
    except zlib.error as broken:
        raise ValueError(f"an HDR histogram is broken: {broken}") from broken
    if len(plain) < _HEADER.size:
        raise ValueError("an HDR histogram ends within its header")
    cookie, length, _, digits, lowest, _, _ = _HEADER.unpack_from(plain)
    if cookie & ~_WORD_SIZE != _COOKIE or not 1 <= digits <= 5 or lowest < 1 or len(plain) < _HEADER.size + length:
        raise ValueError("an HDR histogram's header is not of the V2 encoding")
    unit_bits = lowest.bit_length() - 1
    half_bits = (2 * 10**digits - 1).bit_length() - 1  # a bucket has 2^half_bits counters beside the first one's twice
    bins: dict[tuple[int, int], int] = {}
    index = 0
    for number in _zigzag_numbers(plain[_HEADER.size : _HEADER.size + length]):
        if number < 0:
            index -= number  # so many counters are zero
            continue
        if number:
            bins[_range(index, unit_bits, half_bits)] = number
        index += 1
    return bins


def _range(index: int, unit_bits: int, half_bits: int) -> tuple[int, int]:
    bucket = (index >> half_bits) - 1
    position = (index & ((1 << half_bits) - 1)) + (1 << half_bits)
    if bucket < 0:
        bucket, position = 0, position - (1 << half_bits)
    shift = bucket + unit_bits
    return position << shift, (position + 1) << shift


def _zigzag_numbers(data: bytes) -> Iterator[int]:
    """Signed numbers of seven bits a byte, lowest first; the top bit says that more follow; a ninth byte has eight."""
    value = shift = 0
    for byte in data:
        if shift == 56:
            value |= byte << shift
        else:
            value |= (byte & 0x7F) << shift
            if byte & 0x80:
                shift += 7
                continue
        yield (value >> 1) ^ -(value & 1)
        value = shift = 0
    if shift:
        raise ValueError("an HDR histogram ends within a number")
