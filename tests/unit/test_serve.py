"""The server of runs: what it shows, to whom, and that it changes nothing."""

import re
import shutil
import socket
import sqlite3

import numpy as np
import pytest
from served_runs import EVIL, HOST, add_block, ask, contents, pages_of, served, under_way
from synthetic import SyntheticArm, arm_record, cells, manifest, synthetic_ledger

from virtgauge.ledger.records import SCHEDULED
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.serve import live

TOKEN = "a token of the tests, long enough"
GVISOR = arm_record("gvisor", "oci", "gVisor")
FEW = list(cells(timers=("rdtsc",), sleeps=(), loads=("idle",)))
PATHS = ("/", "/run/0123456789abcdef", "/run/0123456789abcdef/report", "/assets/page.css", "/nothing", "/../etc/passwd")


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


def few_trials(folder, **settings):
    synthetic_ledger(folder, blocks=2, design=FEW, **settings).close()
    return folder


def growing(folder, total=12):
    ledger = Ledger.create(folder, manifest([HOST, GVISOR], plan_text="repetitions = 3\nattempts = 2\n"))
    ledger.add_event("started", "virtgauge")
    ledger.add_event(SCHEDULED, f"{total} trials")
    return ledger


# -- what is shown -------------------------------------------------------------------------------------------


def test_the_list_says_of_every_run_where_it_stands(runs):
    few_trials(runs / "whole")
    few_trials(runs / "broken-off", finished=False)
    few_trials(runs / "goes-on", finished=False)
    (runs / "damaged").mkdir()
    (runs / "damaged" / LEDGER_NAME).write_text("nothing of the kind")
    (runs / "no-run").mkdir()
    before = contents(runs)
    with under_way(runs / "goes-on"), served(runs) as address:
        before |= {"goes-on/controller.lock": contents(runs)["goes-on/controller.lock"]}
        page = ask(address).text
        rows = {row.split("</a>")[0].rpartition(">")[2]: row for row in page.split("<tr>")[2:]}
        assert set(rows) == {"whole", "broken-off", "goes-on", "damaged"}
        for name, state in (("whole", "complete"), ("broken-off", "interrupted"), ("goes-on", "running")):
            assert f">{state}<" in rows[name]
            assert "10 valid" in rows[name]
            assert "gVisor (runsc, systrap)" in rows[name]
            assert "not: Kata Containers" in rows[name]
        assert "unreadable" in rows["damaged"]
        assert "file is not a database" in rows["damaged"]
        assert page.index("goes-on") < page.index("whole")  # what is under way comes first
        found = [ask(address, path) for path in pages_of(address)]
        assert {one.status for one in found} == {200}
        for text in (page, *(one.text for one in found)):
            assert text.count("<table") == text.count("<caption")
            assert all("scope=" in heading for heading in re.findall(r"<th\b[^>]*>", text))
    assert contents(runs) == before


def test_a_run_itself_may_be_named_and_a_folder_that_is_not_there_is_empty(runs, tmp_path):
    few_trials(runs / "one")
    with served(runs / "one", tmp_path / "later") as address:
        assert len(pages_of(address)) == 1
        few_trials(tmp_path / "later" / "two")
        assert len(pages_of(address)) == 2


def test_a_run_that_grows_is_followed(runs):
    rng = np.random.default_rng(1)
    with growing(runs / "now") as ledger, under_way(runs / "now"), served(runs) as address:
        (path,) = pages_of(address)
        empty = ask(address, path).text
        assert "No valid trial yet" in empty
        assert "0 of 12 trials" in empty
        assert "the first guest is being started" in empty
        add_block(ledger, 0, {"host": 20.0, "gvisor": 900.0}, rng, [HOST, GVISOR])
        one = ask(address, path).text
        assert "4 of 12 trials" in one
        assert "33 %" in one
        assert "one repetition" in one
        add_block(ledger, 1, {"host": 20.0, "gvisor": 900.0}, rng, [HOST, GVISOR])
        two = ask(address, path).text
        assert "n = 2 (50 %)" in two  # two repetitions cannot give more
        assert "timing.timer_cost.p50" in two
        ledger.add_event("completed", "")
    with served(runs) as address:
        assert ">complete<" in ask(address, path).text


def test_the_figures_that_grow_are_those_of_a_run_read_at_once(runs):
    rng = np.random.default_rng(1)
    with growing(runs / "now") as ledger, served(runs) as followed:
        (path,) = pages_of(followed)
        for block in range(3):
            add_block(ledger, block, {"host": 20.0, "gvisor": 900.0}, rng, [HOST, GVISOR])
            last = ask(followed, path).text
        with served(runs) as fresh:
            assert ask(fresh, path).text == last
        assert last.count('<td class="num"') == 2 * 2 * 2  # two statistics of two timers on two arms


def test_a_long_run_under_way_is_read_little_by_little_and_wholly_when_it_stands_still(runs, monkeypatch):
    monkeypatch.setattr(live, "_GENTLY", 4)
    rng = np.random.default_rng(1)
    with growing(runs / "now") as ledger:
        for block in range(3):
            add_block(ledger, block, {"host": 20.0, "gvisor": 900.0}, rng, [HOST, GVISOR])
        with under_way(runs / "now"), served(runs) as address:
            (path,) = pages_of(address)
            for taken in (4, 8):
                page = ask(address, path).text
                assert f"From the first {taken} of 12 trials so far" in page
                assert "12 of 12 trials" in page  # they are counted, all the same
                assert f"n = {taken // 4}" in page or taken == 4
            assert "n = 3" in (whole := ask(address, path).text)
            assert "From the first" not in whole
        with served(runs) as address:
            assert "n = 3" in ask(address, path).text


def test_an_unchanged_page_is_not_sent_again_and_its_ledger_not_read_again(runs, monkeypatch):
    few_trials(runs / "whole")
    with served(runs) as address:
        (path,) = pages_of(address)
        first = ask(address, path)
        monkeypatch.setattr(sqlite3, "connect", lambda *_, **__: pytest.fail("a ledger was opened"))
        again = ask(address, path, headers={"If-None-Match": first.headers["Etag"]})
        assert again.status == 304
        assert again.text == ""


def test_many_pages_make_a_ledger_be_read_once(runs, monkeypatch):
    rng = np.random.default_rng(1)
    with growing(runs / "now") as ledger, served(runs, ask_every_s=3600) as address:
        (path,) = pages_of(address)
        assert "0 of 12 trials" in ask(address, path).text
        add_block(ledger, 0, {"host": 20.0, "gvisor": 900.0}, rng, [HOST, GVISOR])
        assert "0 of 12 trials" in ask(address, path).text


def test_trials_that_do_not_count_are_told_with_their_reasons(runs):
    few_trials(runs / "whole", invalid_share=1.0)
    with served(runs) as address:
        page = ask(address, pages_of(address)[0]).text
    assert "foreign-load: 9.1 % of the machine, more than 3 %" in page
    assert page.count(">invalid</span>") == 10


def test_two_runs_at_once_are_both_followed(runs):
    with growing(runs / "one") as one, growing(runs / "two", total=40) as two:
        add_block(one, 0, {"host": 20.0}, np.random.default_rng(1), [HOST])
        add_block(two, 0, {"host": 30.0}, np.random.default_rng(1), [HOST])
        with under_way(runs / "one"), under_way(runs / "two"), served(runs) as address:
            texts = sorted(ask(address, path).text for path in pages_of(address))
    assert sum("2 of 12 trials" in text for text in texts) == 1
    assert sum("2 of 40 trials" in text for text in texts) == 1


def test_a_run_that_vanishes_is_gone_and_one_in_its_place_is_another(runs):
    few_trials(runs / "one")
    with served(runs) as address:
        (path,) = pages_of(address)
        assert "10</b> valid" in ask(address, path).text
        shutil.rmtree(runs / "one")
        assert ask(address, path).status == 404
        assert ask(address, path + "/report").status == 404
        assert pages_of(address) == []
        synthetic_ledger(runs / "one", blocks=3, design=FEW).close()
        page = ask(address, path).text
        assert "15</b> valid" in page
        assert "n = 3" in page


def test_a_ledger_with_anything_in_it_breaks_nothing(runs):
    few_trials(runs / "good")
    for number, change in enumerate(
        (
            "UPDATE manifest SET value = '[]'",
            "UPDATE manifest SET value = 'no JSON'",
            "DELETE FROM manifest",
            "UPDATE trials SET factors = '[1, 2]'",
            "UPDATE trials SET status = 'marvellous'",
            "UPDATE histograms SET bins = x'00'",
            "UPDATE trials SET started_at = 'yesterday', elapsed_ns = 9000000000000000000",
            "DROP TABLE events",
        )
    ):
        few_trials(runs / f"bad-{number}")
        with sqlite3.connect(runs / f"bad-{number}" / LEDGER_NAME) as db:
            db.execute(change)
        db.close()
    with served(runs) as address:
        paths = pages_of(address)
        assert len(paths) == 9
        assert [ask(address, path).status for path in paths] == [200] * 9


# -- reports -------------------------------------------------------------------------------------------------


def test_a_report_that_is_up_to_date_is_the_file_itself_in_a_sandbox(runs):
    few_trials(runs / "whole")
    (runs / "whole" / "report.html").write_text("<p>the file</p>")
    with served(runs) as address:
        (path,) = pages_of(address)
        answer = ask(address, path + "/report")
        assert (answer.status, answer.text) == (200, "<p>the file</p>")
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("sandbox allow-scripts; default-src 'none';")
        assert "connect-src" not in policy
        assert ask(address, path + "/report", "HEAD").text == ""


@pytest.mark.slow
def test_a_link_to_elsewhere_is_no_report_and_no_run(runs, tmp_path):
    (tmp_path / "secret").write_text("secret")
    few_trials(runs / "whole")
    few_trials(tmp_path / "elsewhere")
    (runs / "whole" / "report.html").symlink_to(tmp_path / "secret")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    with under_way(runs / "whole"), served(runs) as address:
        (path,) = pages_of(address)
        assert "secret" not in ask(address, path + "/report").text


def test_no_report_is_made_while_a_run_is_under_way(runs):
    few_trials(runs / "whole")
    few_trials(runs / "now", finished=False)
    with under_way(runs / "now"), served(runs) as address:
        for path in pages_of(address):
            assert "Open the report" not in ask(address, path).text
            answer = ask(address, path + "/report")
            assert answer.status == 409
            assert "would disturb it" in answer.text


@pytest.mark.slow
def test_a_missing_report_is_made_and_nothing_is_written(runs):
    few_trials(runs / "whole")
    few_trials(runs / "damaged")
    with sqlite3.connect(runs / "damaged" / LEDGER_NAME) as db:
        db.execute("UPDATE histograms SET bins = x'00'")
    db.close()
    before = contents(runs)
    with served(runs) as address:
        answers = {
            ask(address, path).text.split("<h1>")[1][:5]: ask(address, path + "/report") for path in pages_of(address)
        }
    assert answers["whole"].status == 200
    assert "What virtualization costs your workload" in answers["whole"].text
    assert answers["damag"].status == 500
    assert "the report cannot be made" in answers["damag"].text
    assert contents(runs) == before


# -- who may look --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_without_the_token_there_is_nothing_but_401(runs, path, method):
    few_trials(runs / "whole")
    with served(runs, token=TOKEN) as address:
        for headers in ({}, {"Cookie": f"virtgauge-{address.rpartition(':')[2]}={'x' * 43}"}):
            answer = ask(address, path, method, headers)
            assert answer.status == 401
            assert "whole" not in answer.text + str(answer.headers)
            assert answer.headers["Set-Cookie"] is None


def test_the_token_is_sent_once_and_a_cookie_thereafter(runs):
    few_trials(runs / "whole")
    with served(runs, token=TOKEN) as address:
        given = ask(address, "/?token=" + TOKEN.replace(" ", "%20"))
        assert (given.status, given.headers["Location"]) == (303, "/")
        cookie, *rules = given.headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(rules)
        assert TOKEN not in cookie
        assert ask(address, headers={"Cookie": cookie}).status == 200
        assert len(pages_of(address, headers={"Cookie": cookie})) == 1
        for wrong in ("", "x", TOKEN[:-1], TOKEN + "x", "%ff%fe"):
            assert ask(address, "/?token=" + wrong.replace(" ", "%20")).status == 401


def test_the_token_never_leads_to_another_machine(runs):
    with served(runs, token=TOKEN) as address:
        given = ask(address, "//elsewhere.example/?token=" + TOKEN.replace(" ", "%20"))
        assert given.headers["Location"] == "/elsewhere.example/"


@pytest.mark.parametrize(
    "host", ["attacker.example", "127.0.0.1.attacker.example", "attacker.example:80", "", "[", "@"]
)
def test_a_name_that_was_made_to_mean_this_machine_is_refused(runs, host):
    few_trials(runs / "whole")
    with served(runs) as address:
        answer = ask(address, headers={"Host": host})
        assert answer.status in (400, 403)
        assert "whole" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:9", "LOCALHOST", "[::1]:80", "192.0.2.7"])
def test_addresses_and_known_names_are_answered_at_any_port(runs, host):
    with served(runs) as address:
        assert ask(address, headers={"Host": host}).status == 200


def test_another_sites_page_gets_nothing_but_may_link(runs):
    with served(runs) as address:
        for destination in ("image", "iframe", "script", "empty"):
            headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": destination}
            assert ask(address, headers=headers).status == 403
        assert ask(address, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}).status == 200
        assert ask(address, headers={"Origin": "http://x.example"}).headers["Access-Control-Allow-Origin"] is None


@pytest.mark.parametrize(
    ("request_text", "answered"),
    [
        (f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {'x' * 15_000}\r\n\r\n", "HTTP/1.1 200"),
        (f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {'x' * 17_000}\r\n\r\n", ""),
        (f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{'x' * 1000}", "HTTP/1.1 200"),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2000\r\n\r\n", "HTTP/1.1 400"),
    ],
    ids=["header", "large header", "body", "large body"],
)
def test_a_request_is_bounded(runs, request_text, answered):
    with served(runs) as address:
        host, _, port = address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(request_text.encode())
            found = connection.recv(12).decode()
    assert found == answered


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reading_is_allowed(runs, method):
    with served(runs) as address:
        answer = ask(address, "/", method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        *("/../../etc/passwd", "/run/../../../etc/passwd", "/assets/../handlers.py", "/assets/%2e%2e/handlers.py"),
        *("/assets/page.css/../base.html", "/run/whole", "/run/..%2f..%2f", "/run/0123456789abcdef/ledger.sqlite"),
    ],
)
def test_no_path_leads_to_a_file(runs, path):
    few_trials(runs / "whole")
    with served(runs) as address:
        assert ask(address, path).status == 404


# -- what a run says is text -----------------------------------------------------------------------------------


def test_no_text_of_a_run_becomes_markup(runs):
    arms = [
        SyntheticArm(arm_record("host", "host", EVIL, "reference")),
        SyntheticArm(arm_record("bad", EVIL, EVIL, usable=False, reason=EVIL, fix=EVIL)),
    ]
    fields = {"plan_name": EVIL, "run_id": EVIL, "created_at": EVIL, "fingerprint": {"hostname": EVIL}}
    design = [("timer_cost", {"function": "rdtsc", "load": "idle", EVIL: EVIL})]
    ledger = synthetic_ledger(runs / "x<svg onload=pwned=4>", arms, 2, design, run=fields, invalid_share=1.0)
    ledger.add_event(EVIL, EVIL)
    ledger.close()
    (runs / "no\x1b[31m<b>ledger").mkdir()
    (runs / "no\x1b[31m<b>ledger" / LEDGER_NAME).touch()
    with served(runs) as address:
        pages = [ask(address).text, *(ask(address, path).text for path in pages_of(address))]
    assert len(pages) == 3
    for page in pages:
        assert "&lt;" in page
        assert page.count("<script") == 1
        for markup in ("<img", "<svg", "<b>ledger", "\x1b", 'onerror="'):
            assert markup not in page
