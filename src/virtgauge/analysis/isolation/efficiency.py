"""Efficiency of a guest's share, and what it consists of.

Rzecki et al. 2014, equation 1: q = v / (v_ref · s).  Beyond it, q = q_share · q_rate: how much CPU time the guest got
of what it was entitled to, and how much work it did in a second of that time beside what the host does in one.  The
first is the scheduler's doing; the second is that of frequency, caches, memory and the cost of virtualization.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Efficiency:
    """One trial's efficiency; a part that cannot be known is None.

    Attributes:
        relative: the rate beside the reference's, v / v_ref.
        q: efficiency by the declared share; None where none was declared.
        q_share: CPU time received, of that entitled to.
        q_rate: work per second of CPU time, beside the reference's.
    """

    relative: float
    q: float | None
    q_share: float | None
    q_rate: float | None


def efficiency(
    *,
    rate: float,
    reference_rate: float,
    share: float | None,
    received_cpus: float | None,
    entitled_cpus: float | None,
    reference_cpus: float | None,
) -> Efficiency:
    """Efficiency of a trial against its reference.

    Args:
        rate: of the benchmark in the guest, in its own unit a second.
        reference_rate: of the same benchmark on the host, on as many cores, without a load.
        share: declared, of those cores: 0.5 for a limit of 50 %; None where nothing was declared.
        received_cpus: CPU time charged to the guest from outside, per second of the trial.
        entitled_cpus: as :func:`~virtgauge.analysis.isolation.entitlement.entitled_cpus` has it.
        reference_cpus: CPU time that the reference used per second.

    Raises:
        ValueError: a reference that did nothing, or a share that is not positive.
    """
    if not reference_rate > 0:
        raise ValueError("the reference did nothing, so that nothing can be related to it")
    if share is not None and not share > 0:
        raise ValueError(f"a share is positive, not {share}")
    relative = rate / reference_rate
    q_share = q_rate = None
    if received_cpus is not None and entitled_cpus:
        q_share = received_cpus / entitled_cpus
    if received_cpus and reference_cpus:
        q_rate = (rate / received_cpus) / (reference_rate / reference_cpus)
    return Efficiency(relative, None if share is None else relative / share, q_share, q_rate)
