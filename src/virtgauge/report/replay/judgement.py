"""One verdict for a conclusion, from what each platform of a run says of it, with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtgauge.claims.verdicts import Evidence, Hearing, Verdict

_MOST_REASONS = 2
_SEVERITY = (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.CONFIRMED, Verdict.UNTESTABLE)
NOT_PART = "not part of this run"
NOTHING_DECIDES = "no platform whose figures decide was measured"
_EMULATED_ONLY = "measured on emulated platforms alone, whose figures decide nothing"


def judge(hearings: Sequence[Hearing], labels: Mapping[str, str], *, emulated: bool) -> tuple[Verdict, str]:
    """Contradicted if any platform contradicts, confirmed if none is undecided; those that cannot tell do not count.

    Args:
        hearings: what this run says of the conclusion.
        labels: of the arms, by name.
        emulated: whether anything was measured on an emulated platform.
    """
    verdicts = [one.checked.verdict for one in hearings]
    verdict = next((one for one in _SEVERITY if one in verdicts), Verdict.UNTESTABLE)
    if not hearings:
        return verdict, _EMULATED_ONLY if emulated else NOTHING_DECIDES
    if verdict is Verdict.UNTESTABLE:
        reasons = [evidence.text for one in hearings for evidence in one.checked.evidence]
        return verdict, _listed(reasons) or NOTHING_DECIDES
    told = [_reason_of(verdict, hearings, labels)]
    told += [
        f"{other.value}{where}"
        for other in (Verdict.CONTRADICTED, Verdict.UNDECIDED, Verdict.CONFIRMED)
        if other is not verdict and (where := _where(other, hearings, labels))
    ]
    return verdict, "; ".join(told)


def _reason_of(verdict: Verdict, hearings: Sequence[Hearing], labels: Mapping[str, str]) -> str:
    where = _where(verdict, hearings, labels)
    evidence = [found for one in hearings if one.checked.verdict is verdict for found in one.checked.evidence]
    if verdict is Verdict.CONFIRMED:
        return f"every figure that decides agrees{where}"
    if verdict is Verdict.CONTRADICTED:
        against = sum(one.agrees is False for one in evidence)
        decided = sum(one.agrees is not None for one in evidence)
        said = "the one figure that decides says" if decided == 1 else f"{against} of {decided} figures that decide say"
        return f"{said} otherwise{where}"
    return f"{_why_undecided(evidence)}{where}"


def _why_undecided(evidence: Sequence[Evidence]) -> str:
    undecided = sum(one.agrees is None and one.measured for one in evidence)
    missing = [one.text for one in evidence if not one.measured]
    if undecided:
        return "one figure leaves it open" if undecided == 1 else f"{undecided} figures leave it open"
    return f"not all of it was measured ({_listed(missing)})" if missing else "no figure decides"


def _where(verdict: Verdict, hearings: Sequence[Hearing], labels: Mapping[str, str]) -> str:
    """`` on Host and gVisor``; nothing where the run was checked as a whole."""
    names = [labels.get(one.arm, one.arm) for one in hearings if one.checked.verdict is verdict and one.arm]
    if not names:
        return ""
    return f" on {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else f" on {names[0]}"


def _listed(reasons: Sequence[str]) -> str:
    known = list(dict.fromkeys(reason.rstrip(".") for reason in reasons if reason))
    more = len(known) - _MOST_REASONS
    return "; ".join(known[:_MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
