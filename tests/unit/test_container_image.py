"""The container image: what is in it, and that it measures and judges as an unprivileged user of a read-only root."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from containers import ACCOUNT, ROOT, Image, told
from kubernetes_api import NAME, ApiServer

from virtgauge import __version__
from virtgauge.fleet.cluster import TlsFiles
from virtgauge.ledger.store import Ledger

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

USER = "65532:65532"
TIMING = """
name = "pod"
repetitions = {repetitions}
reference = "pod"
aa = false
[[platform]]
name = "pod"
kind = "host"
[[suite.timing]]
loads = ["idle"]
timers = ["clock_gettime"]
reads = 20_000
sleeps = ["clock_nanosleep"]
targets_us = [1000]
sleep_samples = 50
[suite.timing.cycles]
periods_us = [1000]
classes = ["other"]
seconds = 0.3
[validity]
foreign_load = 1.0
steal = 1.0
[[require]]
suite = "timing"
measure = "timer_cost.p50"
at_most = {at_most}
unit = "ns"
"""
STORAGE = """
[[suite.storage]]
databases = ["sqlite", "duckdb"]
durability = ["flushed"]
operations = ["single-write"]
clients = [1]
seconds = 0.3
warmup_s = 0.1
calibration_s = 0.1
disk_probe_s = 0.1
preload = 200
sensors = 2
disk_mib = 64
"""
MET, NOT_MET = 1_000_000, 0.001
Started = Callable[..., subprocess.CompletedProcess[str]]


def built(folder: Path, *options: str | Path) -> Path:
    (made,) = told(sys.executable, ROOT / "setup" / "container_image.py", folder, *options).split()
    assert Path(made).parent == folder
    return Path(made)


@pytest.fixture(scope="module")
def deb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = "import runpy, sys, pathlib; build = runpy.run_path(sys.argv[1])['build']; "
    script += "print(build(pathlib.Path(sys.argv[2]), compression='none'))"
    folder = tmp_path_factory.mktemp("package")
    return Path(told(sys.executable, "-c", script, ROOT / "setup" / "deb.py", folder).split()[-1])


@pytest.fixture(scope="module")
def archive(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("archive"), "--deb", deb)


@pytest.fixture(scope="module")
def image(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image.unpacked(archive, tmp_path_factory.mktemp("image"))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    folder.mkdir()
    os.chown(folder, *map(int, USER.split(":")))
    return folder


@pytest.fixture
def pod(image: Image, tmp_path: Path, runs: Path) -> Started:
    """The container with a plan, and /runs as its volume."""
    number = iter(range(100))

    def start(*arguments: str, plan: str = "", files: Mapping[str, Path] = {}, **options: Any) -> Any:
        place = tmp_path / "plan.toml"
        place.write_text(plan)
        files = {"/plan/plan.toml": place, **files}
        return image.run(tmp_path / f"b{next(number)}", *arguments, binds={"/runs": runs}, files=files, **options)

    return start


def test_the_configuration_says_what_an_engine_needs(image: Image) -> None:
    config = image.config
    assert config["Entrypoint"] == ["virtgauge"] and config["User"] == USER
    assert config["Volumes"] == {"/runs": {}} and config["WorkingDir"] == "/" and config["StopSignal"] == "SIGTERM"
    labels = {name.removeprefix("org.opencontainers.image."): text for name, text in config["Labels"].items()}
    assert labels["version"] == f"{__version__}-1" and labels["licenses"] == "Apache-2.0"
    assert labels["revision"].startswith(told("git", "-C", ROOT, "rev-parse", "HEAD").strip())
    assert image.manifest["annotations"] == config["Labels"]
    (layer,) = image.manifest["layers"]
    assert layer["size"] < 240e6


def test_what_nobody_needs_is_not_in_it(image: Image) -> None:
    root = image.rootfs
    assert not [path for path in root.rglob("*") if path.is_file() and path.lstat().st_mode & 0o6000]
    assert not (root / "etc/resolv.conf").exists() and not (root / "usr/bin/apt").exists()
    assert not [
        *root.glob("etc/apt*"),
        *root.glob("var/lib/apt*"),
        *root.glob("usr/*bin/*dpkg*"),
        *root.glob("etc/dpkg*"),
    ]
    assert "Package: virtgauge\n" in (root / "var/lib/dpkg/status").read_text(), "scanners find what is in it"
    documents = {path.name for path in (root / "usr/share/doc").rglob("*") if path.is_file()}
    assert documents == {"copyright"}, "the licences, and nothing else"
    for place in ("usr/share/man", "usr/share/locale", "var/cache", "var/lib/apt/lists", "var/log"):
        assert not [path for path in (root / place).rglob("*") if path.is_file() and path.name != "lock"], place
    (library,) = (root / "usr/lib/virtgauge/share/virtgauge/databases/duckdb/current").glob("*.so")
    assert library.stat().st_nlink == 2, "DuckDB is in it once"


def test_the_same_package_makes_the_same_archive(archive: Path, deb: Path, tmp_path: Path) -> None:
    again = built(tmp_path, "--deb", deb)
    assert told("sha256sum", again).split()[0] == told("sha256sum", archive).split()[0]


def test_the_version_is_said_by_a_user_without_rights(pod: Started) -> None:
    done = pod("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"virtgauge {__version__}")
    status = pod("-c", "cat /proc/self/status; touch /x; touch /runs/x", command=["sh"])
    fields = dict(line.split(":\t", 1) for line in status.stdout.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [USER.split(":")[0]] * 4
    assert int(fields["CapBnd"], 16) == 0 and fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
    assert "Read-only file system" in status.stderr and "/runs/x" not in status.stderr


def test_byte_code_is_read_and_not_made_anew(pod: Started) -> None:
    done = pod("-v", "-c", "import virtgauge.cli, scipy, numpy", command=["/usr/lib/virtgauge/bin/python"])
    assert done.returncode == 0
    assert "matches" in done.stderr and "bytecode is stale" not in done.stderr and "# wrote" not in done.stderr
    assert not re.findall(r"code object from '[^']*\.py'", done.stderr), "sources are compiled at each start"


def test_doctor_says_what_a_pod_cannot_have(pod: Started) -> None:
    done = pod("doctor")
    lines = {line.split("  ")[0]: " ".join(line.split()) for line in done.stdout.splitlines()}
    assert " yes " in lines["SQLite"] and " yes " in lines["DuckDB 2.0.0"]
    assert "virtgauge's image" in lines["DuckDB 2.0.0"]
    assert "server is not installed" in lines["PostgreSQL"]
    assert "CAP_SYS_NICE" in lines['real-time priority: policies = ["fifo"]']
    assert "embedded databases use folders" in lines["disk images on loop devices"]


def test_timing_cycles_and_embedded_databases_are_measured_and_judged(pod: Started, runs: Path) -> None:
    plan = TIMING.format(repetitions=6, at_most=MET) + STORAGE
    done = pod("run", "/plan/plan.toml", "--out", "/runs/met", "--progress", "none", plan=plan)
    assert done.returncode == 0, done.stdout + done.stderr
    assert pod("verdict", "/runs/met").returncode == 0
    exported = json.loads(pod("export", "/runs/met").stdout)
    cells = {(one["suite"], one["probe"], one["factors"].get("database")) for one in exported["cells"]}
    assert cells == {
        ("timing", "timer_cost", None),
        ("timing", "sleep_lateness", None),
        ("timing", "cycle", None),
        ("storage", "operations", "sqlite"),
        ("storage", "operations", "duckdb"),
    }
    # some may have been repeated: another test's writes change the disk beside a storage trial
    valid = {one["cell"] for one in exported["rows"] if one["value"] is not None and one["validity"] == "valid"}
    assert valid == {one["cell"] for one in exported["cells"]}
    assert {path.stat().st_uid for path in runs.rglob("*")} == {int(USER.split(":")[0])}


def test_any_other_user_can_run_it_too(pod: Started, runs: Path) -> None:
    os.chown(runs, 1_000_620_000, 0)
    plan = TIMING.format(repetitions=1, at_most=MET)
    done = pod("run", "/plan/plan.toml", "--progress", "none", plan=plan, user="1000620000:0")
    assert done.returncode == 5, done.stdout + done.stderr
    assert [path for path in runs.iterdir() if path.name.startswith("pod-")], "runs/ below / is the volume"


# -- as the Job runs it -------------------------------------------------------------------------------------------


@pytest.fixture
def api(tmp_path: Path) -> Any:
    with ApiServer(tmp_path / "account") as server:
        for path in server.account.iterdir():
            path.chmod(0o644)
        yield server


@pytest.fixture
def job(pod: Started, api: ApiServer) -> Started:
    (spec,) = [one for one in yaml.safe_load_all((ROOT / "deploy/kubernetes/job.yaml").read_text()) if "spec" in one]
    (container,) = spec["spec"]["template"]["spec"]["containers"]

    def start(plan: str, **options: Any) -> Any:
        options = {"environment": api.environment(), "network": True, "files": {ACCOUNT: api.account}} | options
        return pod(*container["args"], command=container["command"], plan=plan, **options)

    return start


@pytest.mark.parametrize(
    ("repetitions", "at_most", "code", "state", "outcome"),
    [(6, MET, 0, "met", "pass"), (6, NOT_MET, 4, "not met", "fail"), (1, MET, 5, "undecided", "inconclusive")],
)
def test_the_job_ends_with_the_verdict_and_writes_it(
    job: Started, api: ApiServer, repetitions: int, at_most: float, code: int, state: str, outcome: str
) -> None:
    done = job(TIMING.format(repetitions=repetitions, at_most=at_most))
    assert done.returncode == code, done.stdout + done.stderr
    assert "virtgauge-job" not in done.stderr
    data = api.config_map["data"]
    assert (data["state"], data["exit-code"], data["pod"]) == (state, str(code), "pod-0")
    assert [one["outcome"] for one in json.loads(data["verdict.json"])["verdicts"]] == [outcome]


def test_the_job_of_a_refused_plan_says_so(job: Started, api: ApiServer) -> None:
    done = job(TIMING.format(repetitions=0, at_most=MET))
    assert done.returncode == 2 and "repetitions" in done.stderr
    assert api.config_map["data"] == {"note": "mine", "state": "refused", "exit-code": "2", "pod": "pod-0"}


def test_an_unreachable_or_unwilling_server_hides_no_verdict(job: Started, api: ApiServer) -> None:
    plan = TIMING.format(repetitions=6, at_most=NOT_MET)
    api.refusals = [403, 403]
    done = job(plan)
    assert done.returncode == 4 and done.stderr.count(f"the ConfigMap {NAME} was not written") == 2
    assert "timer_cost.p50" in done.stdout, "the verdict is in the log"


def test_a_pod_without_network_hides_no_verdict(job: Started) -> None:
    done = job(TIMING.format(repetitions=1, at_most=MET), network=False)
    assert done.returncode == 5 and "cannot be reached" in done.stderr


def test_the_plan_of_the_job_is_measured_shortened(pod: Started, runs: Path) -> None:
    manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "job.yaml").read_text())
    (plan,) = [one["data"]["plan.toml"] for one in manifests if one["kind"] == "ConfigMap"]
    short = {"repetitions": 1, "reads": 20_000, "sleep_samples": 20, "seconds": 0.3, "preload": 200, "disk_mib": 64}
    for name, value in short.items():
        plan, changed = re.subn(rf"^{name} = .*$", f"{name} = {value}", plan, flags=re.MULTILINE)
        assert changed
    done = pod("run", "/plan/plan.toml", "--out", "/runs/pod", "--progress", "none", plan=plan)
    assert done.returncode == 5, done.stdout + done.stderr  # undecided: a repetition proves nothing
    with Ledger.open(runs / "pod") as ledger:
        assert {trial.suite for trial in ledger.trials()} == {"timing", "storage"}
        assert not [trial.error for trial in ledger.trials() if trial.error]


def test_a_fleet_of_its_containers_measures(image: Image, tmp_path: Path, runs: Path) -> None:
    """The manifest's commands, users and mounts; two hosts are one machine, which the plan allows."""
    made, tls = TlsFiles.temporary(), tmp_path / "tls"
    tls.mkdir()
    for name, text in (("ca.crt", made.ca), ("tls.crt", made.certificate), ("tls.key", made.key)):
        (tls / name).write_text(text)
    (tmp_path / "plan").mkdir()
    ends = {"ca": "ca.crt", "certificate": "tls.crt", "key": "tls.key"}
    section = "".join(f'{field} = "/etc/virtgauge/tls/{name}"\n' for field, name in ends.items())
    section += 'scheduler = "tls://virtgauge-scheduler:8786"\none_machine = true\n'
    section += 'hosts = [{name = "node-a"}, {name = "node-b"}]\n'
    (tmp_path / "plan" / "plan.toml").write_text(f"{TIMING.format(repetitions=6, at_most=MET)}[fleet]\n{section}")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost virtgauge-scheduler\n")
    manifests = yaml.safe_load_all((ROOT / "deploy" / "kubernetes-fleet" / "fleet.yaml").read_text())
    pods = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in manifests if one["kind"] != "Service"}
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(
            subprocess.Popen(["unshare", "-n", "sh", "-c", "ip link set lo up && exec sleep 900"])
        )
        stack.callback(network.kill)
        while os.stat(f"/proc/{network.pid}/ns/net") == os.stat("/proc/self/ns/net"):
            time.sleep(0.01)
        threads = stack.enter_context(ThreadPoolExecutor())

        def started(pod: str, node: str) -> Future[subprocess.CompletedProcess[str]]:
            (container,) = pods[pod]["containers"]
            known = {"spec.nodeName": node, "status.podIP": "127.0.0.1"}
            own = {
                one["name"]: one.get("value") or known[one["valueFrom"]["fieldRef"]["fieldPath"]]
                for one in container["env"]
            }
            words = [re.sub(r"\$\((\w+)\)", lambda found: own[found[1]], word) for word in container["args"]]
            scratch = tmp_path / f"scratch-{node}"
            scratch.mkdir()
            os.chown(scratch, *map(int, USER.split(":")))
            volumes = {"tls": tls, "plan": tmp_path / "plan", "runs": runs, "scratch": scratch}
            mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
            bundle, name = tmp_path / f"bundle-{node}", f"virtgauge-test-{uuid.uuid4().hex[:8]}"
            kill = ["runc", "--root", str(bundle / "state"), "kill", name, "TERM"]
            stack.callback(subprocess.run, kill, capture_output=True)
            return threads.submit(
                image.run,
                *(bundle, *words),
                command=container["command"],
                binds={place: source for place, source in mounts.items() if source in (runs, scratch)},
                files={place: source for place, source in mounts.items() if source not in (runs, scratch)}
                | {"/etc/hosts": tmp_path / "hosts"},
                environment=own,
                network=Path(f"/proc/{network.pid}/ns/net"),
                name=name,
            )

        services = [started("virtgauge-scheduler", "scheduler")]
        services += [started("virtgauge-worker", node) for node in ("node-a", "node-b")]
        done = started("virtgauge-fleet-run", "run").result()
    assert done.returncode == 0, done.stdout + done.stderr + "".join(str(one.result()) for one in services)
    assert [service.result().returncode for service in services] == [0, 0, 0]
    with Ledger.open(runs / "fleet") as ledger:
        assert [host.name for host in ledger.manifest().hosts] == ["node-a", "node-b"]
        assert ledger.events()[-1].kind == "completed"


def test_with_more_packages_and_rights_there_are_guests_in_it(deb: Path, tmp_path: Path, runs: Path) -> None:
    more = Image.unpacked(built(tmp_path, "--deb", deb, "--include", "runc,iproute2"), tmp_path)
    plan = tmp_path / "plan.toml"
    text = TIMING.format(repetitions=1, at_most=MET).replace(
        "[[suite.timing]]", '[[platform]]\nname = "runc"\nkind = "oci"\n[[suite.timing]]'
    )
    plan.write_text(text)
    done = more.run(
        tmp_path / "bundle",
        *("run", "/plan/plan.toml", "--out", "/runs/run", "--progress", "none"),
        binds={"/runs": runs},
        files={"/plan/plan.toml": plan},
        user="0:0",
        privileged=True,
    )
    assert done.returncode == 5, done.stdout + done.stderr
    assert "runc meets 0 of 1 requirement" in done.stdout and "pod: 1 repetition, 8 of 8 trials valid" in done.stdout
