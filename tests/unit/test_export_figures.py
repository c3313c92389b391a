"""OpenMetrics, Bencher and HdrHistogram exports, each read with the format's own reader or schema."""

import json
import re

import jsonschema
import numpy as np
import pytest
from exported_runs import exported
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from synthetic import SyntheticArm, arm_record, cells, hdr_bins, manifest, synthetic_ledger, trial

from virtgauge.exchange import Format
from virtgauge.exchange.figures import read_figures, slug
from virtgauge.exchange.trials import tag_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.columns import Cell
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import MEASURES, find_measure

HOSTILE = 'a"b\\c\nd,e f'
P50 = find_measure("timing", "timer_cost.p50")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    arms = [
        SyntheticArm(arm_record("host", "host", "Host", "reference")),
        SyntheticArm(arm_record("tcg", "qemu", HOSTILE, emulated=True), 10.0, 3.0),
    ]
    folder = tmp_path_factory.mktemp("figures") / "run"
    design = [*cells(("rdtsc",), (("usleep", "default"),), ("idle",))]
    synthetic_ledger(folder, arms, 3, design, run={"plan_name": HOSTILE}).close()
    return folder


@pytest.fixture(scope="module")
def estimates(run):
    with Ledger.open(run) as ledger:
        return {(one.arm.name, one.cell.probe): one.estimate for one in read_figures(ResultTable(ledger), [P50])}


def families(path):
    return {family.name: family for family in text_string_to_metric_families(path.read_text())}


def test_openmetrics_is_read_by_its_own_parser(run, estimates, tmp_path):
    found = families(exported(run, Format.OPENMETRICS, tmp_path / "m"))
    family = found["virtgauge_timing_timer_cost_p50_seconds"]
    assert (family.type, family.unit) == ("gauge", "seconds")
    values = {sample.labels["platform"]: sample for sample in family.samples}
    assert values["tcg"].value == pytest.approx(estimates["tcg", "timer_cost"].point / 1e9)
    assert values["tcg"].labels["emulated"] == "true"
    assert values["host"].labels["function"] == "rdtsc"
    assert values["host"].labels["plan"] == HOSTILE
    (low, high) = (found[f"virtgauge_timing_timer_cost_p50_{end}_seconds"].samples[0].value for end in ("low", "high"))
    assert low <= values["host"].value <= high
    assert found["virtgauge_timing_timer_cost_p50_repetitions"].samples[0].value == 3


def test_openmetrics_has_base_units_for_every_quantity():
    from virtgauge.exchange.figures import _UNITS

    quantities = {measure.quantity.name for named in MEASURES.values() for measure in named.values()}
    assert quantities - _UNITS.keys() <= {"count"}


def test_a_factor_named_like_a_label_of_ours_stands_beside_it(tmp_path):
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        values = hdr_bins(np.full(100, 9000, dtype=np.int64))
        levels = {"platform": HOSTILE, "load": "idle", "2nd factor": "x"}
        ledger.add_trial(trial(arm, "timer_cost", levels, 0), {"timer_cost": values})
    (sample,) = families(exported(tmp_path / "run", Format.OPENMETRICS, tmp_path / "m"))[
        "virtgauge_timing_timer_cost_p50_seconds"
    ].samples
    assert (sample.labels["platform"], sample.labels["factor_platform"]) == ("host", HOSTILE)
    assert sample.labels["_2nd_factor"] == "x"
    assert sample.value == pytest.approx(9e-9)


def test_openmetrics_of_a_run_without_figures_is_empty_and_whole(tmp_path):
    Ledger.create(tmp_path / "run", manifest([arm_record("host", "host", "Host", "reference")])).close()
    assert exported(tmp_path / "run", Format.OPENMETRICS, tmp_path / "m").read_text() == "# EOF\n"


BMF = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {key: {"type": "number"} for key in ("value", "lower_value", "upper_value")},
            "required": ["value"],
            "additionalProperties": False,
        },
    },
}
"""What Bencher's documentation says of the format, and that we write nothing beside it."""


def test_bencher_gets_a_metric_for_each_cell_platform_and_headline_measure(run, estimates, tmp_path):
    document = json.loads(exported(run, Format.BENCHER, tmp_path / "b").read_text())
    jsonschema.validate(document, BMF)
    assert document.keys() == {
        f"{arm}: timing {cell}"
        for arm in ("host", "tcg (emulated)")
        for cell in (
            "timer_cost function=rdtsc load=idle",
            "sleep_lateness function=usleep target_ns=100000 slack=default policy=other load=idle",
        )
    }
    metric = document["host: timing timer_cost function=rdtsc load=idle"]["timing-timer-cost-p50"]
    estimate = estimates["host", "timer_cost"]
    assert metric == {"value": estimate.point, "lower_value": estimate.low, "upper_value": estimate.high}


def test_slugs_are_kebab_case_short_and_distinct():
    names = [measure.full_name for named in MEASURES.values() for measure in named.values()]
    slugs = [slug(name) for name in names]
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one) and len(one) <= 64 for one in slugs)
    assert len(set(slugs)) == len(names)
    long = ["x" * 70 + end for end in "ab"]
    assert len({slug(name) for name in long}) == 2


def test_bencher_names_within_its_limit_stay_distinct(tmp_path):
    arm = arm_record("host", "host", "Host", "reference")
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        for end in "ab":
            levels = {"function": "f" * 2000 + end, "load": "idle"}
            values = hdr_bins(np.full(100, 9000, dtype=np.int64))
            ledger.add_trial(trial(arm, "timer_cost", levels, 0), {"timer_cost": values})
    document = json.loads(exported(tmp_path / "run", Format.BENCHER, tmp_path / "b").read_text())
    assert len(document) == 2
    assert all(len(name) == 1024 for name in document)


def read_log(path):
    reader = HistogramLogReader(str(path), HdrHistogram(1, 2**40, 3))
    found = []
    while (one := reader.get_next_interval_histogram()) is not None:
        found.append(one)
    reader.input_file.close()
    return found


def test_an_hdr_log_says_the_quantiles_of_the_report(run, tmp_path):
    found = read_log(exported(run, Format.HDR, tmp_path / "run.hlog"))
    with Ledger.open(run) as ledger:
        trials = ledger.trials()
        assert len(found) == len(trials)
        for one, read in zip(trials, found, strict=True):
            histogram = ledger.histograms_of(one.trial_id)[one.probe]
            assert read.tag == tag_of(one.arm, Cell(one.suite, one.probe, tuple(one.factors.items())), one.probe)
            assert read.get_total_count() == histogram.n
            for share in (0.25, 0.5, 0.9, 0.99):
                assert read.get_value_at_percentile(share * 100) == pytest.approx(histogram.quantile(share), rel=1.1e-3)
            assert read.get_max_value() == pytest.approx(histogram.maximum, rel=1.1e-3)
            assert read.get_end_time_stamp() - read.get_start_time_stamp() == pytest.approx(one.elapsed_ns / 1e6)


def test_an_hdr_log_has_one_unit_no_value_below_zero_and_tags_without_commas(tmp_path):
    arm = arm_record("host", "host", "Host", "reference")
    early = hdr_bins(np.array([-5000, -5000, 2000, 4000], dtype=np.int64))
    with Ledger.create(tmp_path / "run", manifest([arm])) as ledger:
        levels = {"function": HOSTILE, "load": "idle"}
        ledger.add_trial(trial(arm, "sleep_lateness", levels, 0), {"sleep_lateness": early})
    path = exported(tmp_path / "run", Format.HDR, tmp_path / "run.hlog")
    assert "Values are in ps" in path.read_text()
    (read,) = read_log(path)
    assert [read.get_value_at_percentile(share) for share in (50, 75)] == [0, 2000]
    assert read.get_total_count() == 4
    assert re.fullmatch(r"[^,\s]+", read.tag)
