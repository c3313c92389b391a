"""What is done with ``xl``: domains made and ended, what the scheduler gives them, and what they used."""

from __future__ import annotations

import contextlib

from virtgauge.host.policy import PLAIN_WEIGHT
from virtgauge.platforms.xen.dom0 import Dom0, XenError
from virtgauge.platforms.xen.outputs import Domain, OutputError, Share, affinities, domains, facts, shares

XEN_WEIGHT = 256
"""Of everybody, where a weight of virtgauge is 100."""
_LEAST_WEIGHT, _LARGEST_WEIGHT = 1, 65_535


class Toolstack:
    """``xl`` in a dom0, about one domain as a rule."""

    def __init__(self, dom0: Dom0) -> None:
        self._dom0 = dom0

    async def facts(self) -> dict[str, str]:
        """What ``xl info`` says of the host.

        Raises:
            XenError: this is no Xen host, or xl may not be used.
        """
        return facts(await self._dom0.check(["xl", "info"]))

    async def create(self, config: str, timeout_s: float) -> None:
        """Start a domain from its configuration's path.

        Raises:
            XenError: Xen refuses.
        """
        await self._dom0.check(["xl", "create", "-q", config], timeout_s)

    async def number_of(self, name: str) -> int:
        """The number of a running domain.

        Raises:
            XenError: there is none of that name.
        """
        text = await self._dom0.check(["xl", "domid", name])
        try:
            return int(text)
        except ValueError:
            raise XenError(f"`xl domid {name}` prints {text.strip()!r}") from None

    def find(self, name: str) -> Domain | None:
        """A domain as ``xl list`` shows it now; None when there is none of that name.

        Raises:
            XenError: xl fails for another reason.
        """
        found = domains(self._dom0.check_now(["xl", "list"]))
        return next((domain for domain in found if domain.name == name), None)

    async def share(self, name: str) -> Share:
        """What the scheduler gives a domain.

        Raises:
            XenError: the host's scheduler is not credit2, or the domain is gone.
        """
        text = await self._dom0.check(["xl", "sched-credit2", "-d", name])
        try:
            return shares(text)[name]
        except KeyError:
            raise XenError(str(OutputError(f"share of {name}", text))) from None

    async def set_share(self, name: str, *, weight: int | None = None, cap: int | None = None) -> None:
        """Set what the scheduler gives a domain.

        Raises:
            XenError: Xen refuses.
        """
        argv = ["xl", "sched-credit2", "-d", name]
        if weight is not None:
            argv += ["-w", str(weight)]
        if cap is not None:
            argv += ["-c", str(cap)]
        await self._dom0.check(argv)

    async def pin(self, name: str, cpus: str) -> None:
        """Let all vCPUs of a domain run on these physical processors only (``all``, ``0,2``).

        Raises:
            XenError: Xen refuses.
        """
        await self._dom0.check(["xl", "vcpu-pin", name, "all", cpus])

    async def affinity(self, name: str) -> str:
        """The physical processors of a domain's vCPUs, as Xen writes them.

        Raises:
            XenError: they differ, or xl does not tell.
        """
        text = await self._dom0.check(["xl", "vcpu-list", name])
        found = sorted(set(affinities(text)))
        if len(found) != 1:
            raise XenError(str(OutputError(f"single affinity of {name}", text)))
        return found[0]

    def destroy(self, name: str) -> None:
        """End a domain at once; one that is gone is no error."""
        with contextlib.suppress(XenError):
            self._dom0.run_now(["xl", "destroy", name])


def xen_weight(weight: int) -> int:
    """A weight of virtgauge (100 is everybody's) as Xen's (256 is)."""
    return min(max(round(weight * XEN_WEIGHT / PLAIN_WEIGHT), _LEAST_WEIGHT), _LARGEST_WEIGHT)


def xen_cap(cpu_limit: float) -> int:
    """A limit in whole CPUs as a cap in percent of one; a cap of 0 would be none."""
    return max(round(cpu_limit * 100), 1)
