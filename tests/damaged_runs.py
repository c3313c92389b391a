"""Recorded runs, damaged in every way that was thought of, and every command that reads them: a process of its own.

    python tests/damaged_runs.py FIRST LAST [COMMANDS]     mutations by number, a JSON object a line

A mutation's number is its seed: it says the recording, the kind of damage, the place, and which commands read it where
not all do.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
RECORDINGS = sorted((DATA / "recorded").glob("*.sql"))
LIMIT_S = 10.0  # Of processor time, for one command
LIMIT_MIB = 512  # Resident, at any moment
LEDGER = "ledger.sqlite"
FOREIGN = (
    ("fio", "fio-3.33-mixed.json"),
    ("fio", "fio-3.33-two-jobs.json"),
    ("cyclictest", "cyclictest-2.4-histogram.json"),
    ("oslat", "oslat-2.4.json"),
    ("rtla", "rtla-timerlat.txt"),
    ("pgbench", "pgbench-15.18.25495"),
)
DEEP = "[" * 100_000
TABLES = ("manifest", "guests", "trials", "histograms", "events", "summaries")
HUGE = 3_000_000


# -- damage: each takes the random numbers and a run's folder -----------------------------------------------------


@contextlib.contextmanager
def _open(folder: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(folder / LEDGER)) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        yield db


def _pages(rng: random.Random, folder: Path) -> None:
    path = folder / LEDGER
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 4, 64))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def _header(rng: random.Random, folder: Path) -> None:
    path = folder / LEDGER
    content = bytearray(path.read_bytes())
    content[rng.randrange(4096)] ^= 1 << rng.randrange(8)
    content[rng.randrange(100)] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _truncated(rng: random.Random, folder: Path) -> None:
    path = folder / LEDGER
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _page_of_zeros(rng: random.Random, folder: Path) -> None:
    path = folder / LEDGER
    content = bytearray(path.read_bytes())
    page = rng.randrange(len(content) // 4096)
    content[4096 * page : 4096 * (page + 1)] = rng.choice((bytes(4096), rng.randbytes(4096)))
    path.write_bytes(content)


def _text(rng: random.Random, text: str) -> str:
    """A text of a ledger with one place changed."""
    kind = rng.randrange(8)
    at = rng.randrange(len(text)) if text else 0
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + chr(rng.choice((0, 7, 34, 92, 123, 125, 0x202E, 0xD7FF, 0x1F600))) + text[at + 1 :]
    if kind == 2:
        return rng.choice(("", "[]", "{}", "null", "0", '"x"', "NaN", "[[]]", "true", "-1", "1e999"))
    if kind == 3:
        return DEEP + "]" * len(DEEP)
    if kind == 4:
        return '{"a":' * 5000 + "1" + "}" * 5000
    if kind == 5:
        return "x" * HUGE
    if kind == 6:
        return json.dumps({"x": list(range(HUGE // 8))})
    return "9" * 10_000


_COLUMNS = {
    "manifest": ("value",),
    "guests": ("facts", "arm", "launched_at", "platform"),
    "trials": ("factors", "flags", "result", "accounting", "key", "suite", "probe", "arm", "status", "started_at"),
    "histograms": ("measure", "unit"),
    "events": ("at", "kind", "detail"),
    "summaries": ("measure", "unit"),
}


def _place(rng: random.Random, db: sqlite3.Connection, columns: dict[str, tuple[str, ...]]) -> tuple[str, str, str]:
    """A table, a column of it, and a condition that is of some of its rows."""
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    tables = [table for table in columns if table in there and db.execute(f"SELECT 1 FROM {table}").fetchone()]
    table = rng.choice(tables)
    column = rng.choice(columns[table])
    key = {"manifest": "id", "guests": "guest_id", "events": "rowid"}.get(table, "trial_id")
    rows = [one for (one,) in db.execute(f"SELECT {key} FROM {table}")]
    where = "1" if rng.random() < 0.2 else f"{key} = {rng.choice(rows)}"
    return table, column, where


def _wrong_text(rng: random.Random, folder: Path) -> None:
    with _open(folder) as db:
        table, column, where = _place(rng, db, _COLUMNS)
        text, *_ = db.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()
        with contextlib.suppress(sqlite3.IntegrityError, UnicodeEncodeError):
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (_text(rng, text),))


_ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 10**400, 1.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", "x", "\x1b[2J", "9" * 5000, [], [None], [[]], {}, {"": {}}, {"a": [1]}),
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _paths(one, (*path, key))
    elif isinstance(value, list):
        for at, one in enumerate(value[:3]):
            yield from _paths(one, (*path, at))


def _wrong_value(rng: random.Random, folder: Path) -> None:
    """JSON that is JSON, with one part that is not as it should be."""
    columns = {"manifest": ("value",), "guests": ("facts",), "trials": ("factors", "flags", "result", "accounting")}
    with _open(folder) as db:
        table, column, where = _place(rng, db, columns | {"trials": (*columns["trials"], "result", "result", "result")})
        key = {"manifest": "id", "guests": "guest_id"}.get(table, "trial_id")
        path: tuple[Any, ...] | None = None
        odd, how = rng.choice(_ODD), rng.random()
        for number, text in db.execute(f"SELECT {key}, {column} FROM {table} WHERE {where}").fetchall():
            value = json.loads(text)
            if path is None:
                path = rng.choice(list(_paths(value)))
            with contextlib.suppress(KeyError, IndexError, TypeError, sqlite3.IntegrityError):
                db.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {key} = ?",
                    (json.dumps(_put(value, path, odd, how)), number),
                )


def _put(value: Any, path: tuple[Any, ...], odd: Any, how: float) -> Any:
    if not path:
        return odd
    inner = value
    for part in path[:-1]:
        inner = inner[part]
    if how < 0.3:
        del inner[path[-1]]
    elif how < 0.4 and isinstance(inner, dict):
        inner[path[-1] + "x"] = odd
    else:
        inner[path[-1]] = odd
    return value


def _bomb(rng: random.Random, folder: Path) -> None:
    """Bins that are no bins, or decompress to very much."""
    kind = rng.randrange(8)
    packed = {
        0: lambda: zlib.compress(bytes(400 * 2**20), 9),
        1: lambda: zlib.compress(rng.randbytes(rng.randrange(200))),
        2: lambda: zlib.compress(b"\xff" * 8 + b"\x7f" * 16 * rng.randrange(1, 50)),
        3: lambda: zlib.compress(b""),
        4: lambda: rng.randbytes(100),
        5: lambda: zlib.compress(b"\x01" + bytes(7) + b"\xff" * 8),
        6: lambda: zlib.compress(bytes(16 * 60_000)),
        7: lambda: b"",
    }[kind]()
    with _open(folder) as db:
        _, _, where = _place(rng, db, {"histograms": ("bins",)})
        db.execute(f"UPDATE histograms SET bins = ? WHERE {where}", (packed,))
        if rng.random() < 0.5:
            db.execute("DROP TABLE IF EXISTS summaries")


_NUMBERS = {
    "trials": ("trial_id", "block", "attempt", "elapsed_ns", "guest_id"),
    "guests": ("guest_id", "block", "ready_ns"),
    "histograms": ("trial_id", "minimum", "maximum", "mean"),
    "summaries": ("trial_id", "n", "p50", '"p99.9"', "max"),
}


def _absurd_number(rng: random.Random, folder: Path) -> None:
    number = rng.choice((-1, -(2**63), 2**63 - 1, 2**40, 2**31, 10**15, 0, 10**9))
    with _open(folder) as db:
        table, column, where = _place(rng, db, _NUMBERS)
        with contextlib.suppress(sqlite3.IntegrityError):
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (number,))


def _absurd_real(rng: random.Random, folder: Path) -> None:
    number = rng.choice((float("inf"), -float("inf"), 1e308, -1e300, 5e-324))
    places = {"histograms": ("mean",), "summaries": ("p50", "mad", '"p99"', "min", "max", "mean")}
    with _open(folder) as db:
        table, column, where = _place(rng, db, places)
        with contextlib.suppress(sqlite3.IntegrityError):
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (number,))


def _absurd_date(rng: random.Random, folder: Path) -> None:
    dates = ("", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+23:59", "now", "2026-13-01", "12", "2026-01-01")
    date = rng.choice(dates)
    with _open(folder) as db:
        kind = rng.randrange(4)
        if kind == 0:
            ((text,),) = db.execute("SELECT value FROM manifest")
            text = re.sub(r'"created_at": "[^"]*"', f'"created_at": "{date}"', text)
            db.execute("UPDATE manifest SET value = ?", (text,))
        else:
            places = {1: {"guests": ("launched_at",)}, 2: {"trials": ("started_at",)}, 3: {"events": ("at",)}}[kind]
            with contextlib.suppress(IndexError):
                table, column, where = _place(rng, db, places)
                db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (date,))


def _missing_rows(rng: random.Random, folder: Path) -> None:
    with _open(folder) as db:
        table = rng.choice(TABLES)
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute(f"DELETE FROM {table} WHERE random() % 100 < ?", (rng.choice((-100, 0, 50, 100)),))


def _schema(rng: random.Random, folder: Path) -> None:
    """Tables that are missing, have other columns, or are views; triggers; another version."""
    table = rng.choice(TABLES[:-1])
    with _open(folder) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        column = rng.choice(columns)
        kind = rng.randrange(10)
        if kind == 0:
            db.execute(f"DROP TABLE {table}")
        elif kind == 1:
            db.execute(f"ALTER TABLE {table} ADD COLUMN more TEXT")
        elif kind == 2:
            db.execute(f'ALTER TABLE {table} RENAME COLUMN "{column}" TO other')
        elif kind == 3:
            db.execute(f"ALTER TABLE {table} RENAME TO hidden")
            db.execute(f"CREATE VIEW {table} AS SELECT * FROM hidden")
        elif kind == 4:
            told = ", ".join(f'"{one}"' for one in columns)
            same = ", ".join(["'x'"] * len(columns))
            db.execute(f"DROP TABLE {table}")
            db.execute(
                f"CREATE VIEW {table}({told}) AS WITH RECURSIVE n({told}) AS (SELECT {same} UNION ALL SELECT * FROM n) "
                "SELECT * FROM n"
            )
        elif kind == 5:
            db.execute(f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM trials; END")
        elif kind == 6:
            db.execute(f"CREATE TABLE copied AS SELECT * FROM {table}")
            db.execute(f"DROP TABLE {table}")
            db.execute(f"ALTER TABLE copied RENAME TO {table}")
            row = rng.choice((b"\xff\xfe", None, 1.5, "text", 2**62))
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute(f'UPDATE {table} SET "{column}" = ?', (row,))
        elif kind == 7:
            db.execute(f"PRAGMA user_version = {rng.choice((0, 2, 99, -1))}")
        elif kind == 8:
            db.execute(f"PRAGMA application_id = {rng.choice((1, 0x0F055112, -5))}")
        else:
            db.execute("CREATE TABLE more (x, y AS (zeroblob(100000000)))")
            db.execute("INSERT INTO more (x) VALUES (1)")


def _samples(rng: random.Random, folder: Path) -> None:
    files = sorted((folder / "samples").glob("*.parquet"))
    if not files:
        return _pages(rng, folder)
    for path in files if rng.random() < 0.7 else [rng.choice(files)]:
        content = bytearray(path.read_bytes())
        kind = rng.randrange(4)
        if kind == 0:
            content = content[: rng.randrange(len(content))]
        elif kind == 1:
            for _ in range(rng.randrange(1, 30)):
                content[rng.randrange(len(content))] = rng.randrange(256)
        elif kind == 2:
            content = bytearray(_parquet_bomb())
        else:
            import pyarrow as pa
            from pyarrow import parquet

            out = io.BytesIO()
            parquet.write_table(pa.table({"series": ["reservoir"], rng.choice(("value", "other")): ["x"]}), out)
            content = bytearray(out.getvalue())
        path.write_bytes(content)


def _parquet_bomb(made: dict[int, bytes] = {}) -> bytes:  # noqa: B006
    if not made:
        import numpy as np
        import pyarrow as pa
        from pyarrow import parquet

        out, n = io.BytesIO(), 60_000_000
        series = pa.DictionaryArray.from_arrays(np.zeros(n, dtype=np.int8), ["reservoir"])
        parquet.write_table(pa.table({"series": series, "value": np.zeros(n, dtype=np.int64)}), out, compression="zstd")
        made[0] = out.getvalue()
    return made[0]


def share_pages(folder: Path, rows: int, length: int = 1_000_000) -> None:
    """Events that all read the one long text of the last: together many times as long as the file that holds them."""
    at, kind = "2026-01-01T00:00:00.000Z", "note"
    short = length - 4092 * ((length - 16_500) // 4092)  # the same bytes of both lie in the table's own pages
    told = [("short", number, short) for number in range(200, 200 + rows)] + [("long", 200 + rows, length)]
    with _open(folder) as db:
        for text, number, long in told:
            detail = f"{text}{number:06}".ljust(long, "x")
            db.execute("INSERT INTO events (rowid, at, kind, detail) VALUES (?, ?, ?, ?)", (number, at, kind, detail))
    with contextlib.closing(sqlite3.connect(folder / LEDGER)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA journal_mode = DELETE")
    content = bytearray((folder / LEDGER).read_bytes())

    def varint(number: int) -> bytes:
        return bytes((0x80 | number >> 14, 0x80 | number >> 7 & 0x7F, number & 0x7F))

    def places(text: str, number: int, long: int) -> tuple[int, int]:
        """Of a row, where its record begins, and where its first further page stands (sqlite.org/fileformat2.html)."""
        record = content.index(f"{kind}{text}{number:06}".encode()) - len(at) - 6
        payload = 6 + len(at) + len(kind) + long
        local = 489 + (payload - 489) % 4092
        return record, record + (local if local <= 4061 else 489)

    _, last = places(*told[-1])
    page = content[last : last + 4]
    for one in told[:-1]:
        record, further = places(*one)
        content[record - 5 : record - 2] = varint(6 + len(at) + len(kind) + length)
        content[record + 3 : record + 6] = varint(2 * length + 13)
        content[further : further + 4] = page
    (folder / LEDGER).write_bytes(content)


DAMAGES: tuple[tuple[Callable[[random.Random, Path], None], int], ...] = (
    (_pages, 4),
    (_header, 2),
    (_truncated, 2),
    (_page_of_zeros, 2),
    (_wrong_text, 5),
    (_wrong_value, 10),
    (_bomb, 3),
    (_absurd_number, 3),
    (_absurd_real, 1),
    (_absurd_date, 2),
    (_missing_rows, 2),
    (_schema, 4),
    (_samples, 2),
)


# -- commands ------------------------------------------------------------------------------------------------------


class TookTooLong(BaseException):
    """The time limit of a command has passed."""


def _expire(*_: object) -> None:
    raise TookTooLong


def command(*words: object) -> dict[str, Any]:
    """What a command, run in this process, came to: exit code, seconds of processor time, MiB at most, last words."""
    from virtgauge import cli

    told = io.StringIO()
    sys.argv = ["virtgauge", *map(str, words)]
    _forget_peak()
    began, code = time.process_time(), 0
    signal.setitimer(signal.ITIMER_PROF, 2 * LIMIT_S)
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            cli.main()
    except SystemExit as end:
        code = int(end.code or 0)
    except TookTooLong:
        code = -1
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - began
    return {"command": words[0], "code": code, "s": round(took, 2), "mib": _peak_mib(), "said": told.getvalue()[-3000:]}


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mib() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


def reading(run: Path, other: Path, scratch: Path) -> Iterator[list[Any]]:
    """Every command that reads a run, as it is called."""
    yield ["report", run]
    yield ["report", run, "--full"]
    yield ["report", run, "--format", "json"]
    yield ["report", run, "--format", "html", "--out", scratch / "page.html"]
    yield ["verdict", run, "--json"]
    yield ["compare", run, other, "--across-versions"]
    for form in ("json", "csv", "parquet", "junit", "openmetrics", "hdr", "bencher", "phoronix"):
        yield ["export", run, "--format", form, "--out", scratch / f"export.{form}"]
    yield ["archive", "add", run, "--to", scratch / "archive"]
    yield ["fleet", "status", run]
    yield ["repair", run, "--out", scratch / "repaired"]


class Bench:
    """The sound runs, and what is done to copies of them."""

    def __init__(self, scratch: Path) -> None:
        sys.path.insert(0, str(Path(__file__).parent))
        from support.figures import restore

        from virtgauge.ledger.repair import repair

        self.scratch = scratch
        self.sound = [restore(one.read_text(), scratch / "sound" / one.stem) for one in RECORDINGS]
        for run in self.sound:
            with _open(run) as db:  # small ones are quick to read, and damage hits what counts
                db.execute("DELETE FROM trials WHERE block % 100000 > 1")
                for table in ("histograms", "summaries"):
                    with contextlib.suppress(sqlite3.OperationalError):
                        db.execute(f"DELETE FROM {table} WHERE trial_id NOT IN (SELECT trial_id FROM trials)")
                db.execute("DELETE FROM guests WHERE block % 100000 > 1")
            with contextlib.closing(sqlite3.connect(run / LEDGER)) as db:
                db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                db.execute("PRAGMA journal_mode = DELETE")
        # Recordings are of before there were statistics; a new ledger has them.
        for at, run in enumerate(self.sound):
            if at % 2:
                repair(run, scratch / "with-statistics" / run.name)
                self.sound[at] = scratch / "with-statistics" / run.name
        self.others = [scratch / "others" / run.name for run in self.sound]  # the same on another day, to compare with
        for run, other in zip(self.sound, self.others, strict=True):
            shutil.copytree(run, other)
            with _open(other) as db:
                db.execute("""UPDATE manifest SET value = replace(value, '"created_at": "20', '"created_at": "21')""")
        _parquet_bomb()  # once, before there are limits
        self.archive = scratch / "archive"
        for run in self.sound:
            assert command("archive", "add", run, "--to", self.archive)["code"] == 0

    def mutation(self, seed: int, commands: int) -> Iterator[dict[str, Any]]:
        """What every command made of one mutation, or so many of them."""
        rng = random.Random(seed)
        place = self.scratch / "now"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        foreign = rng.random()
        if foreign < 0.05:
            yield from self._archive(rng, place)
        elif foreign < 0.12:
            yield from self._import(rng, place)
        else:
            sound, other = rng.choice(list(zip(self.sound, self.others, strict=True)))
            run = place / "run"
            shutil.copytree(sound, run)
            kinds, weights = zip(*DAMAGES, strict=True)
            damage = rng.choices(kinds, weights)[0]
            damage(rng, run)
            called = list(reading(run, other, place))
            for words in called if commands >= len(called) else rng.sample(called, commands):
                yield command(*words) | {"damage": damage.__name__[1:], "of": sound.name, "words": words[0:4:3]}

    def _archive(self, rng: random.Random, place: Path) -> Iterator[dict[str, Any]]:
        copy = place / "archive"
        shutil.copytree(self.archive, copy)
        path = rng.choice(sorted(one for one in copy.rglob("*") if one.is_file()))
        content = path.read_bytes()
        if path.suffix == ".json" and rng.random() < 0.7:
            value = json.loads(content)
            content = json.dumps(_put(value, rng.choice(list(_paths(value))), rng.choice(_ODD), rng.random())).encode()
        else:
            content = _bytes(rng, content)
        path.write_bytes(content)
        for words in (
            ["--sql", "SELECT * FROM trials", "--format", "csv"],
            ["--sql", "SELECT count(*) FROM runs"],
            ["--measure", "timing.sleep_lateness.p99", "--by", "arm,factor.load"],
        ):
            yield command("query", copy, *words) | {"damage": "archive", "of": path.suffix, "words": words}
        words = ["archive", "report", copy, "--format", "json"]
        yield command(*words) | {"damage": "archive", "of": path.suffix, "words": words[:2]}

    def _import(self, rng: random.Random, place: Path) -> Iterator[dict[str, Any]]:
        tool, name = rng.choice(FOREIGN)
        content = (DATA / name).read_bytes()
        path = place / name
        if name.endswith(".json") and rng.random() < 0.8:
            value = json.loads(content)
            content = json.dumps(_put(value, rng.choice(list(_paths(value))), rng.choice(_ODD), rng.random())).encode()
        else:
            content = _bytes(rng, content)
        path.write_bytes(content)
        run = place / "run"
        yield command("import", tool, path, "--new", run, "--arm", "a") | {"damage": "import", "of": name, "words": []}
        if run.exists():
            yield command("report", run) | {"damage": "import", "of": name, "words": ["then"]}


def _bytes(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    kind = rng.randrange(4)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    if kind == 1:
        return DEEP.encode()
    if kind == 2:
        return content.replace(rng.choice((b"0", b"1", b"2")), b"9" * rng.choice((5, 25, 400, 5000)))
    for _ in range(rng.randrange(1, 30)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def main() -> None:
    """Run the mutations of the numbers given, within the limits."""
    first, last, commands = map(int, [*sys.argv[1:], "99"][:3])
    signal.signal(signal.SIGPROF, _expire)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(prefix="virtgauge-damaged-") as scratch:
        bench = Bench(Path(scratch))
        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))  # a leak must not take the machine with it
        for seed in range(first, last):
            for outcome in bench.mutation(seed, commands):
                print(json.dumps({"seed": seed} | outcome, default=str), flush=True)


if __name__ == "__main__":
    main()
