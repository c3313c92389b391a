"""The storage suite's section of a plan: its cells and testbeds, and errors that name field, value and remedy."""

from __future__ import annotations

import pytest

from virtgauge.errors import UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import load_plan, parse_plan
from virtgauge.suites.storage.suite import StorageSuite


def refusal(section: str) -> str:
    text = f'[[platform]]\nname = "host"\nkind = "host"\n[[suite.storage]]\n{section}\n'
    with pytest.raises(UsageError) as caught:
        check_plan(parse_plan(text, "my.toml"), "my.toml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('databases = ["postgres"]', ["suite.storage[0].databases[0] = 'postgres'", "did you mean 'postgresql'"]),
        ("databases = []", ["databases is empty", "name a server"]),
        ('databases = ["sqlite", "sqlite"]', ["'sqlite' is named twice"]),
        ('durability = ["safe"]', ["suite.storage[0].durability[0] = 'safe'", "flushed"]),
        ('flushes = ["ssd"]', ["suite.storage[0].flushes[0] = 'ssd'", "rotational:RPM", "latency:MICROSECONDS"]),
        ('flushes = ["rotational-seek:7200"]', ["flushes[0] = 'rotational-seek:7200'", "rotational-seek:RPM:MICRO"]),
        ('loops = ["open:0"]', ["suite.storage[0].loops[0] = 'open:0'", "above 0"]),
        ('loops = ["open"]', ["open:RATE"]),
        ("clients = [17]", ["sensors = 16", "at least clients = 17"]),
        ("clients = [0]", ["suite.storage[0].clients[0] = 0"]),
        ("preload = 10", ["preload = 10", "values = 1000", "at least as many"]),
        ('operations = ["window"]\npreload = 10', ["preload = 10", "window reads values = 1000"]),
        ('write_modes = ["copy"]', ["write_modes", "'copy'", "postgresql"]),
        ('databases = ["postgresql"]\nwrite_modes = ["copy"]\noperations = ["single-write"]', ["'copy' needs one of"]),
        ('operations = ["crash"]\nloops = ["open:5"]', ["loops", "loops of their own"]),
        ('operations = ["crash"]\ncrash = ["machine"]\nflushes = ["at-once"]', ["at-once", '"as-is"']),
        ('crash = ["machine"]', ["crash is given", 'no "crash"']),
        ('knee_of = ["multi-read"]', ["knee_of is given", 'no "knee"']),
        ("late_share = [0.6]", ["suite.storage[0].late_share[0] = 0.6", "0.5"]),
        ("late_by = 10", ["late_by is given", "late_share = [0, 0.05]"]),
        ("late_run = 10", ["late_run is given", "late_share = [0, 0.05]"]),
        ('commit_log = ["other"]', ["suite.storage[0].commit_log[0] = 'other'", "separate"]),
        ('commit_log = ["separate"]', ["commit_log: none of the databases", "postgresql, mariadb", "or leave it out"]),
        ("second = 1", ["suite.storage[0].second: unknown field", "did you mean 'seconds'"]),
        ("mixed = { writes_per_s = 0 }", ["suite.storage[0].mixed.writes_per_s = 0"]),
        ('server = [{ database = "sqlite", uri = "x" }]', ["server[0].database = 'sqlite'", "postgresql"]),
        ('server = [{ database = "postgresql", uri = "db:5432" }]', ["postgresql://user@host:5432/database"]),
        ('server = [{ database = "mongodb", uri = "postgresql://h" }]', ["mongodb://user@host:27017/database"]),
        (
            'databases = []\nserver = [{ database = "mongodb", uri = "mongodb://h" }]\noperations = ["crash"]',
            ["never one that was not started here"],
        ),
    ],
)
def test_a_bad_section_is_refused_with_field_value_and_remedy(section, said):
    message = refusal(section)
    assert all(part in message for part in said), message


def test_a_password_in_an_address_is_refused_and_not_repeated():
    message = refusal('server = [{ database = "postgresql", uri = "postgresql://me:hunter2@db/x" }]')
    assert "hunter2" not in message
    assert "password_env" in message


def test_the_default_design_is_the_papers_four_operations_on_the_embedded_databases():
    cells = StorageSuite.create({}).cells()
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 4
    assert {cell.factors["database"] for cell in cells} == {"sqlite", "duckdb"}
    assert {cell.factors["durability"] for cell in cells} == {"flushed"}
    assert len({cell.testbed for cell in cells}) == 1  # they have no server: one guest serves both


def test_servers_at_different_levels_or_flush_profiles_do_not_share_a_testbed():
    design = {"databases": ["postgresql"], "durability": ["os", "flushed"], "flushes": ["as-is", "at-once"]}
    cells = StorageSuite.create(design).cells()
    assert len({cell.testbed for cell in cells}) == 4
    one, other = (
        StorageSuite.create({"databases": ["postgresql"], "durability": ["periodic"], "period_ms": period}).cells()
        for period in (100, 200)
    )
    assert one[0].testbed != other[0].testbed


def test_a_write_mode_is_a_level_only_where_a_database_has_it():
    design = {"databases": ["postgresql", "sqlite"], "write_modes": ["default", "unnest", "copy", "pipelined"]}
    found = {
        (cell.factors["database"], cell.factors["operation"], cell.factors["write_mode"])
        for cell in StorageSuite.create(design).cells()
    }
    modes = {mode for database, operation, mode in found if (database, operation) == ("postgresql", "multi-write")}
    assert modes == {"default", "unnest", "copy", "pipelined"}
    single = {mode for database, operation, mode in found if (database, operation) == ("postgresql", "single-write")}
    assert single == {"default", "pipelined"}
    assert {mode for database, _, mode in found if database == "sqlite"} == {"default"}
    assert {mode for _, operation, mode in found if operation.endswith("read")} == {"default"}


def test_late_readings_are_a_factor_only_of_cells_that_have_them():
    plain = {cell.key for cell in StorageSuite.create({}).cells()}
    cells = StorageSuite.create({"late_share": [0, 0.05], "late_by": 20}).cells()
    assert len({cell.key for cell in cells}) == len(cells) == 2 * len(plain)
    assert plain < {cell.key for cell in cells}
    assert {cell.factors.get("late") for cell in cells} == {None, "0.05:20:600"}


def test_a_disk_for_the_commit_log_is_a_factor_of_servers_that_are_started_here():
    existing = {"database": "postgresql", "uri": "postgresql://me@db.example/x"}
    design = {"databases": ["postgresql", "cassandra"], "server": [existing]}
    plain = StorageSuite.create(design).cells()
    cells = StorageSuite.create(design | {"commit_log": ["same", "separate"]}).cells()
    keys = {cell.key: cell.testbed for cell in cells}
    assert {cell.key: cell.testbed for cell in plain}.items() < keys.items()  # what was measured before stays the same
    separate = [cell for cell in cells if cell.factors.get("commit_log") == "separate"]
    assert len(cells) == len(keys) == len(plain) + len(separate) == 4 * 5
    assert {cell.factors["database"] for cell in separate} == {"postgresql", "cassandra"}
    assert not {cell.testbed for cell in separate} & {cell.testbed for cell in plain}


def test_an_existing_server_is_never_crashed_and_stands_under_its_own_name():
    server = {"database": "postgresql", "uri": "postgresql://me@db.example/x", "password_env": "NO_SUCH_VARIABLE"}
    design = {"server": [server], "operations": ["single-write", "crash"]}
    cells = StorageSuite.create(design).cells()
    existing = [cell for cell in cells if cell.factors["durability"] == "as-configured"]
    assert [cell.factors["operation"] for cell in existing] == ["single-write"]
    assert existing[0].factors["database"] == "postgresql.db.example"


def test_a_second_design_that_would_not_be_measured_is_refused_and_named():
    """Two designs share a cell of equal settings; of others the second was left out without a word."""
    shared = 'databases = ["postgresql"]\noperations = ["single-write"]\nperiod_ms = '
    for durability, refused in (("periodic", True), ("flushed", False)):
        design = f'[[suite.storage]]\ndurability = ["{durability}"]\n{shared}'
        text = f'[[platform]]\nname = "host"\nkind = "host"\n{design}30\n{design}300\n'
        if refused:
            with pytest.raises(UsageError, match=r"suite\.storage\[1\]: another .* period_ms 30 in place of 300"):
                check_plan(parse_plan(text, "my.toml"), "my.toml")
        else:
            assert len(check_plan(parse_plan(text, "my.toml"), "my.toml").cells) == 1


@pytest.mark.parametrize(
    ("operation", "key", "refused"),
    [
        ("single-write", "seconds", True),
        ("single-write", "warmup_s", True),
        ("single-read", "preload", True),
        ("single-write", "preload", False),  # which begins with an empty table
        ("knee", "objective_ms", True),
        ("single-write", "objective_ms", False),  # which has none
        ("crash", "seconds", False),
        ("crash", "crash_after_s", True),
        ("single-write", "seed", True),
    ],
)
def test_designs_that_measure_the_same_cells_otherwise_are_refused(operation: str, key: str, refused: bool):
    design = f'[[suite.storage]]\ndatabases = ["sqlite"]\noperations = ["{operation}"]\nvalues = 100\n{key} = '
    plan = parse_plan(f'[[platform]]\nname = "host"\nkind = "host"\n{design}100\n{design}200\n', "my.toml")
    if refused:
        with pytest.raises(UsageError, match=rf"suite\.storage\[1\]: another .* with {key} 100(\.0)? in place of 200"):
            check_plan(plan, "my.toml")
    else:
        check_plan(plan, "my.toml")


def test_the_replay_of_2012_has_all_of_the_papers_cells_and_its_sweep_of_clients():
    plan, source = load_plan("full:storage-2012")
    cells = check_plan(plan, source).cells
    levels = {"postgresql": "flushed", "mongodb": "none", "cassandra": "periodic"}
    for database, level in levels.items():
        for operation in ("single-write", "single-read", "multi-write", "multi-read"):
            clients = {
                int(cell.factors["clients"])
                for cell in cells
                if (cell.factors["database"], cell.factors["durability"]) == (database, level)
                and cell.factors["operation"] == operation
                and cell.factors["flushes"] == "rotational:7200"
            }
            assert clients == {1, 2, 4, 8, 12, 16}
    equal = {cell.factors["database"] for cell in cells if cell.factors["durability"] == "flushed"}
    assert equal == set(levels)
    without = {cell.factors["operation"] for cell in cells if cell.factors["index"] == "no"}
    assert without == {"single-write", "single-read", "multi-write", "multi-read"}
