"""The deployment files by Kubernetes' own schemas and by what they let a pod do, and the verdict that a pod writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_api import NAME, ApiServer
from kubernetes_validate.utils import all_versions

from virtgauge import __version__
from virtgauge.errors import ExitCode
from virtgauge.execution.prepare import check_plan
from virtgauge.plan.load import parse_plan

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
JOBS = ("job.yaml", "privileged.yaml")
READER = "reader.yaml"
FLEET = "../kubernetes-fleet/fleet.yaml"
JOB = FOLDER / "virtgauge_job.py"
# In what was published of 1.26 to 1.28 a rule of a podFailurePolicy has to have onPodConditions beside onExitCodes,
# which the description beside it forbids.
VERSIONS = [one for one in dict.fromkeys(all_versions()) if tuple(map(int, one.split("."))) >= (1, 29, 0)]


def objects(name: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all((FOLDER / name).read_text()) if one is not None]


def one(name: str, kind: str) -> dict[str, Any]:
    (found,) = [found for found in objects(name) if found["kind"] == kind]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ("account.yaml", READER, *JOBS, FLEET))
def test_every_object_is_of_the_published_schemas(name: str, version: str) -> None:
    for found in objects(name):
        kubernetes_validate.validate(found, version, strict=True)


def test_the_schemas_refuse_what_they_do_not_know() -> None:
    assert len(VERSIONS) >= 9 and VERSIONS[0].startswith("1.29")
    job = one("job.yaml", "Job")
    job["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="readOnlyRootFileSystem"):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("job.yaml", "Job"), (READER, "Pod"), (FLEET, "Deployment"), (FLEET, "DaemonSet"), (FLEET, "Job")],
)
def test_a_pod_keeps_the_restricted_security_standard_and_its_root_is_read_only(name: str, kind: str) -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/, «Restricted»."""
    spec = one(name, kind)["spec"]
    pod = spec if kind == "Pod" else spec["template"]["spec"]
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    known = {"configMap", "emptyDir", "secret", "persistentVolumeClaim"}
    assert {next(iter(volume.keys() - {"name"})) for volume in pod["volumes"]} <= known
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["image"] == f"localhost/virtgauge:{__version__}-1"
    given = [mount for mount in container["volumeMounts"] if mount["name"] in ("plan", "tls")]
    assert (given or name == READER) and all(mount["readOnly"] for mount in given)


@pytest.mark.parametrize("name", JOBS)
def test_a_job_runs_once(name: str) -> None:
    spec = one(name, "Job")["spec"]
    assert spec["backoffLimit"] == 0 and spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["ttlSecondsAfterFinished"] > 0


MEASURING = [("job.yaml", "Job"), ("privileged.yaml", "Job"), (FLEET, "DaemonSet")]


@pytest.mark.parametrize(("name", "kind"), MEASURING)
def test_a_pod_that_measures_has_the_cpus_and_memory_that_it_asks_for_and_the_node_from_others(
    name: str, kind: str
) -> None:
    template = one(name, kind)["spec"]["template"]
    (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname" and term["namespaceSelector"] == {}
    assert term["labelSelector"]["matchLabels"] == {"virtgauge-measures": "yes"}
    assert template["metadata"]["labels"]["virtgauge-measures"] == "yes"
    (container,) = template["spec"]["containers"]
    resources = container["resources"]
    assert resources["requests"] == resources["limits"] and resources["limits"]["cpu"].isdigit()
    assert container["image"] == f"localhost/virtgauge:{__version__}-1"


def test_the_pod_may_write_one_config_map_and_nothing_else() -> None:
    role, binding, account = (one("account.yaml", kind) for kind in ("Role", "RoleBinding", "ServiceAccount"))
    (rule,) = role["rules"]
    assert rule == {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": ["virtgauge-verdict"],
        "verbs": ["patch"],
    }
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == [account["metadata"]["name"]]
    assert account["automountServiceAccountToken"] is False
    pod = one("job.yaml", "Job")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"] and pod["automountServiceAccountToken"] is True
    (container,) = pod["containers"]
    assert container["args"][0] == "virtgauge-verdict"
    assert one("account.yaml", "ConfigMap")["metadata"]["name"] == container["args"][0]
    other = one("privileged.yaml", "Job")["spec"]["template"]["spec"]
    assert other["serviceAccountName"] == account["metadata"]["name"]


@pytest.mark.parametrize("name", JOBS)
def test_each_pod_writes_a_folder_of_its_own(name: str) -> None:
    (container,) = one(name, "Job")["spec"]["template"]["spec"]["containers"]
    (pod_name,) = [one for one in container["env"] if one["name"] == "POD_NAME"]
    assert pod_name["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert container["args"][1] == "/runs/$(POD_NAME)"


@pytest.mark.parametrize("name", (*JOBS, FLEET))
def test_the_failure_policy_tells_a_verdict_from_a_failure_by_virtgauges_own_exit_codes(name: str) -> None:
    verdict, disruption = one(name, "Job")["spec"]["podFailurePolicy"]["rules"]
    assert verdict["action"] == "FailJob"
    assert verdict["onExitCodes"]["values"] == [ExitCode.NOT_MET, ExitCode.UNDECIDED]
    assert disruption["action"] == "Ignore"


@pytest.mark.parametrize("name", JOBS)
def test_the_plan_in_the_config_map_is_a_sound_one(name: str) -> None:
    (text,) = [found["data"]["plan.toml"] for found in objects(name) if "data" in found]
    plan = parse_plan(text, "plan.toml")
    check_plan(plan, "plan.toml")
    assert plan.require and "host" in {platform["kind"] for platform in tomllib.loads(text)["platform"]}


# -- the verdict that the pod writes ------------------------------------------------------------------------------

Started = Callable[..., subprocess.CompletedProcess[str]]
RUN = "#!/bin/sh\n[ \"$1\" = run ] && exit {code}\necho '{verdict}'; exit {code}\n"


@pytest.fixture
def api(tmp_path: Path) -> Any:
    with ApiServer(tmp_path / "account") as server:
        yield server


@pytest.fixture
def job(tmp_path: Path, api: ApiServer) -> Started:
    """virtgauge-job beside a virtgauge that ends as it is told; the account's files are where Kubernetes has them."""

    def start(code: int, verdict: str = '{"verdicts": []}', program: str = RUN, waits: str = "()") -> Any:
        stub = tmp_path / "virtgauge"
        stub.write_text(program.replace("{code}", str(code)).replace("{verdict}", verdict))
        stub.chmod(0o755)
        script = f"import runpy, sys, pathlib; sys.argv[0] = 'job'; m = runpy.run_path({str(JOB)!r}); f = m['main']"
        script += f"; f.__globals__.update(ACCOUNT=pathlib.Path({str(api.account)!r}), WAITS_S={waits})"
        script += "; sys.exit(f(sys.argv[1:]))"
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOSTNAME": "virtgauge-x7k2p", **api.environment()}
        environment |= {"HTTPS_PROXY": "http://127.0.0.1:9"}
        return subprocess.run(
            [sys.executable, "-c", script, NAME, str(tmp_path / "run"), "plan.toml"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return start


@pytest.mark.slow
@pytest.mark.parametrize(("code", "state"), [(0, "met"), (4, "not met"), (5, "undecided")])
def test_a_verdict_is_the_exit_code_and_is_in_the_config_map(
    job: Started, api: ApiServer, code: int, state: str
) -> None:
    done = job(code)
    assert done.returncode == code and done.stderr == ""
    data = {"state": state, "exit-code": str(code), "pod": "virtgauge-x7k2p", "verdict.json": '{"verdicts": []}'}
    assert api.config_map["data"] == {"note": "mine", **data}, "what others wrote there stays"
    begun, ended = api.patches
    assert begun["data"]["state"] == "running" and begun["data"]["verdict.json"] is None
    assert ended["data"] == data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "state"), [(1, "failed"), (2, "refused"), (3, "unavailable"), (70, "defect"), (130, "interrupted")]
)
def test_what_is_no_verdict_takes_an_earlier_one_away(job: Started, api: ApiServer, code: int, state: str) -> None:
    api.config_map["data"] |= {"verdict.json": "of an earlier Job", "exit-code": "0"}
    assert job(code).returncode == code
    assert api.config_map["data"] == {
        "note": "mine",
        "state": state,
        "exit-code": str(code),
        "pod": "virtgauge-x7k2p",
    }


@pytest.mark.slow
def test_a_plan_that_requires_nothing_is_measured_and_not_met(job: Started, api: ApiServer) -> None:
    program = '#!/bin/sh\n[ "$1" = run ] && exit 0\necho "the run requires nothing" >&2; exit 2\n'
    assert job(0, program=program).returncode == 0
    assert api.config_map["data"]["state"] == "measured" and "verdict.json" not in api.config_map["data"]


@pytest.mark.slow
def test_the_options_of_the_run_are_passed_on(job: Started, tmp_path: Path) -> None:
    job(0, program=f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n')
    assert (tmp_path / "calls").read_text().splitlines() == [
        f"run plan.toml --out {tmp_path}/run",
        f"verdict {tmp_path}/run --json",
    ]


@pytest.mark.slow
def test_a_verdict_that_no_config_map_holds_is_left_out_in_words(job: Started, api: ApiServer, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_text(json.dumps({"verdicts": "x" * 1_000_000}))
    done = job(4, program=f'#!/bin/sh\n[ "$1" = run ] || cat {big}\nexit 4\n')
    assert done.returncode == 4
    assert "more than 1000000 bytes" in json.loads(api.config_map["data"]["verdict.json"])["left_out"]


@pytest.mark.slow
@pytest.mark.parametrize("status", [413, 422])
def test_a_verdict_that_the_server_does_not_take_is_left_out_in_words(
    job: Started, api: ApiServer, status: int
) -> None:
    api.refusals = [200, status]
    done = job(4)
    assert done.returncode == 4 and f"answered {status}" in done.stderr
    data = api.config_map["data"]
    assert data["state"] == "not met" and "left_out" in json.loads(data["verdict.json"])


@pytest.mark.slow
def test_an_answer_that_is_no_http_is_told_and_hides_no_exit_code(job: Started, api: ApiServer) -> None:
    api.refusals = [0, 0]
    done = job(4)
    assert done.returncode == 4 and done.stderr.count("cannot be reached: BadStatusLine") == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "said"),
    [(403, "let the Role of its ServiceAccount patch"), (404, "create it before the Job"), (500, "answered 500: nope")],
)
def test_a_refused_write_is_told_and_hides_no_exit_code(job: Started, api: ApiServer, status: int, said: str) -> None:
    api.refusals = [status] * 9
    done = job(4)
    assert done.returncode == 4
    first, last = done.stderr.splitlines()
    assert said in first and said in last and "nope" in first
    assert "the exit code is 4 all the same" in last
    assert len(api.seen) == 2, "a pod without waits tries each once"


@pytest.mark.slow
def test_a_server_that_is_away_for_a_moment_is_asked_again(job: Started, api: ApiServer) -> None:
    api.refusals = [503, 429]
    done = job(0, waits="(0, 0, 0)")
    assert (done.returncode, done.stderr) == (0, "")
    assert [status for _, status in api.seen] == [503, 429, 200, 200]
    api.seen.clear()
    api.refusals = [403]
    job(0, waits="(0, 0, 0)")
    assert [status for _, status in api.seen] == [403, 200], "what is forbidden stays so"


@pytest.mark.slow
def test_a_server_of_another_authority_never_gets_the_token(job: Started, api: ApiServer, tmp_path: Path) -> None:
    with ApiServer(tmp_path / "other") as other:
        (api.account / "ca.crt").write_bytes((other.account / "ca.crt").read_bytes())
        done = job(0)
    assert done.returncode == 0 and "certificate verify failed" in done.stderr
    assert api.seen == []


@pytest.mark.slow
def test_a_token_that_is_none_of_its_own_is_refused(job: Started, api: ApiServer) -> None:
    (api.account / "token").write_text("another")
    done = job(5)
    assert done.returncode == 5 and "answered 401" in done.stderr


@pytest.mark.slow
def test_nobody_listening_and_no_account_are_told(job: Started, api: ApiServer) -> None:
    api.close()
    done = job(0)
    assert done.returncode == 0 and "cannot be reached" in done.stderr
    (api.account / "token").unlink()
    done = job(4)
    assert done.returncode == 4 and "automountServiceAccountToken" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before it starts", "while it starts", "in it"])
def test_a_pod_that_is_deleted_interrupts_the_run_and_says_so(tmp_path: Path, api: ApiServer, moment: str) -> None:
    (tmp_path / "virtgauge").write_text(
        "#!/bin/sh\n[ $(basename $PWD) = in ] && trap 'exit 130' TERM\ntouch up\nwhile :; do sleep 0.1; done\n"
    )
    (tmp_path / "virtgauge").chmod(0o755)
    script = f"import runpy, sys, pathlib; f = runpy.run_path({str(JOB)!r})['main']"
    script += f"; f.__globals__.update(ACCOUNT=pathlib.Path({str(api.account)!r})); sys.exit(f(sys.argv[1:]))"
    environment = os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"} | api.environment()
    if moment == "before it starts":  # in its first write
        api.answering.clear()
    folder = tmp_path / moment.split()[0]
    folder.mkdir()
    command = [sys.executable, "-c", script, NAME, str(tmp_path / "run"), "plan.toml"]
    with subprocess.Popen(command, env=environment, cwd=folder) as process:
        deadline = time.monotonic() + 30
        reached = (lambda: api.seen) if moment == "before it starts" else (folder / "up").exists
        while not reached() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.terminate()
        api.answering.set()
        assert process.wait(30) == 130
    assert (folder / "up").exists() == (moment != "before it starts")
    assert api.config_map["data"]["state"] == "interrupted"
