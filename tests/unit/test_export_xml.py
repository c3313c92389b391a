"""JUnit XML and Phoronix results: the structure that their schemas ask for, and texts that cannot break it."""

import re
from xml.etree import ElementTree

import pytest
from exported_runs import exported
from lxml import etree
from synthetic import SyntheticArm, arm_record, cells, manifest, synthetic_ledger, trial

from virtgauge.errors import UsageError
from virtgauge.exchange import Format
from virtgauge.exchange.xml import Case, Outcome, junit
from virtgauge.ledger.records import Flag, TrialStatus
from virtgauge.ledger.store import Ledger

HOSTILE = "<b>&\"'\x00\x1b]]>\ud800"
IDLE = {"function": "rdtsc", "load": "idle"}


def check_junit(text):
    """The rules of Jenkins' schema (junit-10.xsd of its xUnit plugin), and that all counts are true."""
    root = etree.fromstring(text.encode())
    assert root.tag == "testsuites"
    for suite in root:
        assert suite.tag == "testsuite"
        assert {"name", "tests", "failures", "errors"} <= set(suite.attrib)
        assert re.fullmatch(r"\d+\.\d{3}", suite.get("time"))
        assert {part.tag for part in suite} <= {"properties", "testcase"}
        for element, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{element}"))
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        for case in suite.findall("testcase"):
            assert set(case.attrib) <= {"name", "classname", "time"}
            assert {part.tag for part in case} <= {"failure", "error", "skipped", "system-out"}
            assert len([part for part in case if part.tag != "system-out"]) <= 1
    assert int(root.get("tests")) == len(root.findall("testsuite/testcase"))
    assert int(root.get("errors")) == len(root.findall("testsuite/testcase/error"))
    return root


def test_every_outcome_has_its_element():
    cases = [Case("p", "c", outcome.value, outcome, "why", 1.5, {"margin": "3 %"}, "more") for outcome in Outcome]
    root = check_junit(junit(cases, "plan", "2025-03-01T10:00:00.000+00:00", {"run": "r"}))
    found = {case.get("name"): [(part.tag, part.get("type")) for part in case] for case in root.iter("testcase")}
    assert found == {
        "pass": [("system-out", None)],
        "fail": [("failure", "fail"), ("system-out", None)],
        "inconclusive": [("error", "inconclusive"), ("system-out", None)],
        "error": [("error", "error"), ("system-out", None)],
        "skipped": [("skipped", "skipped"), ("system-out", None)],
    }
    assert root.find("testsuite").get("time") == "7.500"
    assert root.find("testsuite").get("timestamp") == "2025-03-01T10:00:00"


def test_an_undecided_case_is_not_taken_for_a_good_one():
    root = check_junit(junit([Case("p", "c", "n", Outcome.INCONCLUSIVE, "the interval holds the bound")], "plan"))
    assert (root.get("errors"), root.find("testsuite").get("skipped")) == ("1", "0")


def test_texts_of_a_case_stay_texts():
    case = Case(HOSTILE, HOSTILE, HOSTILE, Outcome.FAIL, HOSTILE, None, {HOSTILE: HOSTILE}, HOSTILE)
    root = check_junit(junit([case], HOSTILE, "", {HOSTILE: HOSTILE}))
    shown = "<b>&\"'��]]>�"
    assert root.find("testsuite/testcase/failure").text == shown
    assert root.find("testsuite/testcase/failure").get("message") == shown


def test_no_case_is_a_document_too():
    assert check_junit(junit([], "plan")).get("tests") == "0"


@pytest.fixture
def invalid_run(tmp_path):
    """A cell that was measured, one that was invalid, one that failed, one that cannot be, and a skipped platform."""
    host, kata = arm_record("host", "host", "Host", "reference"), arm_record("kata", "oci", "Kata", usable=False)
    invalid = {"status": TrialStatus.INVALID, "flags": (Flag("foreign-load", "9 %"),)}
    with Ledger.create(tmp_path / "run", manifest([host, kata])) as ledger:
        for level, first, second in (
            ("mended", invalid, {}),
            ("invalid", invalid, invalid),
            ("failed", {"status": TrialStatus.FAILED, "error": f"lost {HOSTILE[:-1]}"}, None),
            ("unable", {"status": TrialStatus.UNSUPPORTED, "error": "no such call"}, None),
        ):
            for attempt, fields in enumerate((first, second), start=1):
                if fields is not None:
                    levels = {"function": level, "load": "idle"}
                    ledger.add_trial(trial(host, "timer_cost", levels, 0, attempt=attempt, **fields))
    return tmp_path / "run"


def test_without_requirements_a_case_says_whether_each_repetition_has_a_valid_trial_and_none_fails(
    invalid_run, tmp_path
):
    root = check_junit(exported(invalid_run, Format.JUNIT, tmp_path / "run.xml").read_text())
    found = {case.get("name").split()[-2 if "=" in case.get("name") else -1]: case for case in root.iter("testcase")}
    tags = {name: [part.tag for part in case if part.tag != "system-out"] for name, case in found.items()}
    assert tags == {
        "function=mended": [],
        "function=invalid": ["skipped"],
        "function=failed": ["error"],
        "function=unable": ["skipped"],
        "kata": ["skipped"],
    }
    assert "foreign-load: 9 %" in found["function=invalid"].find("skipped").text
    assert root.get("failures") == "0"
    assert found["function=mended"].get("time") == "1.600"


ORDER = {
    "PhoronixTestSuite": ["Generated", "System", "Result"],
    "Generated": ["Title", "LastModified", "TestClient", "Description"],
    "System": ["Identifier", "Hardware", "Software", "User", "TimeStamp", "TestClientVersion", "Notes"],
    "Result": [
        *("Identifier", "Title", "AppVersion", "Arguments", "Description"),
        *("Scale", "Proportion", "DisplayFormat", "Data"),
    ],
    "Data": ["Entry"],
    "Entry": ["Identifier", "Value", "RawString"],
}
"""Of elements, as the schema of the result file has them; those that may be left out are not written."""


def check_phoronix(text):
    root = etree.fromstring(text.encode())
    for element in root.iter():
        tags = [part.tag for part in element]
        assert list(dict.fromkeys(tags)) == ORDER.get(element.tag, [])
        if element.tag in ("Generated", "System", "Entry"):
            assert len(tags) == len(set(tags))
    for moment in [*root.iter("LastModified"), *root.iter("TimeStamp")]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", moment.text)
    systems = [one.findtext("Identifier") for one in root.iter("System")]
    assert len(systems) == len(set(systems))
    assert all(entry.findtext("Identifier") in systems for entry in root.iter("Entry"))
    assert all(1 <= len(name) <= 128 for name in systems)
    assert all(2 <= len(one.findtext("Title")) <= 50 for one in root.iter("Result"))
    assert all(one.findtext("Proportion") in ("LIB", "HIB") for one in root.iter("Result"))
    return root


def test_phoronix_gets_systems_results_and_entries(tmp_path):
    arms = [
        SyntheticArm(arm_record("host", "host", "Host", "reference")),
        SyntheticArm(arm_record("tcg", "qemu", "QEMU (tcg)", emulated=True), 10.0),
    ]
    synthetic_ledger(tmp_path / "run", arms, 3, list(cells(("rdtsc",), (), ("idle",))), spread=0).close()
    path = exported(tmp_path / "run", Format.PHORONIX, tmp_path / "r.xml", ("timing.timer_cost.p50",))
    root = check_phoronix(path.read_text())
    (result,) = root.iter("Result")
    assert (result.findtext("Scale"), result.findtext("Proportion")) == ("ns", "LIB")
    values = {entry.findtext("Identifier"): entry for entry in result.iter("Entry")}
    assert values.keys() == {"host", "tcg (emulated)"}
    raw = [float(value) for value in values["tcg (emulated)"].findtext("RawString").split(":")]
    assert len(raw) == 3
    assert float(values["tcg (emulated)"].findtext("Value")) == sorted(raw)[1] == pytest.approx(90, rel=0.02)


def test_phoronix_has_no_form_for_a_run_without_figures(invalid_run, tmp_path):
    with pytest.raises(UsageError, match="no valid figure"):
        exported(invalid_run, Format.PHORONIX, tmp_path / "r.xml", ("timing.timer_cost.p99",))


def test_names_of_a_run_stay_text_in_phoronix(tmp_path):
    arms = [SyntheticArm(arm_record("host", "host", "Host <script>\x07", "reference"))]
    design = list(cells(("rdtsc",), (), ("idle",)))
    synthetic_ledger(tmp_path / "run", arms, 1, design, run={"plan_name": HOSTILE[:-1] * 40}).close()
    text = exported(tmp_path / "run", Format.PHORONIX, tmp_path / "r.xml").read_text()
    assert "<script>" not in text
    assert len(check_phoronix(text).findtext("Generated/Title")) == 126
    assert ElementTree.fromstring(text) is not None
