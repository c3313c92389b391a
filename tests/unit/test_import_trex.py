"""What is read from JSON of TRex, NFVbench and CSIT, in the forms of their sources, and what is refused.

trex-core 27e0153b (``ndr_testbed.py``, ``trex_stl_stats.py``), NFVbench 8ecfd4c8 (``nfvbench.py``, ``chain_runner.py``,
``traffic_client.py``), CSIT 78e52b9c (``test_case.schema.yaml``, model 1.5.1).  All figures are invented.
"""

import copy
import json

import pytest
from hdrh.histogram import HdrHistogram

from virtgauge.errors import UsageError
from virtgauge.exchange.figures import read_figures
from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions
from virtgauge.exchange.imports.trex import read_trex
from virtgauge.ledger.records import statistics_of
from virtgauge.ledger.store import Ledger
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import find_measure


def hdrh(*microseconds):
    made = HdrHistogram(1, 3_600_000, 3)
    for value in microseconds:
        made.record_value(value)
    return made.encode().decode()


LATENCY = {
    "average": 15.2,
    "histogram": {"10": 900, "20": 90, "200": 10, "0": 1},
    "jitter": 1,
    "last_max": 20,
    "total_max": 231,
    "total_min": 7,
}
BENCH = {
    "results": {
        "total_iterations": 4,
        "title": "imix",
        "Elapsed Time": 92.5,
        "queue_full_percentage": 0.1,
        "drop_rate_percentage": 0.02,
        "valid_latency": True,
        "rate_tx_bps": 4.1e9,
        "rate_rx_bps": 4.1e9,
        "tx_util": 43.0,
        "latency": {"5": LATENCY, "7": LATENCY | {"hdrh": hdrh(*[30] * 1000), "total_min": 30, "total_max": 30}},
        "cpu_util": 61.0,
        "tx_pps": 1.4e6,
        "bw_per_core": 12.1,
        "rx_pps": 1.39e6,
        "rate_p": 43.75,
        "total_tx_L1": 8.4e9,
        "total_rx_L1": 8.4e9,
        "tx_bps": 8.2e9,
        "rx_bps": 8.2e9,
        "max_rate_bps": 9.4e9,
        "iteration": 3,
        "rate_difference": 0,
        "ndr_points": [8.2e9],
    },
    "config": {
        "pdr": 0.1,
        "pdr_error": 1.0,
        "ports": [0, 1],
        "bi_dir": True,
        "title": "imix",
        "iteration_duration": 20.0,
    },
}
PORT = {"opackets": 1000, "ipackets": 990, "obytes": 64000, "ibytes": 63360, "tx_pps": 0.0, "rx_pps": 0.0}
STATS = {
    "global": {"cpu_util": 0.1, "queue_full": 0},
    "0": PORT,
    "1": PORT,
    "total": PORT | {"opackets": 2000, "ipackets": 1980},
    "flow_stats": {"global": {"rx_err": {}, "tx_err": {}}},
    "latency": {
        "global": {"old_flow": 0, "bad_hdr": 0},
        "5": {"err_cntrs": {"dropped": 0, "dup": 0}, "latency": LATENCY},
    },
}
OVERALL = {
    "tx_pkts": 1000,
    "rx_pkts": 1000,
    "drop_percentage": 0.0005,
    "drop_pct": 0,
    "avg_delay_usec": 24,
    "min_delay_usec": 10,
    "max_delay_usec": 100,
}
FOUND = {
    "duration_sec": 2.0,
    "initial_rate_type": "rate_percent",
    "l2frame_size": "64",
    "load_percent_per_direction": 50.0,
    "rate_bps": 1e10,
    "rate_percent": 100.0,
    "rate_pps": 14880952,
    "stats": {"0": OVERALL, "1": OVERALL, "overall": OVERALL, "total_tx_rate": 14880000},
    "time_taken_sec": 81.5,
    "timestamp_sec": 1700000000.0,
}
NOTHING = FOUND | {
    "rate_pps": 0,
    "stats": {"overall": dict.fromkeys(OVERALL, 0) | {"hdrh": 0, "lat_percentile": 0}, "total_tx_rate": 0},
}
FIXED = {
    "stats": {
        "overall": {"tx": {"total_pkts": 100}, "rx": {"total_pkts": 99}, "drop_rate_percent": 1.0, "hdrh": hdrh(10, 20)}
    },
    "packet_path_stats": {},
    "run_config": {
        "direction-total": {
            "orig": {"rate_percent": 2.0, "rate_bps": 1e8, "rate_pps": 148809.0},
            "tx": {"rate_percent": 2.0, "rate_bps": 1e8, "rate_pps": 148800.0},
            "rx": {"rate_percent": 1.9, "rate_bps": 9.9e7, "rate_pps": 147300.0},
        }
    },
}
NFVBENCH = {
    "date": "2024-03-31 22:15:41",
    "nfvbench_version": "5.1.0",
    "config": {"duration_sec": 60.0, "measurement": {"NDR": 0.001, "PDR": 0.1, "load_epsilon": 0.1}},
    "benchmarks": {
        "network": {
            "service_chain": {
                "PVP": {
                    "result": {
                        "flow_count": 10000,
                        "service_chain_count": 1,
                        "bidirectional": True,
                        "profile": "traffic_profile_64B",
                        "compute_nodes": {},
                        "result": {
                            "64": {"ndr": FOUND, "pdr": NOTHING, "iteration_stats": {"ndr_pdr": []}},
                            "IMIX": FIXED,
                            "warning": "the rate was not reached",
                        },
                    }
                }
            },
            "versions": {},
        }
    },
}
TIMED = {"min": 5, "max": 30, "avg": 11, "hdrh": hdrh(*[10] * 99, 30), "unit": "us"}


def bound(pps):
    return {"lower": {"rate": {"value": pps, "unit": "pps"}, "bandwidth": {"value": 1e9, "unit": "bps"}}}


CSIT = {
    "duration": 120.5,
    "dut_type": "VPP",
    "dut_version": "25.02-rc0",
    "end_time": "2025-01-02T03:06:06.000000Z",
    "hosts": ["10.30.51.44"],
    "telemetry": [],
    "message": "",
    "passed": True,
    "result": {
        "type": "ndrpdr",
        "ndr": bound(9.1e6),
        "pdr": bound(9.9e6),
        "latency_forward": {"pdr_0": TIMED, "pdr_90": TIMED},
        "latency_reverse": {"pdr_90": TIMED},
    },
    "start_time": "2025-01-02T03:04:05.500000Z",
    "tags": ["64B", "NDRPDR"],
    "test_documentation": "",
    "test_id": "tests.vpp.perf.l2.10ge2p1x710-eth-l2xcbase-ndrpdr.64b-2t1c-eth-l2xcbase-ndrpdr",
    "test_name_long": "10ge2p1x710-64b-2t1c-eth-l2xcbase",
    "test_name_short": "eth-l2xcbase",
    "test_type": "ndrpdr",
    "tg_type": "trex",
    "tg_version": "3.03",
    "version": "1.5.1",
}


@pytest.fixture
def read(tmp_path):
    def reading(document):
        path = tmp_path / "result.json"
        path.write_text(json.dumps(document))
        return read_trex(path)

    return reading


def changed(document, *place, to):
    """A document with another value at a place."""
    document = copy.deepcopy(document)
    inner = document
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = to
    return document


def test_an_ndr_testbed_brings_the_load_that_it_found_and_the_latency_of_all_packet_groups(read):
    repetition = read(BENCH)
    (trial,) = repetition.trials
    assert repetition.tool == "TRex"
    assert trial.factors == {"test": "imix", "search": "pdr", "allowed_loss_percent": "0.1", "direction": "both"}
    assert trial.result == {"throughput_pps": 1.4e6, "lost_percent": 0.02}
    assert trial.elapsed_ns == 92_500_000_000
    figures = statistics_of(trial.histograms["latency"])
    assert (trial.histograms["latency"].n, figures["min"], figures["max"]) == (2001, 7, 231)
    assert trial.histograms["latency"].unit == "us"
    assert figures["p50"] == pytest.approx(27.5, rel=0.1), "between 25 and 30 µs, of two groups"


@pytest.mark.parametrize(("field", "value"), [("rate_p", 0), ("drop_rate_percentage", 3.0), ("valid_latency", False)])
def test_an_ndr_testbed_without_an_answer_has_the_figures_of_its_last_try_and_none_is_taken(read, field, value):
    (trial,) = read(changed(BENCH, "results", field, to=value)).trials
    assert trial.error == "no load was found that meets the search's criteria"
    assert (trial.result, trial.histograms) == ({}, {})


def test_a_search_without_any_loss_is_an_ndr(read):
    document = changed(BENCH, "config", "pdr", to=0)
    (trial,) = read(changed(document, "results", "drop_rate_percentage", to=0)).trials
    assert (trial.factors["search"], trial.error) == ("ndr", None)


def test_statistics_of_a_client_bring_the_loss_and_the_latency(read):
    (trial,) = read(STATS).trials
    assert trial.result == {"lost_percent": 1.0}
    assert trial.histograms["latency"].n == 1001


def test_nfvbench_brings_a_trial_for_each_search_and_fixed_rate(read):
    repetition = read(NFVBENCH)
    ndr, pdr, fixed = repetition.trials
    assert repetition.tool == "NFVbench 5.1.0"
    shared = {"flows": "10000", "chains": "1"}
    assert ndr.factors == {"test": "PVP", "search": "ndr", "allowed_loss_percent": "0.001", "frame": "64"} | shared
    assert (ndr.result["throughput_pps"], ndr.result["lost_percent"]) == (14880952, 0.0005)
    assert ndr.result["latency"] == {"min": 10_000, "max": 100_000, "mean": 24_000}
    assert (ndr.started_at, ndr.elapsed_ns) == ("2024-03-31T22:15:41.000+00:00", 81_500_000_000)
    assert pdr.error is not None and pdr.result == {}
    assert fixed.factors == {"test": "PVP", "offered_pps": "148809", "frame": "IMIX"} | shared
    assert fixed.result == {"received_pps": 147300.0, "lost_percent": 1.0}
    assert fixed.histograms["latency"].values.tolist() == [10, 20]


def test_csit_brings_both_searches_and_the_latency_at_each_load_and_direction(read):
    repetition = read(CSIT)
    assert repetition.tool == "CSIT 1.5.1, trex 3.03"
    ndr, pdr, *timed = repetition.trials
    assert (ndr.factors["search"], ndr.factors["allowed_loss_percent"], ndr.result) == (
        "ndr",
        "0",
        {"throughput_pps": 9.1e6},
    )
    assert (pdr.factors["search"], pdr.result["throughput_pps"]) == ("pdr", 9.9e6)
    assert [(one.factors["load"], one.factors["direction"]) for one in timed] == [
        ("pdr_0", "forward"),
        ("pdr_90", "forward"),
        ("pdr_90", "reverse"),
    ]
    assert (timed[0].histograms["latency"].n, timed[0].histograms["latency"].maximum) == (100, 30)
    assert ndr.started_at == "2025-01-02T03:04:05.500+00:00"


def test_the_maximum_receive_rate_of_csit_is_a_received_rate(read):
    rates = {"rate": {"values": [1e6, 1.2e6], "avg": 1.1e6, "stdev": 1e5, "unit": "pps"}}
    (trial,) = read(changed(CSIT, "result", to={"type": "mrr", "receive_rate": rates})).trials
    assert trial.result == {"received_pps": 1.1e6}


def test_a_failed_test_of_csit_is_a_failed_trial_in_its_words(read):
    failed = changed(changed(CSIT, "passed", to=False), "result", to={"type": "unknown"})
    (trial,) = read(changed(failed, "message", to="TRex did not start")).trials
    assert (trial.error, trial.result) == ("TRex did not start", {})


def test_imported_results_have_the_measures_of_trex(tmp_path):
    path = tmp_path / "csit.json"
    path.write_text(json.dumps(CSIT))
    assert import_into(tmp_path / "run", read_repetitions("trex", [path]), ImportedArm("host"), {}, new=True) == 5
    measures = [find_measure("imported", name) for name in ("trex.throughput", "trex.latency.max")]
    with Ledger.open(tmp_path / "run") as ledger:
        figures = read_figures(ResultTable(ledger), measures)
    found = [(one.measure.name, value) for one in figures for value in one.values]
    assert found == [("trex.throughput", 9.1e6), ("trex.throughput", 9.9e6), *[("trex.latency.max", 30_000.0)] * 3]


SERVICE_CHAIN = ("benchmarks", "network", "service_chain", "PVP", "result", "result", "64", "ndr")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"jobs": []}, "has none of the fields results, total, benchmarks, test_id"),
        ([1], "has none of the fields"),
        (changed(BENCH, "results", to={"error_flag": False}), "results.title is missing"),
        (changed(BENCH, "results", "tx_pps", to="many"), "results.tx_pps = 'many'"),
        (changed(BENCH, "results", "latency", "7", "hdrh", to="SElTVA=="), "results.latency.7.hdrh = 'SElTVA=='"),
        (changed(STATS, "total", "opackets", to=0), "total.opackets = 0"),
        (changed(STATS, "latency", "5", "latency", "histogram", to={"x": 1}), "histogram"),
        (changed(NFVBENCH, *SERVICE_CHAIN, "rate_pps", to=-1), "PVP.result.result.64.ndr.rate_pps = -1"),
        (changed(NFVBENCH, *SERVICE_CHAIN, "stats", to={}), "ndr.stats.overall.drop_percentage is missing"),
        (changed(NFVBENCH, "date", to="yesterday"), "date = 'yesterday'"),
        (changed(CSIT, "result", "ndr", "lower", "rate", "unit", to="cps"), "result.ndr.lower.rate.unit = 'cps'"),
        (changed(CSIT, "result", to={"type": "hoststack"}), "holds no rate, loss or latency"),
    ],
)
def test_what_is_none_of_them_is_refused_with_field_and_remedy(read, document, words):
    with pytest.raises(UsageError, match="nothing was imported") as refusal:
        read(document)
    assert words in refusal.value.message
    assert "nfvbench --json" in refusal.value.remedy
