"""What the page says of a run's progress, from what its ledger says."""

import datetime
from collections import Counter

import pytest
from served_runs import HOST, TIMERS, under_way
from suites.simulated_runs import execute, plan_of, simulated
from synthetic import manifest, synthetic_ledger, trial

from virtgauge.ledger.records import SCHEDULED, Flag, GuestRecord, TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.serve.live import RunWatch
from virtgauge.serve.overview import Overviews, State
from virtgauge.serve.runs import find_runs, plain
from virtgauge.serve.server import _environment

REQUIRES = """
name = "quick"
reference = "host"
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "gvisor"
kind = "oci"
[[suite.timing]]
[[require]]
suite = "timing"
measure = "timer_cost.p50"
conditions = { function = ["rdtsc"], load = ["idle"] }
at_most = 50.0
unit = "ns"
"""


def watch(folder):
    (run,) = find_runs([folder]).values()
    return RunWatch(run, Overviews())


def add(ledger, block, *, ago_s=0.0, status=TrialStatus.VALID, attempt=1):
    """The timers of one repetition that began so long ago."""
    began = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago_s)
    for probe, factors in TIMERS:
        fields = {"status": status, "attempt": attempt, "started_at": began.isoformat(), "elapsed_ns": 1000}
        flags = () if status is TrialStatus.VALID else (Flag("steal", "9 %"),)
        ledger.add_trial(trial(HOST, probe, factors, block, flags=flags, **fields))


@pytest.fixture
def run(tmp_path):
    with Ledger.create(tmp_path / "run", manifest([HOST], plan_text="repetitions = 5\nattempts = 2")) as ledger:
        ledger._db.execute("INSERT INTO events VALUES ('2020-01-01T00:00:00.000+00:00', 'started', '')")
        ledger._db.commit()
        yield ledger


def test_the_time_left_is_that_of_the_repetitions_left(run):
    run.add_event(SCHEDULED, "10 trials")
    with under_way(run.folder):
        seen = watch(run.folder)
        add(run, 0, ago_s=1800)
        assert seen.look().remaining == ""  # one repetition has not shown how long one takes
        add(run, 1, ago_s=1200)
        assert seen.look().remaining == "about 30 min"  # three of five are left, ten minutes each
        add(run, 2, ago_s=600)
        assert seen.look().remaining == "about 20 min"
    assert watch(run.folder).look().remaining == ""  # of a run that stands still


def test_what_went_before_an_interruption_says_nothing_of_the_pace(run):
    run.add_event(SCHEDULED, "10 trials")
    add(run, 0, ago_s=90_000)
    add(run, 1, ago_s=86_000)
    run._db.execute("DELETE FROM events WHERE kind = 'started'")
    run.add_event("resumed", "")
    with under_way(run.folder):
        assert watch(run.folder).look().remaining == ""


def test_an_attempt_that_may_be_repeated_is_not_done_and_the_last_one_is(run):
    run.add_event(SCHEDULED, "10 trials")
    add(run, 0, status=TrialStatus.INVALID)
    first = watch(run.folder).look().overview
    assert (first.tally.settled, first.tally.not_valid, first.share) == (0, 2, 0.0)
    add(run, 0, status=TrialStatus.INVALID, attempt=2)
    second = watch(run.folder).look().overview
    assert (second.tally.settled, second.tally.not_valid, second.share) == (2, 4, 0.2)


def test_a_run_that_does_not_say_how_much_it_has_to_do_has_no_share(run):
    add(run, 0)
    assert watch(run.folder).look().overview.share is None


def test_repetitions_that_were_added_count_as_soon_as_they_are_scheduled(run):
    run.add_event(SCHEDULED, "2 trials")
    add(run, 0)
    seen = watch(run.folder)
    assert seen.look().overview.share == 1.0
    run.add_event(SCHEDULED, "4 trials")
    assert seen.look().overview.share == 0.5


def test_a_real_run_says_how_much_it_has_to_do(tmp_path, private_state, any_agent):
    execute(plan_of(simulated("a"), simulated("b", seed=2), repetitions=2), tmp_path / "run")
    found = watch(tmp_path / "run").look()
    assert found.overview.state is State.COMPLETE
    assert found.overview.scheduled == found.overview.tally.settled == 2 * 2 * 2
    assert found.overview.share == 1.0
    assert [table.caption.split(" · ")[0] for table in found.figures] == [
        *("timing.timer_cost.p50", "timing.timer_cost.p99")
    ]


def test_the_guest_under_way_is_named(run):
    with under_way(run.folder):
        seen = watch(run.folder)
        guest = {"arm": "host", "platform": "host", "block": 1, "launched_at": "2025-03-01T10:00:00.000+00:00"}
        run.put_guest(GuestRecord(**guest, ready_ns=1, facts={}))
        assert seen.look().now == "Host, repetition 2 of 5: measuring; guest started at 2025-03-01 10:00:00 UTC"
        run.put_guest(GuestRecord(**guest, ready_ns=None, facts={}, error="no memory"))
        assert "did not come up" in seen.look().now


def test_verdicts_are_counted_when_a_run_has_ended_and_none_is_under_way(tmp_path):
    fields = {"plan_text": REQUIRES}
    synthetic_ledger(tmp_path / "whole", blocks=8, design=TIMERS, run=fields).close()
    synthetic_ledger(tmp_path / "now", blocks=1, design=TIMERS, run=fields, finished=False).close()

    def counted():
        return {line.run.folder.name: line.verdicts for line in Overviews().of_all(find_runs([tmp_path])).values()}

    with under_way(tmp_path / "now"):
        assert counted() == {"whole": None, "now": None}
    found = counted()
    assert found["now"] is None
    assert found["whole"]["fail"] >= 1  # gVisor's clock takes half a microsecond
    assert found["whole"]["pass"] >= 1  # and the host's nine nanoseconds


def test_an_undecided_requirement_is_called_so_as_in_a_report():
    verdicts = _environment().get_template("macros.html").module.verdicts(Counter({"inconclusive": 2}))
    assert '<span class="badge warn">2 undecided</span>' in verdicts


def test_texts_are_cut_and_steer_nothing():
    assert plain("a\nb\x1b[0m\u202e\udcff") == "a�b�[0m��"
    assert plain("x" * 1000) == "x" * 299 + "…"
