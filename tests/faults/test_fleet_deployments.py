"""The deployment files of fleets, executed as they stand: Slurm by stand-ins of its commands, Kubernetes pod by pod.

Each node is a mount namespace of this machine with a boot ID of its own.
"""

import contextlib
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import yaml
from fleet_hosts import ended
from suites.simulated_runs import plan_of, simulated
from waiting import wait_until

from virtgauge.errors import ExitCode
from virtgauge.fleet.cluster import TlsFiles
from virtgauge.ledger.records import BLOCKS_PER_HOST
from virtgauge.ledger.store import LEDGER_NAME, Ledger

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
# A command on a node, by a user who is not root: with boot ID, /var/tmp and /etc/hosts of its own.
NODE = """#!/bin/sh
exec unshare --map-root-user --mount sh -ec '
    mount --bind "$NODES/$0.boot" /proc/sys/kernel/random/boot_id
    mount --bind "$NODES/$0.tmp" /var/tmp
    mount --bind "$NODES/$0.hosts" /etc/hosts
    exec unshare --map-user=1000 --map-group=1000 "$@"' "$@"
"""
SCONTROL = """#!/bin/bash
case "$1 $2" in
    "show hostnames") [[ $3 =~ ^([a-z]+)\\[([0-9]+)-([0-9]+)\\]$ ]] || { echo "$3"; exit; }
        seq -f "${BASH_REMATCH[1]}%g" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}" ;;
    "show node") echo "NodeName=$3 Arch=x86_64 CoresPerSocket=1"; echo "   NodeAddr=$3 NodeHostName=$3 Version=22" ;;
    *) exit 1 ;;
esac
"""
# Tasks on the nodes of the job but those that are excluded. Like the true one, it takes the number of tasks from
# SLURM_NTASKS where none is given, and kills them when it is told to end.
SRUN = """#!/bin/bash
set -m
declare -A said=([--ntasks]=$SLURM_NTASKS)
while [[ $1 == --* ]]; do said[${1%%=*}]=${1#*=}; shift; done
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vx "${said[--exclude]}")
[[ ${#nodes[@]} == "${said[--nodes]}" ]] || { echo "srun: other than --nodes=${said[--nodes]}" >&2; exit 1; }
[[ ${#nodes[@]} == "${said[--ntasks]}" ]] || { echo "srun: --ntasks=${said[--ntasks]}: two on one node" >&2; exit 1; }
[[ ${said[--cpu-bind]} == none ]] || { echo "srun: bound to one CPU" >&2; exit 1; }
trap 'echo "srun: killed its tasks" >&2; kill -9 -- "${tasks[@]/#/-}"' TERM
for node in "${nodes[@]}"; do
    SLURMD_NODENAME=$node node "$node" "$@" &
    tasks+=($!)
done
echo "${tasks[@]/#/-}" >"$NODES/step.$SLURM_JOB_ID.0"
wait
wait
"""
SCANCEL = """#!/bin/bash
[ "$1" = --signal=TERM ] && kill -TERM -- $(cat "$NODES/step.$2")
"""
POD = """
set -e
root=$1 boot=$2 address=$3; shift 3
mount -t tmpfs none "$root"
for one in /*; do
    case $one in /etc) cp -a /etc "$root/etc" ;; *)
        if [ -L "$one" ]; then cp -P "$one" "$root$one"
        elif [ -d "$one" ]; then mkdir "$root$one"; mount --rbind "$one" "$root$one"; fi ;;
    esac
done
mount --bind "$boot" "$root/proc/sys/kernel/random/boot_id"
echo "$address localhost virtgauge-scheduler" >"$root/etc/hosts"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done
shift
exec chroot "$root" "$@"
"""


@pytest.fixture
def here(tmp_path, any_agent, monkeypatch):
    """Where the commands of this checkout are found, and their files go."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("VIRTGAUGE_STATE", str(tmp_path / "state"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def boot_of(folder, node):
    """A file with the boot ID of a node."""
    path = folder / f"{node}.boot"
    path.write_text(f"{uuid.uuid4()}\n")
    return path


def assert_measured(run, *hosts):
    with Ledger.open(run) as ledger:
        trials = ledger.trials()
        assert [host.name for host in ledger.manifest().hosts] == [*hosts]
        assert ledger.events()[-1].kind == "completed"
    assert (
        len(trials) == len({trial.key for trial in trials}) == len(hosts) * 2 * 2 * 2
    )  # platforms, cells, repetitions
    assert {trial.block // BLOCKS_PER_HOST for trial in trials} == set(range(len(hosts)))


@pytest.fixture
def sbatch(here):
    """Starts the batch script as Slurm 22.05 does on the first of some nodes, for a user with a session elsewhere."""
    for name, text in (("node", NODE), ("scontrol", SCONTROL), ("srun", SRUN), ("scancel", SCANCEL)):
        (here / "bin" / name).write_text(text)
        (here / "bin" / name).chmod(0o755)

    def start(count, *words):
        nodes = [f"node{number + 1}" for number in range(count)]
        for node in nodes:
            boot_of(here, node)
            (here / f"{node}.tmp").mkdir(exist_ok=True)
            first = "127.0.1.1 node1" if node == "node1" else "127.0.0.1 node1"  # as Debian has it
            (here / f"{node}.hosts").write_text(f"127.0.0.1 localhost\n{first}\n")
        own = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": f"node[1-{count}]", "SLURM_NTASKS": str(count)}
        own |= {"NODES": str(here), "XDG_RUNTIME_DIR": "/dev/null/1000"}  # nobody can make it
        environment = {name: value for name, value in os.environ.items() if name != "VIRTGAUGE_STATE"} | own
        argv = ["node", "node1", "bash", str(DEPLOY / "slurm" / "fleet.sbatch"), *words]
        return subprocess.Popen(
            argv, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    return start


def said(job):
    """What a batch script said to its end."""
    out, err = job.communicate(timeout=150)
    return out + err


def assert_ended_in_order(here, words):
    assert "srun: killed" not in words
    assert "started again" not in words
    assert not list(here.glob("virtgauge-*/")), "keys are gone with the job"
    for node in ("node2", "node3"):
        state = here / f"{node}.tmp" / "virtgauge-1000" / "state"
        assert state.is_dir() and not [*state.glob("dask"), *state.glob("vg*")]
    left = subprocess.run(["pgrep", "-f", str(here)], capture_output=True, text=True, check=False).stdout
    assert left == ""


def test_the_batch_script_for_slurm_measures_every_node_but_the_first(here, sbatch):
    (here / "plan.toml").write_text(plan_of(simulated("a"), simulated("b", seed=2), repetitions=2).to_toml())
    job = sbatch(3, "plan.toml", "run")
    words = said(job)
    assert job.returncode == ExitCode.OK, words
    assert_measured(here / "run", "node2", "node3")
    assert_ended_in_order(here, words)


def test_a_job_that_slurm_ends_before_its_time_takes_keys_and_workers_with_it(here, sbatch):
    plan = plan_of(simulated("a"), simulated("b", seed=2), repetitions=500)
    (here / "plan.toml").write_text(plan.to_toml())
    job = sbatch(3, "plan.toml", "run")
    wait_until("measuring", (here / "run" / LEDGER_NAME).exists)
    job.terminate()  # as --signal=B:TERM@120 does
    words = said(job)
    assert job.returncode == 143, words
    assert_ended_in_order(here, words)


def test_a_job_has_all_of_its_nodes_and_time_to_end():
    lines = (DEPLOY / "slurm" / "fleet.sbatch").read_text().splitlines()
    directives = {line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")}
    assert directives >= {"--exclusive", "--mem=0", "--signal=B:TERM@120"}


def test_a_job_of_one_node_and_a_plan_with_hosts_of_its_own_are_refused_in_words(here, sbatch):
    plan = here / "plan.toml"
    plan.write_text("[fleet]\n")
    assert "leave [fleet] out" in said(sbatch(2, "plan.toml", "run"))
    plan.write_text("")
    alone = sbatch(1, "plan.toml", "run")
    assert "--nodes=2 or more" in said(alone) and alone.returncode == ExitCode.USAGE


def manifests():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes-fleet" / "fleet.yaml").read_text()))


def pods():
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in manifests() if one["kind"] != "Service"}


def test_pods_of_kubernetes_have_no_more_rights_than_nobody():
    for name, pod in pods().items():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
        (container,) = pod["containers"]
        least = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["securityContext"] == least
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_services_and_selectors_of_kubernetes_find_their_pods():
    by_kind = {one["kind"]: one for one in manifests()}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert by_kind["Service"]["spec"]["selector"].items() <= labels.items()
    for kind in ("Deployment", "DaemonSet"):
        spec = by_kind[kind]["spec"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    (port,) = by_kind["Service"]["spec"]["ports"]
    assert {"containerPort": port["port"]} in by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0][
        "ports"
    ]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_the_commands_of_the_pods_measure_every_node(here, address):
    made, tls = TlsFiles.temporary(), here / "tls"
    tls.mkdir()
    for name, text in (("ca.crt", made.ca), ("tls.crt", made.certificate), ("tls.key", made.key)):
        (tls / name).write_text(text)
    (here / "plan").mkdir()
    fleet = {
        "scheduler": "tls://virtgauge-scheduler:8786",
        "ca": "/etc/virtgauge/tls/ca.crt",
        "certificate": "/etc/virtgauge/tls/tls.crt",
        "key": "/etc/virtgauge/tls/tls.key",
        "hosts": [{"name": "node-a"}, {"name": "node-b"}],
    }
    plan = plan_of(simulated("a"), simulated("b", seed=2), repetitions=2, fleet=fleet)
    (here / "plan" / "plan.toml").write_text(plan.to_toml())
    volumes = {"tls": tls, "plan": here / "plan", "runs": here / "runs"}
    (here / "runs").mkdir()
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(subprocess.Popen(["unshare", "-n", "sleep", "600"]))
        stack.callback(network.kill)
        wait_until(
            "a network of its own", lambda: os.stat(f"/proc/{network.pid}/ns/net") != os.stat("/proc/self/ns/net")
        )

        def started(name, node):
            (container,) = pods()[name]["containers"]
            root, scratch = here / f"root-{node}", here / f"scratch-{node}"
            root.mkdir(exist_ok=True)
            scratch.mkdir(exist_ok=True)
            known = {"spec.nodeName": node, "status.podIP": address}
            own = {
                one["name"]: one.get("value") or known[one["valueFrom"]["fieldRef"]["fieldPath"]]
                for one in container["env"]
            }
            words = [*container["command"], *container["args"]]
            for variable, value in own.items():
                words = [word.replace(f"$({variable})", value) for word in words]
            mounts = [
                str(word)
                for mount in container["volumeMounts"]
                for word in (volumes.get(mount["name"], scratch), mount["mountPath"])
            ]
            enter = ["nsenter", f"--net=/proc/{network.pid}/ns/net", "unshare", "-m", "sh", "-c", POD, "pod"]
            environment = {k: v for k, v in os.environ.items() if k in ("PATH", "VIRTGAUGE_AGENT")} | own
            argv = [*enter, str(root), str(boot_of(here, node)), address, *mounts, "--", *words]
            with (here / f"{node}.log").open("a") as log:
                process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log)
            stack.callback(ended, process)
            return process

        enter = ["nsenter", f"--net=/proc/{network.pid}/ns/net"]
        subprocess.run([*enter, "ip", "link", "set", "lo", "up"], check=True)
        started("virtgauge-scheduler", "scheduler")
        for node in ("node-a", "node-b"):
            started("virtgauge-worker", node)
        for words in (": 16 trials to do", ": 0 trials to do"):  # the next pod of the Job resumes what is there
            run = started("virtgauge-fleet-run", "run")
            code = run.wait(150)
            logs = "".join(log.read_text() for log in here.glob("*.log"))
            assert code == ExitCode.OK and words in logs, logs
    assert_measured(here / "runs" / "fleet", "node-a", "node-b")
