"""The load at which a device loses a given, tiny share of its frames, from trials none of which may show a loss.

The question and the models are those of PLRsearch (draft-ietf-bmwg-plrsearch, sections 4 and 5; FD.io CSIT): the mean
number of frames lost a second rises with the load as one of two shapes, each with a maximum receive rate and a spread;
lost frames are counts with that mean; what is not known has a posterior distribution.  Theirs chooses its loads by the
posterior and samples it; ours takes the trials as they are and adds it up on a grid around its maximum.

Frames are lost in bursts, of which Poisson counts know nothing: repeated trials at one load tell by how much their
counts are more dispersed, and the likelihood is flattened by that (quasi-likelihood; McCullagh and Nelder 1989, ch. 9).
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from virtgauge.analysis.estimate import Estimate

Floats = npt.NDArray[np.float64]
_GRID, _DEVIATIONS = 121, 8.0  # Points along either axis, and how far they reach
_WIDEST = 20.0  # Log-likelihoods below the best by more than this have no mass
_LEAST_LOG_SPREAD = math.log(1e-6)  # Of the highest load, as its logarithm
REPEATED = 5  # Trials at one load from which on their dispersion is told
_MISFIT = 50.0
"""A load's part of Pearson's χ², above which at two loads a shape is not believed (ours); at one it may be a burst."""
_FAR = 1e4  # From here on the tail of the erf shape is its first asymptotic term


@dataclasses.dataclass(frozen=True)
class LossCount:
    """One trial."""

    rate_pps: float
    duration_s: float
    sent: int
    lost: int


def dispersion(trials: Sequence[LossCount]) -> float:
    """Variance to mean of the frames lost in trials of one load, the largest of all loads; at least 1."""
    by_load: defaultdict[tuple[float, float], list[int]] = defaultdict(list)
    for trial in trials:
        by_load[trial.rate_pps, trial.duration_s].append(trial.lost)
    repeated = [lost for lost in by_load.values() if len(lost) >= REPEATED and any(lost)]
    return max([1.0, *(float(np.var(lost, ddof=1) / np.mean(lost)) for lost in repeated)])


def loss_ratio(trials: Sequence[LossCount], confidence: float) -> Estimate:
    """Of trials at one load, with Garwood's interval of a Poisson mean on counts shrunk by their dispersion.

    Of few trials a dispersion is itself uncertain, for which Student's t is wider than the normal distribution.
    """
    lost, sent, phi = sum(t.lost for t in trials), sum(t.sent for t in trials), dispersion(trials)
    tail = (1 - confidence) / 2
    if phi > 1:
        phi *= float(special.stdtrit(len(trials) - 1, tail) / special.ndtri(tail)) ** 2
    low = special.chdtri(2 * lost / phi, 1 - tail) / 2 * phi if lost else 0.0
    high = special.chdtri(2 * (lost / phi + 1), tail) / 2 * phi
    ends = float(low) / sent, float(high) / sent
    return Estimate(lost / sent, *ends, confidence, len(trials), "ratio", "Poisson, widened by the losses' dispersion")


def critical_rate(trials: Sequence[LossCount], ratio: float, confidence: float) -> Estimate | str:
    """The load in frames a second that loses this ratio in the long run; why there is none, where it cannot be told.

    Both shapes are believed alike before the trials, the receive rate uniformly up to twice the highest load,
    the spread uniformly in its logarithm.  The point is the posterior's median.
    """
    if not any(trial.lost for trial in trials):
        most = 3 / max(sum(trial.sent for trial in trials), 1)
        return f"no trial lost a frame, which excludes a loss ratio above {most:.1e} at these loads and nothing more"
    together: dict[float, list[float]] = {}  # counts of one load have the mean of their time together
    for trial in trials:
        seconds_lost = together.setdefault(trial.rate_pps, [0.0, 0.0])
        seconds_lost[0] += trial.duration_s
        seconds_lost[1] += trial.lost
    loads = np.array([*together])
    seconds, lost = np.array([*together.values()]).T
    phi = dispersion(trials)
    weights, rates, misfits = [], [], []
    highest = float(loads.max())
    for shape in (_log_stretch, _log_erf):

        def fit(mrr: Floats, log_spread: Floats, shape: Shape = shape) -> Floats:
            """Log-posterior of models, up to a constant."""
            mean = np.log(seconds) + shape(loads, mrr[:, None], np.exp(log_spread)[:, None])
            inside = (mrr > 0) & (mrr < 2 * highest) & (log_spread > _LEAST_LOG_SPREAD + math.log(highest))
            inside &= log_spread < math.log(highest)
            likely = np.sum(lost * mean - np.exp(np.minimum(mean, 700)), axis=1) / phi
            return np.where(inside & np.isfinite(likely), likely, -1e300)

        mrr, log_spread, cell = _grid_around_best(fit, highest)
        density = fit(mrr, log_spread)
        kept = density > density.max() - _WIDEST
        best = int(np.argmax(density))
        mean = seconds * np.exp(shape(loads, mrr[best], np.exp(log_spread[best])))
        misfits.append(sorted(((lost - mean) ** 2 / np.maximum(phi * mean, 1.0)).tolist())[-2:][0])
        weights.append(density[kept] + math.log(cell))
        rates.append(_solved(shape, ratio, mrr[kept], np.exp(log_spread[kept]), highest))
    if min(misfits) > _MISFIT:
        return "the losses do not rise with the load as either model has it, as where stalls lose frames at any load"
    weight = np.concatenate(weights)
    found = np.concatenate(rates)
    order = np.argsort(found)
    mass = np.cumsum(np.exp(weight[order] - weight.max()))
    tail = (1 - confidence) / 2
    shares = (0.5, tail, 1 - tail)
    point, low, high = (float(found[order][np.searchsorted(mass, share * mass[-1])]) for share in shares)
    return Estimate(point, low, high, confidence, len(trials), "frames/s", "posterior of two loss models")


Shape = Callable[[Floats, Floats, Floats], Floats]


def _grid_around_best(fit: Callable[[Floats, Floats], Floats], highest: float) -> tuple[Floats, Floats, float]:
    """Points of a grid along the axes of the posterior at its maximum, some of its standard deviations to every side.

    Returns receive rates, logarithms of spreads, and the area that each point stands for.
    """
    from scipy import optimize  # half a second, which all but soaks spare

    ends = math.log(highest) + _LEAST_LOG_SPREAD, math.log(highest)
    coarse = [one.ravel() for one in np.meshgrid(np.linspace(0.01, 1.99, 100) * highest, np.linspace(*ends, 100)[1:-1])]
    starts = np.argsort(fit(*coarse))[-5:]

    def loss(at: Any) -> float:
        return -float(fit(np.array([at[0] * highest]), np.array([at[1]]))[0])

    options: Any = {"xatol": 1e-9, "fatol": 1e-6, "maxiter": 2000}
    tried = [
        optimize.minimize(
            loss, np.array((coarse[0][at] / highest, coarse[1][at])), method="Nelder-Mead", options=options
        )
        for at in starts
    ]
    best = min(tried, key=lambda one: float(one.fun)).x
    curvature = _hessian(loss, best)
    size, axes = np.linalg.eigh(curvature)
    scaled = axes / np.sqrt(np.maximum(size, 1.0))  # no wider than the prior, which is about one wide
    steps = np.linspace(-_DEVIATIONS, _DEVIATIONS, _GRID)
    first, second = (one.ravel() for one in np.meshgrid(steps, steps))
    points = best[:, None] + scaled @ np.vstack((first, second))
    cell = float(abs(np.linalg.det(scaled))) * (steps[1] - steps[0]) ** 2
    return points[0] * highest, points[1], cell


def _hessian(function: Callable[[Floats], float], at: Floats) -> Floats:
    """By differences over which the function changes by about one."""
    steps = []
    for axis in np.eye(2):
        step = 1e-7
        while step < 0.1 and abs(function(at + step * axis) - function(at)) < 1:
            step *= 2
        steps.append(step)

    def moved(first: float, second: float) -> float:
        return function(at + np.array((first * steps[0], second * steps[1])))

    here = function(at)
    both = (moved(1, 1) - moved(1, -1) - moved(-1, 1) + moved(-1, -1)) / (4 * steps[0] * steps[1])
    own = [
        (moved(1, 0) - 2 * here + moved(-1, 0)) / steps[0] ** 2,
        (moved(0, 1) - 2 * here + moved(0, -1)) / steps[1] ** 2,
    ]
    return np.array(((own[0], both), (both, own[1])))


def _log_minus(more: Floats, less: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return more + np.log1p(-np.exp(np.minimum(less - more, -1e-16)))


def _log_softplus(x: Floats) -> Floats:
    return np.where(x < -30, x, np.log(np.logaddexp(0, np.maximum(x, -30))))


def _log_stretch(load: Floats, mrr: Floats, spread: Floats) -> Floats:
    """Logarithm of the frames lost a second: the logistic curve, integrated from no load to this one."""
    return np.log(spread) + _log_minus(_log_softplus((load - mrr) / spread), _log_softplus(-mrr / spread))


def _log_tail(x: Floats) -> Floats:
    """Logarithm of the integral of erfc(−t)/2 from −∞ to x."""
    below, root = np.maximum(-x, 0.0), 1 / math.sqrt(math.pi)
    near = np.minimum(below, _FAR)
    left = np.where(below > _FAR, root / (2 * np.maximum(below, 1.0) ** 2), root - near * special.erfcx(near))
    right = np.maximum(x, 0.0)
    above = right * special.erfc(-right) + root * np.exp(-(right**2))
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(x < 0, np.log(left) - below**2, np.log(above)) - math.log(2))


def _log_erf(load: Floats, mrr: Floats, spread: Floats) -> Floats:
    """The same with the normal distribution's curve."""
    return np.log(spread) + _log_minus(_log_tail((load - mrr) / spread), _log_tail(-mrr / spread))


def _solved(shape: Shape, ratio: float, mrr: Floats, spread: Floats, highest: float) -> Floats:
    """By bisection, the load at which each of these models loses the ratio."""
    low, high = np.full_like(mrr, math.log(1e-6 * highest)), np.full_like(mrr, math.log(4 * highest))
    for _ in range(50):
        middle = (low + high) / 2
        more = shape(np.exp(middle), mrr, spread) > math.log(ratio) + middle
        low, high = np.where(more, low, middle), np.where(more, middle, high)
    return np.exp((low + high) / 2)
