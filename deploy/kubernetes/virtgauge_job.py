#!/usr/bin/python3
"""Measure in a pod, and leave the verdict in a ConfigMap: virtgauge-job CONFIGMAP RUN PLAN [OPTIONS of virtgauge run].

It ends with the exit code of `virtgauge run`, whatever becomes of the ConfigMap; that it could not be written is told
on standard error.  The ConfigMap must be there: no Role can let anybody create one object by its name alone.  It gets
the keys `state` (running, met, not met …), `exit-code`, `pod`, and `verdict.json`, which is what
`virtgauge verdict --json` prints.  Standard library only: it is in the image, beside virtgauge and not of it.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where Kubernetes mounts token, namespace and CA
LARGEST = 1_000_000  # bytes of the verdict; all of a ConfigMap has at most 1 MiB
WAITS_S = (1.0, 3.0, 9.0)  # before each further attempt to reach the API server
DECIDED = {0: "met", 4: "not met", 5: "undecided"}
ENDED = {1: "failed", 2: "refused", 3: "unavailable", 70: "defect", 130: "interrupted"}
REMEDIES = {
    401: "the token is not valid: does the pod still have its ServiceAccount?",
    403: "let the Role of its ServiceAccount patch the ConfigMap of this name",
    404: "create it before the Job, as job.yaml does",
}


def main(arguments: list[str]) -> int:
    """Run, judge, write; the exit code of the run."""
    if len(arguments) < 3:
        print("usage: virtgauge-job CONFIGMAP RUN PLAN [OPTIONS of virtgauge run]", file=sys.stderr)
        return 2
    config_map, folder, *plan = arguments
    pod = os.environ.get("HOSTNAME", "")
    # Now, too: a verdict of an earlier Job is none of this one, and a Role that forbids it is told before the hours.
    told = {"state": "running", "pod": pod, "exit-code": None, "verdict.json": None}
    write(config_map, told, "it will not get the verdict either")
    run = subprocess.Popen(["virtgauge", "run", *plan, "--out", folder])
    signal.signal(signal.SIGTERM, lambda *_: run.terminate())
    code = run.wait()
    code = code if code >= 0 else 128 - code
    verdict = judged(folder) if code in DECIDED else ""
    state = ENDED.get(code, f"exit code {code}")
    if code in DECIDED:
        state = DECIDED[code] if verdict else "measured"  # the plan requires nothing
    told |= {"state": state, "exit-code": str(code)}
    if len(verdict.encode()) > LARGEST:
        told["verdict.json"] = json.dumps(
            {"left_out": f"it has more than {LARGEST} bytes; the run's folder has it all"}
        )
    elif verdict:
        told["verdict.json"] = verdict
    write(config_map, told, f"the verdict is in this log, and the exit code is {code} all the same")
    return code


def judged(folder: str) -> str:
    """The verdicts of a run as JSON; empty where its plan requires nothing."""
    done = subprocess.run(["virtgauge", "verdict", folder, "--json"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode in DECIDED else ""


def write(config_map: str, data: dict[str, str | None], meanwhile: str) -> None:
    """Merge keys into the ConfigMap; None removes one.  Says on standard error why it could not."""
    for wait in (*WAITS_S, None):
        why, again = patch(config_map, data)
        if why is None:
            return
        if wait is None or not again:
            print(f"virtgauge-job: the ConfigMap {config_map} was not written: {why}; {meanwhile}", file=sys.stderr)
            return
        time.sleep(wait)


def patch(config_map: str, data: dict[str, str | None]) -> tuple[str | None, bool]:
    """One attempt: what went wrong, and whether it may go better the next time."""
    try:
        token, namespace = ((ACCOUNT / name).read_text().strip() for name in ("token", "namespace"))
        trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        host, port = (os.environ[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
    except (OSError, KeyError) as error:
        return f"this is no pod with a ServiceAccount's token ({error}); set automountServiceAccountToken", False
    host = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(
        f"https://{host}:{port}/api/v1/namespaces/{namespace}/configmaps/{config_map}",
        method="PATCH",
        data=json.dumps({"data": data}).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
    )
    # No proxy of the environment: it would be between the pod and its own API server.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        opener.open(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        try:
            said = json.loads(error.read())["message"]
        except (OSError, ValueError, LookupError, TypeError):
            said = error.reason
        remedy = f" ({REMEDIES[error.code]})" if error.code in REMEDIES else ""
        return f"the API server answered {error.code}: {said}{remedy}", error.code >= 500 or error.code == 429
    except OSError as error:
        return f"the API server at {host}:{port} cannot be reached: {error}", True
    return None, False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
