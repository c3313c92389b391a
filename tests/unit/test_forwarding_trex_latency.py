"""Latency as TRex tells it: its own bins, and HDR histograms."""

import base64
import struct
import zlib

import pytest

from virtgauge.suites.forwarding.trex_latency import coarse_bins, hdr_bins, latency_histogram

US = 1_000_000  # in picoseconds

# Made by hdrhistogram 0.10 (Python), of 5×3, 12×400, 47×10, 2047×2, 2048×1, 5001×4, 123456×1, three digits.
HDR = "HISTFAAAADB4nJNpmSzMwMAgyAABzFCaEcyZ3M5g/wEiwMnGvYDNWWSuPAvTQWGO015MAKQ8B3Q="

# doc/trex_stateless.asciidoc, "Per stream latency/jitter/packet errors": the figures of its example, in the form of
# src/time_histogram.cpp, CTimeHistogram::dump_json: counts by the lower edge of the bin, in microseconds.
LATENCY = {
    "jit": 0,
    "average": 15.2,
    "last_max": 0,
    "total_max": 44,
    "total_min": 9,
    "histogram": {"20": 489342, "30": 10512, "40": 143, "0": 3},
}


def test_trexs_bins_are_as_wide_as_the_leading_power_of_ten():
    bins = coarse_bins({"0": 3, "10": 1, "90": 2, "100": 4, "2000": 5, "30": 0})
    assert bins == {(0, 10): 3, (10, 20): 1, (90, 100): 2, (100, 200): 4, (2000, 3000): 5}


def test_the_published_example_becomes_a_histogram_of_the_ledger():
    histogram = latency_histogram(LATENCY)
    assert histogram.unit == "ps"
    # The bins of 0 … 10 and 40 … 50 µs end at what was observed.
    assert histogram.values.tolist() == [9 * US, 25 * US, 35 * US, 44 * US]
    assert histogram.counts.tolist() == [3, 489342, 10512, 143]
    assert (histogram.minimum, histogram.maximum) == (9 * US, 44 * US)
    assert histogram.n == 500_000
    # Of the bins: TRex's "average" is a moving one, 15.2 µs here although nearly every frame took 20 … 30.
    assert histogram.mean == pytest.approx(25.2156e6, rel=1e-4)


@pytest.mark.parametrize(
    ("total_min", "total_max", "minimum", "maximum"),
    [
        (12, 44, 20, 44),  # nothing is in the bin of 12 µs
        (4_294_967_295, 44, 30, 44),  # never set
        (21, 39, 21, 40),  # one of the first ten frames was slower than the maximum of the others
        (21, 2_000_000, 21, 2_000_000),  # beyond the last bin
    ],
)
def test_extremes_that_contradict_the_bins_give_way_to_them(total_min, total_max, minimum, maximum):
    histogram = latency_histogram({"histogram": {"20": 5, "40": 1}, "total_min": total_min, "total_max": total_max})
    assert (histogram.minimum, histogram.maximum) == (minimum * US, maximum * US)
    assert histogram.values.min() >= histogram.minimum
    assert histogram.values.max() <= histogram.maximum
    assert histogram.n == 6


def test_an_hdr_histogram_is_read_as_another_implementation_wrote_it():
    bins = {(5, 6): 3, (12, 13): 400, (47, 48): 10, (2047, 2048): 2, (2048, 2050): 1, (5000, 5004): 4}
    assert hdr_bins(HDR) == bins | {(123_456, 123_520): 1}


def test_the_servers_hdr_histogram_is_preferred_to_its_bins():
    histogram = latency_histogram({**LATENCY, "hdrh": HDR, "total_min": 5, "total_max": 123_480})
    microseconds = [5.5, 12.5, 47.5, 2047.5, 2049, 5002, 123_480]
    assert histogram.values.tolist() == [value * US for value in microseconds]
    assert histogram.counts.tolist() == [3, 400, 10, 2, 1, 4, 1]
    assert (histogram.minimum, histogram.maximum) == (5 * US, 123_480 * US)


def test_an_hdr_histogram_of_other_digits_is_read_too():
    # 1 … 10 s in µs with two digits, of 100×7 and 1000×1
    header = struct.pack(">IIIIQQd", 0x1C849313, 0, 0, 2, 1, 10_000_000, 1.0)
    # 100 counters of zero, 7, zeroes up to the counter that 1000 … 1003 share, 1
    bucket = (1000).bit_length() - 8
    index = ((bucket + 1) << 7) + (1000 >> bucket) - 128
    runs = zigzag(-100) + zigzag(7) + zigzag(-(index - 101)) + zigzag(1)
    plain = header[:4] + struct.pack(">I", len(runs)) + header[8:] + runs
    packed = zlib.compress(plain)
    text = base64.b64encode(struct.pack(">II", 0x1C849314, len(packed)) + packed).decode()
    assert hdr_bins(text) == {(100, 101): 7, (1000, 1004): 1}


def zigzag(number):
    value, data = (number << 1) ^ (number >> 63), bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(data) + bytes([value])


def test_a_stream_of_which_nothing_came_back_has_no_latency():
    assert latency_histogram({"average": 0, "total_max": 0, "total_min": 0, "last_max": 0, "jit": 0}) is None


@pytest.mark.parametrize(
    "lat",
    [
        {"histogram": {"20": 1}},
        {"histogram": {"x": 1}, "total_min": 0, "total_max": 1},
        {"histogram": {"20": -1}, "total_min": 0, "total_max": 1},
        {"histogram": [{"key": 20, "val": 1}], "total_min": 0, "total_max": 1},
        {"hdrh": "", "total_min": 0, "total_max": 1},
        {"hdrh": "&&&&", "total_min": 0, "total_max": 1},
        {"hdrh": HDR[:40], "total_min": 0, "total_max": 1},
        {"hdrh": "AAAA" + HDR[4:], "total_min": 0, "total_max": 1},
    ],
)
def test_a_latency_of_another_form_is_refused(lat):
    with pytest.raises((KeyError, TypeError, ValueError)):
        latency_histogram(lat)
