#!/usr/bin/python3
"""Measure in a pod, and leave the verdict in a ConfigMap: virtgauge-job CONFIGMAP RUN PLAN [OPTIONS of virtgauge run].

It ends with the exit code of `virtgauge run`, whatever becomes of the ConfigMap; that it could not be written is told
on standard error.  The ConfigMap must be there: no Role can let anybody create one object by its name alone.  It gets
the keys `state` (running, met, not met …), `exit-code`, `pod`, and `verdict.json`, which is what
`virtgauge verdict --json` prints.  Standard library only: it is in the image, beside virtgauge and not of it.
"""

from __future__ import annotations

import http.client
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
LEFT_OUT = json.dumps({"left_out": f"more than {LARGEST} bytes, or than the server takes; the run's folder has it all"})
DECIDED = {0: "met", 4: "not met", 5: "undecided"}
INTERRUPTED = 130
ENDED = {1: "failed", 2: "refused", 3: "unavailable", 70: "defect", INTERRUPTED: "interrupted"}
UNREACHABLE, NO_ACCOUNT = 0, -1  # beside HTTP statuses
TOO_LARGE = (413, 422)  # HTTP status: the request, the object
REMEDIES = {
    401: "the token is not valid: does the pod still have its ServiceAccount?",
    403: "let the Role of its ServiceAccount patch the ConfigMap of this name",
    404: "create it before the Job: kubectl apply -f account.yaml",
}


def main(arguments: list[str]) -> int:
    """Run, judge, write; the exit code of the run."""
    if len(arguments) < 3:
        print("usage: virtgauge-job CONFIGMAP RUN PLAN [OPTIONS of virtgauge run]", file=sys.stderr)
        return 2
    config_map, folder, *plan = arguments
    told_to_end, runs = [], []

    def end(*_: object) -> None:
        told_to_end.append(True)
        for run in runs:
            run.terminate()

    signal.signal(signal.SIGTERM, end)  # first, for without a handler the first process of a container does not hear it
    pod = os.environ.get("HOSTNAME", "")
    # Now, too: a verdict of an earlier Job is none of this one, and a Role that forbids it is told before the hours.
    told = {"state": "running", "pod": pod, "exit-code": None, "verdict.json": None}
    write(config_map, told, "it will not get the verdict either")
    code = INTERRUPTED
    if not told_to_end:
        runs.append(subprocess.Popen(["virtgauge", "run", *plan, "--out", folder]))
        if told_to_end:  # meanwhile
            runs[0].terminate()
        code = runs[0].wait()
    if code < 0:
        code = INTERRUPTED if told_to_end else 128 - code
    verdict = judged(folder) if code in DECIDED else ""
    state = ENDED.get(code, f"exit code {code}")
    if code in DECIDED:
        # A plan that requires nothing ends with 0; any other code is a verdict, also where its words are lost.
        state = DECIDED[code] if verdict or code else "measured"
    told |= {"state": state, "exit-code": str(code)}
    if verdict:
        told["verdict.json"] = verdict if len(verdict.encode()) <= LARGEST else LEFT_OUT
    refused = write(config_map, told, f"the verdict is in this log, and the exit code is {code} all the same")
    if refused in TOO_LARGE and verdict:
        write(config_map, told | {"verdict.json": LEFT_OUT}, "it still says that the run goes on")
    return code


def judged(folder: str) -> str:
    """The verdicts of a run as JSON; empty where its plan requires nothing."""
    done = subprocess.run(["virtgauge", "verdict", folder, "--json"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode in DECIDED else ""


def write(config_map: str, data: dict[str, str | None], meanwhile: str) -> int | None:
    """Merge keys into the ConfigMap; None removes one.  Says on standard error why it could not.

    Returns:
        The HTTP status of the refusal, UNREACHABLE or NO_ACCOUNT; None where it is written.
    """
    for wait in (*WAITS_S, None):
        why, status = patch(config_map, data)
        if not why:
            return None
        if wait is None or not (status in (UNREACHABLE, 429) or status >= 500):
            break
        time.sleep(wait)
    print(f"virtgauge-job: the ConfigMap {config_map} was not written: {why}; {meanwhile}", file=sys.stderr)
    return status


def patch(config_map: str, data: dict[str, str | None]) -> tuple[str, int]:
    """One attempt: what went wrong, else "", and the HTTP status, UNREACHABLE or NO_ACCOUNT."""
    try:
        token, namespace = ((ACCOUNT / name).read_text().strip() for name in ("token", "namespace"))
        trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        host, port = (os.environ[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
    except (OSError, KeyError) as error:
        return f"this is no pod with a ServiceAccount's token ({error}); set automountServiceAccountToken", NO_ACCOUNT
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
        return f"the API server answered {error.code}: {said}{remedy}", error.code
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"the API server at {host}:{port} cannot be reached: {error!r}", UNREACHABLE
    return "", 200


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
