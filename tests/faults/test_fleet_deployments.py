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
from fleet_hosts import ended, wait_until
from suites.simulated_runs import plan_of, simulated

from virtgauge.errors import ExitCode
from virtgauge.fleet.cluster import TlsFiles
from virtgauge.ledger.records import BLOCKS_PER_HOST
from virtgauge.ledger.store import Ledger

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] || exit 1
echo "$3" | tr , '\\n'
"""
SRUN = """#!/bin/bash
# One task on each node of the job but those that are excluded; it ends them when it is told to end.
declare -A said
while [[ $1 == --* ]]; do said[${1%%=*}]=${1#*=}; shift; done
count=0
for node in ${SLURM_JOB_NODELIST//,/ }; do
    [[ $node == "${said[--exclude]}" ]] && continue
    SLURMD_NODENAME=$node VIRTGAUGE_STATE=$NODES/$node unshare -m sh -c '
        mount --bind "$NODES/$SLURMD_NODENAME.boot" /proc/sys/kernel/random/boot_id && exec "$@"' task "$@" &
    count=$((count + 1))
done
[[ $count == "${said[--nodes]}" ]] || { echo "srun: other than --nodes=${said[--nodes]}" >&2; exit 1; }
trap 'kill $(jobs -p)' TERM
wait
wait
"""
POD = """
set -e
root=$1 boot=$2; shift 2
mount -t tmpfs none "$root"
for one in /*; do
    case $one in /etc) cp -a /etc "$root/etc" ;; *)
        if [ -L "$one" ]; then cp -P "$one" "$root$one"
        elif [ -d "$one" ]; then mkdir "$root$one"; mount --rbind "$one" "$root$one"; fi ;;
    esac
done
mount --bind "$boot" "$root/proc/sys/kernel/random/boot_id"
printf '127.0.0.1 localhost virtgauge-scheduler\\n' >"$root/etc/hosts"
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


def sbatch(here, nodes, *words):
    """The batch script, as Slurm starts it on the first of these nodes."""
    own = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": ",".join(nodes), "NODES": str(here)}
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (here / "bin" / name).write_text(text)
        (here / "bin" / name).chmod(0o755)
    for node in nodes:
        boot_of(here, node)
    argv = ["bash", str(DEPLOY / "slurm" / "fleet.sbatch"), *words]
    return subprocess.run(argv, cwd=here, env=os.environ | own, capture_output=True, text=True, timeout=150)


def test_the_batch_script_for_slurm_measures_every_node_but_the_first(here):
    (here / "plan.toml").write_text(plan_of(simulated("a"), simulated("b", seed=2), repetitions=2).to_toml())
    done = sbatch(here, ["localhost", "node2", "node3"], "plan.toml", "run")
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert_measured(here / "run", "node2", "node3")
    assert not list(here.glob("virtgauge-*/")), "keys are gone with the job"
    left = subprocess.run(["pgrep", "-f", str(here)], capture_output=True, text=True, check=False).stdout
    assert left == ""


def test_a_job_of_one_node_and_a_plan_with_hosts_of_its_own_are_refused_in_words(here):
    plan = here / "plan.toml"
    plan.write_text("[fleet]\n")
    assert "leave [fleet] out" in sbatch(here, ["localhost", "node2"], "plan.toml", "run").stderr
    plan.write_text("")
    alone = sbatch(here, ["localhost"], "plan.toml", "run")
    assert alone.returncode == ExitCode.USAGE and "--nodes=2 or more" in alone.stderr


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


def test_the_commands_of_the_pods_measure_every_node(here):
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
            root.mkdir()
            scratch.mkdir()
            known = {"spec.nodeName": node}
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
            argv = [*enter, str(root), str(boot_of(here, node)), *mounts, "--", *words]
            process = subprocess.Popen(
                argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            stack.callback(ended, process)
            return process

        enter = ["nsenter", f"--net=/proc/{network.pid}/ns/net"]
        subprocess.run([*enter, "ip", "link", "set", "lo", "up"], check=True)
        started("virtgauge-scheduler", "scheduler")
        for node in ("node-a", "node-b"):
            started("virtgauge-worker", node)
        run = started("virtgauge-fleet-run", "run")
        assert run.wait(150) == ExitCode.OK, (here / "run.log").read_text()
    assert_measured(here / "runs" / "fleet", "node-a", "node-b")
