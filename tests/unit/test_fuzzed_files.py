"""Files that a person writes or has from others, and bytes of a guest, changed: taken, or refused in one error.

A test tries fifty of them; with ``FUZZ_SECONDS`` in the environment it goes on for so long.
"""

import copy
import json
import math
import os
import random
import re
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace
from xml.sax import saxutils

import pytest
import tomli_w
from hdrh.histogram import HdrHistogram
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from virtgauge.agent.messages import FrameDecoder, ProtocolError, checked_facts, cleaned
from virtgauge.agent.serial import Scanner
from virtgauge.claims.model import ClaimFile
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError
from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions, read_requirements
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import parse_plan, preset_names, preset_text
from virtgauge.plan.requirements import _profiles, profile_names
from virtgauge.platforms.libvirt.description import Description
from virtgauge.platforms.libvirt.translation import translate
from virtgauge.suites.cell_settings import plan_of, settings_of

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
CORPUS = Path(__file__).parents[2] / "native" / "fuzz" / "corpus"
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
LONGEST_S = 10  # of processor time, for one file

PLANS = [preset_text(name) for name in preset_names()]
PROFILES = [(_profiles() / f"{name}.toml").read_text() for name in profile_names()]
DOMAINS = [path.read_text() for path in (DATA / "domains").glob("*.xml")]
CLAIMS = [path.read_text() for path in (DATA.parents[1] / "src/virtgauge/reference").glob("*_claims.toml")]

ODD = (
    *(None, True, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, 10**400, 0.5, -0.0, 1e308, math.inf, math.nan),
    *("", "x", "0", "1e999", "\0", "\u202e", "é" * 300, "=1+1", "../..", "host", "every"),
    *([], [[]], [0], ["x", "x"], {}, {"": {}}, {"kind": "docker"}, {"x": {"y": [{}]}}),
)
ODD_TEXT = (
    *("9" * 5000, "[" * 5000, "{" * 3000, '{"a":' * 3000),
    *("\0", "\ud7ff", "\x85", "-", "e999", '"', "\n", "= = ", "1979-05-27"),
)


def changed(document, chance: random.Random):
    """A document with some of its values replaced, renamed, repeated or left out."""
    document = copy.deepcopy(document)
    for _ in range(chance.randint(1, 4)):
        places = list(_places(document))
        if not places:
            break
        parent, key = chance.choice(places)
        match chance.randrange(5):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[chance.choice(("x", "", "name", "kind", key + "s"))] = parent.pop(key)
            case 2 if isinstance(parent, list):
                parent.insert(key, copy.deepcopy(parent[key]))
            case _:
                parent[key] = copy.deepcopy(chance.choice(ODD))
    return document


def _places(value):
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield value, key
        yield from _places(inner)


def scribbled(whole, pieces, chance: random.Random):
    """A text, or bytes, with a few pieces cut out, put in or replaced."""
    for _ in range(chance.randint(1, 3)):
        at, length = chance.randrange(len(whole) + 1), chance.choice((0, 0, 1, 3, 40))
        whole = whole[:at] + chance.choice((whole[:0], *pieces)) + whole[at + length :]
    return whole


def toml(texts):
    """One of the TOML files, changed as a document or as a text."""

    def of(chance):
        text = chance.choice(texts)
        if chance.random() < 0.3:
            return scribbled(text, ODD_TEXT, chance)
        return tomli_w.dumps(_without_none(changed(tomllib.loads(text), chance)))

    return st.randoms(use_true_random=False).map(of)


def _without_none(value):
    if isinstance(value, dict):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value if inner is not None] if isinstance(value, list) else value


def fuzz(strategy, check):
    """Give ``check`` fifty inputs, or as many as there is time for: an error for the user, or none."""

    def bounded(given_input):
        began = time.process_time()
        try:
            check(given_input)
        except VirtgaugeError as error:
            assert error.exit_code in {ExitCode.FAILED, ExitCode.USAGE}
            assert error.message
        assert time.process_time() - began < LONGEST_S

    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    run = settings(max_examples=50, database=None, suppress_health_check=quiet)(given(strategy)(bounded))
    end = time.monotonic() + SECONDS
    run()
    while time.monotonic() < end:
        run()


def test_a_plan_is_checked_or_refused():
    fuzz(toml(PLANS), lambda text: check_plan(parse_plan(text, "plan.toml"), "plan.toml"))


def test_a_domains_description_becomes_a_plan_or_is_refused():
    def of(chance):
        text = chance.choice(DOMAINS)
        for _ in range(chance.randint(1, 4)):
            values = [found.span(1) for found in re.finditer(r"['>]([^'<>]+)['<]", text)]
            start, end = chance.choice(values)
            odd = saxutils.escape(str(chance.choice(ODD)), {"'": "&apos;"}) if chance.random() < 0.7 else "<a b='c'/>"
            text = text[:start] + odd + text[end:]
        return scribbled(text, ODD_TEXT, chance) if chance.random() < 0.3 else text

    def check(text):
        content = text.encode("utf-8", errors="surrogatepass")
        plan = translate(Description(content, "guest.xml"), "qemu").plan("quick")
        check_plan(parse_plan(plan, "plan"), "plan")

    fuzz(st.randoms(use_true_random=False).map(of), check)


def test_a_recorded_plan_is_understood_or_passed_over():
    def check(text):
        plan = plan_of(SimpleNamespace(plan_text=text, run_id="run"))
        assert plan is None or isinstance(settings_of(plan), dict)

    fuzz(toml(PLANS), check)


def test_requirements_are_read_or_refused(tmp_path):
    path = tmp_path / "require.toml"
    own = (
        '[[require]]\nsuite = "imported"\nmeasure = "fio.iops"\nat_least = 1\nunit = "op/s"\nconditions = {rw = "r"}\n'
    )

    def check(text):
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        read_requirements(path)

    fuzz(toml([*PROFILES, own, own]), check)


def test_a_file_of_claims_is_consistent_or_refused():
    def check(text):
        try:
            ClaimFile.model_validate(tomllib.loads(text))
        except (ValueError, RecursionError):
            return

    fuzz(toml(CLAIMS), check)


def _trex():
    """A result in each of the four forms that are read."""
    timed = HdrHistogram(1, 3_600_000, 3)
    timed.record_value(30)
    hdrh = timed.encode().decode()
    group = {"total_min": 7, "total_max": 231, "histogram": {"10": 900, "200": 10}, "hdrh": ""}
    found = {"title": "imix", "tx_pps": 1.4e6, "rate_p": 43.75, "drop_rate_percentage": 0.02, "Elapsed Time": 92.5}
    overall = {"drop_percentage": 0.1, "min_delay_usec": 5, "max_delay_usec": 9, "avg_delay_usec": 6, "hdrh": hdrh}
    search = {"rate_pps": 1000, "time_taken_sec": 3, "stats": {"overall": overall}}
    chain = {"flow_count": 10, "service_chain_count": 1, "result": {"64": {"ndr": search, "pdr": search}}}
    config = {"duration_sec": 10, "measurement": {"NDR": 0.001}}
    rate = {"lower": {"rate": {"value": 1e6, "unit": "pps"}}}
    case = {"test_id": "a", "version": "1.5.1", "test_name_long": "a", "passed": True}
    case |= {"tg_type": "TREX", "tg_version": "3", "start_time": "2024-01-01T00:00:00Z", "duration": 10}
    return [
        {
            "results": found | {"latency": {"5": group | {"hdrh": hdrh}, "7": group}},
            "config": {"pdr": 0.1, "bi_dir": True},
        },
        {"total": {"opackets": 100, "ipackets": 99}, "latency": {"5": {"latency": group}, "global": {}}},
        {
            "date": "2024-01-01 00:00:00",
            "nfvbench_version": "5",
            "config": config,
            "benchmarks": {"network": {"service_chain": {"PVP": {"result": chain}}}},
        },
        case | {"result": {"ndr": rate, "latency_forward": {"pdr_90": {"hdrh": hdrh, "unit": "us"}}}},
    ]


IMPORTS = {
    "fio": ["fio-3.33-mixed.json", "fio-3.33-randread.json", "fio-3.33-two-jobs.json"],
    "cyclictest": ["cyclictest-2.4-histogram.json", "cyclictest-2.4-plain.json"],
    "oslat": ["oslat-2.4.json", "oslat-2.10-fine.json"],
    "rtla": ["rtla-timerlat.txt", "rtla-timerlat-user.txt", "rtla-osnoise.txt"],
    "hwlatdetect": ["hwlatdetect-2.4.txt", "hwlatdetect-2.10.txt"],
    "jitterdebugger": ["jitterdebugger-3.json"],
    "pgbench": ["pgbench-15.18-aggregate.25506", "pgbench-15.18-rate.25501", "pgbench-15.18.25495"],
    "trex": [],
}
IN_LINES = ("rtla", "hwlatdetect", "pgbench")


@pytest.mark.parametrize("tool", IMPORTS)
def test_an_output_of_another_tool_is_imported_or_refused(tool, tmp_path):
    texts = [(DATA / name).read_text() for name in IMPORTS[tool]] or [json.dumps(one) for one in _trex()]
    path, runs = tmp_path / "output", iter(range(10**9))
    path.write_text(texts[0])
    assert read_repetitions(tool, [path])[0].trials

    def of(chance):
        text = chance.choice(texts)
        if tool in IN_LINES:
            lines = [line.split(" ") for line in text.splitlines()]
            if chance.random() < 0.7:
                some = (line if isinstance(line, list) else [line] for line in changed(lines, chance))
                return "\n".join(" ".join(map(str, line)) for line in some)
        elif chance.random() < 0.7:
            return json.dumps(changed(json.loads(text), chance))
        return scribbled(text, ODD_TEXT, chance)

    def check(text):
        path.write_bytes(text.encode("utf-8", errors="surrogatepass"))
        import_into(tmp_path / f"run-{next(runs)}", read_repetitions(tool, [path]), ImportedArm("fuzzed"), {}, new=True)

    fuzz(st.randoms(use_true_random=False).map(of), check)


def stream(name):
    """One of the byte streams that the Rust targets of this name begin with, changed."""
    lines = (CORPUS / f"{name}.txt").read_text().splitlines()
    seeds = [bytes.fromhex(line.split("#")[0]) for line in lines]
    odd = (b"\0", b"\xff", b"\x80", b"\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\x91" * 300, *seeds)
    return st.randoms(use_true_random=False).map(lambda chance: scribbled(chance.choice(seeds), odd, chance))


def test_what_a_guest_sends_is_messages_or_a_protocol_error():
    def check(data):
        try:
            for message in FrameDecoder().feed(data):
                checked_facts(cleaned(message))
        except ProtocolError:
            return

    fuzz(stream("frames"), check)


def test_a_serial_line_brings_the_same_packets_however_it_is_cut():
    def check(data):
        size = 1 + len(data) % 16
        scanner = Scanner()
        cut = [packet for at in range(0, len(data), size) for packet in scanner.feed(data[at : at + size])]
        assert cut == Scanner().feed(data)
        assert Scanner().feed(b"".join(packet.encode() for packet in cut)) == cut

    fuzz(stream("serial"), check)


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000], ids=["a long number", "deep nesting"])
def test_toml_beyond_the_parsers_own_bounds_is_no_plan(text, tmp_path):
    with pytest.raises(UsageError, match="is not TOML"):
        parse_plan(text, "plan.toml")
    path = tmp_path / "require.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match="--require"):
        read_requirements(path)


@pytest.mark.parametrize(
    "text", ['{"jobs": ' + "9" * 5000 + "}", '{"a":' * 50_000], ids=["a long number", "deep nesting"]
)
def test_json_beyond_the_parsers_own_bounds_is_not_imported(text, tmp_path):
    path = tmp_path / "output.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not JSON"):
        read_repetitions("fio", [path])
