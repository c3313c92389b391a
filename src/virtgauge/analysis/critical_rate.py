"""The load at which a device loses a given, tiny share of its frames, from trials none of which may show a loss.

The question and the models are those of PLRsearch (draft-vpolak-bmwg-plrsearch, sections 4 and 5; FD.io CSIT): the mean
number of frames lost a second rises with the load as one of two shapes, each with a maximum receive rate and a spread;
lost frames are counts with that mean; what is not known has a posterior distribution, which is sampled.  Theirs
chooses its loads by the posterior; ours takes the trials as they are.  A shape is the mean of what is beyond a capacity
that has the logistic or the normal distribution.  Theirs are Poisson counts, as where the capacity changes often in a
trial; three families take the place of that (_FAMILIES), as a trial of its own capacity loses much more or less than
its mean.  Each has a share of frames that is lost at any load, or none.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from virtgauge.analysis.estimate import Estimate, Values

REPEATED = 5  # Trials at one load from which on their dispersion is told
_MODELS, _MOVES, _SEED = 400, 10, 20_260_119  # Drawn of each family, and moved so often at each power
_DOUBT = 7.0  # By which a shape's log-evidence is below the other's where it is excluded: about 1 to 1000
_SIZES = (0.1, 0.3, 0.75, 1.0)  # Of a move, in differences of two models
_BOX = (
    (0.0, 2.0),  # Maximum receive rate, of the highest load
    (math.log(1e-8), 0.0),  # Logarithm of the spread, of the highest load
    (math.log(1e-12), math.log(1e-2)),  # Of the ratio that is lost at any load, where any is
    (-math.log(1e3), math.log(1e3)),  # Of variance to mean of frames that bursts lose; below 0 they are lost singly
    (-math.log(1e6), 0.0),  # Of the share of the capacity's variance that lasts for a trial
)
_FAMILIES = _SINGLY, _LASTING, _BURSTS = 3, 4, 5
"""How many of these a model has: frames are lost singly; or the capacity lasts for a trial; or they are lost in bursts,
and what a share of the capacity's variance adds to a trial's is held to be bursts, too."""
_NONE = math.log(1e-100)  # Instead of such a ratio, where no frame is lost at any load
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

    All families are believed alike before the trials, with and without loss at any load, and so are all points of their
    box (_BOX).  The point is the median of the likelier shape's models that have a rate; the interval reaches over both
    shapes' unless one is all but excluded, as trials far above the rate tell shapes apart that differ much at it.
    Models that lose the ratio at any load count as a rate of zero: where the interval holds them, its lower end is
    zero, and the upper one is all that is told.  Where it reaches above the highest load tried, that end would be the
    box's: there is none, and the lower end, at most that load, is told; the median, too, if it is no higher.
    """
    if not any(trial.lost for trial in trials):
        most = 3 / max(sum(trial.sent for trial in trials), 1)
        return f"no trial lost a frame, which excludes a loss ratio above {most:.1e} at these loads and nothing more"
    counted = collections.Counter((trial.rate_pps, trial.duration_s, trial.lost) for trial in trials)
    highest = max(trial.rate_pps for trial in trials)
    counts = np.array([(*key, number) for key, number in counted.items()])
    tail = (1 - confidence) / 2
    evidence, quantiles, backgrounds = [], [], []
    for shape in _SHAPES:
        found = [_posterior(shape, *kind, counts, highest) for kind in itertools.product(_FAMILIES, (True, False))]
        rates = np.concatenate([_solved(shape, models, ratio, highest) for models, _ in found])
        background = np.concatenate([models[:, 2] for models, _ in found])
        likely = np.array([one for _, one in found])
        weight = np.repeat(np.exp(likely - likely.max()), _MODELS)
        order = np.argsort(rates)
        mass = np.cumsum(weight[order])
        without = float(weight[rates == 0].sum())
        ends = tail * mass[-1], (without + mass[-1]) / 2, (1 - tail) * mass[-1]
        quantiles.append(rates[order][np.minimum(np.searchsorted(mass, ends), len(order) - 1)])
        backgrounds.append(float(np.median(background[rates == 0])) if without else _NONE)
        evidence.append(float(special.logsumexp(likely)))
    best = int(np.argmax(evidence))
    believed = [one for one, of_shape in zip(quantiles, evidence, strict=True) if of_shape > evidence[best] - _DOUBT]
    low, high = float(min(one[0] for one in believed)), float(max(one[2] for one in believed))
    if high == 0:
        return f"{math.exp(backgrounds[best]):.1e} of the frames are lost at any load, as where stalls lose them"
    point = min(float(quantiles[best][1]), high)
    if high > highest:
        method = "no upper end: it lies above the highest load tried"
        within = point if point <= highest else None
        return Estimate(within, min(low, highest), None, confidence, len(trials), "frames/s", method)
    return Estimate(point, low, high, confidence, len(trials), "frames/s", "posterior of two loss models")


def _posterior(shape: _Shape, family: int, at_any: bool, counts: Values, highest: float) -> tuple[Values, float]:
    """Models drawn from the posterior, and the logarithm of the evidence for their family, by sequential Monte Carlo.

    The prior's models are weighed by ever higher powers of the likelihood, and at each drawn anew and moved along
    differences of two others (Del Moral, Doucet & Jasra 2006; ter Braak 2006).  A row of the counts is a load,
    seconds, frames lost, and how many trials had them.
    """
    rng = np.random.default_rng(_SEED)
    box = np.array(_BOX[:family])
    box[0] *= highest
    box[1] += math.log(highest)
    box[2] = box[2] if at_any else _NONE
    models = rng.uniform(box[:, 0], box[:, 1], (_MODELS, len(box)))
    likely = _log_likelihood(shape, models, counts)
    power = evidence = 0.0
    while power < 1:
        step = _step(likely, 1 - power)
        power = power + step if step < 1 - power else 1.0
        weight = np.exp(step * (likely - likely.max()))
        evidence += math.log(weight.mean()) + step * float(likely.max())
        places = (rng.random() + np.arange(_MODELS)) / _MODELS
        drawn = np.minimum(np.searchsorted(np.cumsum(weight) / weight.sum(), places), _MODELS - 1)
        models, likely = models[drawn], likely[drawn]
        for _ in range(_MOVES):
            first, second = rng.integers(_MODELS, size=(2, _MODELS))
            size = rng.choice(_SIZES, (_MODELS, 1)) * (1 + 0.02 * rng.normal(size=models.shape))
            axes = (rng.random(models.shape) < 0.5) | (rng.random((_MODELS, 1)) < 0.5)  # some, or all
            moved = models + size * axes * (models[first] - models[second])
            inside = np.all((moved >= box[:, 0]) & (moved <= box[:, 1]), axis=1)
            then = np.full(_MODELS, -np.inf)
            then[inside] = _log_likelihood(shape, moved[inside], counts)
            taken = np.log(rng.random(_MODELS)) < power * (then - likely)
            models[taken], likely[taken] = moved[taken], then[taken]
    return models, evidence


def _step(likely: Values, longest: float) -> float:
    """The longest step of the power that leaves half of the models, by their effective number."""

    def enough(step: float) -> bool:
        weight = np.exp(step * (likely - likely.max()))
        return bool(weight.sum() ** 2 >= np.sum(weight**2) * _MODELS / 2)

    low, high = (longest, longest) if enough(longest) else (0.0, longest)
    for _ in range(40):
        low, high = (low, (low + high) / 2) if not enough((low + high) / 2) else ((low + high) / 2, high)
    return (low + high) / 2


def _log_likelihood(shape: _Shape, models: Values, counts: Values) -> Values:
    """Log-likelihood of each model, given the frames that each trial lost."""
    load, at = np.unique(counts[:, 0], return_inverse=True)
    seconds, lost, number = counts[:, 1], counts[:, 2], counts[:, 3]
    mrr, spread, background = models[:, :1], np.exp(models[:, 1:2]), np.exp(models[:, 2:3])
    family, mean = models.shape[1], background * load
    bursts = np.ones_like(mrr) if family == _SINGLY else np.exp(np.maximum(models[:, 3:4], 0.0))
    if family != _LASTING:
        beyond = np.exp(shape.log_mean(load, mrr, spread))
        excess = np.maximum(spread * shape.second((load - mrr) / spread) - beyond, 0.0)
        mean = mean + beyond
        excess *= (np.exp(models[:, 4:5]) if family == _BURSTS else 0.0) * beyond / mean
        return np.asarray(_log_bursts(lost, mean[:, at] * seconds, bursts + excess[:, at] * seconds) @ number)
    wide = np.hypot(spread, np.sqrt(lost) / seconds)  # by the variance of Poisson counts, too
    some = shape.log_density((counts[:, 0] - lost / seconds - mrr) / wide) - np.log(wide * seconds)
    none = shape.log_above((load - mrr) / spread)[:, at] + _log_bursts(lost, mean[:, at] * seconds, bursts)
    return np.asarray(np.where(lost > 0, np.logaddexp(some, none), none) @ number)


def _log_bursts(lost: Values, mean: Values, dispersed: Values) -> Values:
    """Of counts in bursts of geometric sizes (Pólya and Aeppli), by their mean and their ratio of variance to mean.

    By the saddlepoint approximation (Butler 2007, section 1.1); singly lost frames are Poisson counts.
    """
    again = (dispersed - 1) / (dispersed + 1)  # share of lost frames that another of their burst follows
    bursts = np.maximum(mean, 1e-300) * (1 - again)
    part, some = bursts * (1 - again), np.maximum(lost, 1.0)
    tilt = 2 * some / (2 * some * again + part + np.sqrt(part**2 + 4 * some * again * part))
    left = np.sqrt(part * tilt / some)
    likely = some * left - some * np.log(tilt) - np.log(2 * math.pi * some * (2 - left) / left) / 2
    bessel = np.clip(2 * np.sqrt(some * part / np.maximum(again, 1e-12)), 1e-100, 1e6)  # exact where bursts are few
    likely += np.log(special.ive(1, bessel) * np.sqrt(2 * math.pi * bessel))
    return np.asarray(np.where(lost > 0, likely, 0.0) - bursts)


def _log_minus(more: Values, less: Values) -> Values:
    with np.errstate(invalid="ignore", divide="ignore"):
        return more + np.log1p(-np.exp(np.minimum(less - more, -1e-16)))


def _log_softplus(x: Values) -> Values:
    return np.where(x < -30, x, np.log(np.logaddexp(0, np.maximum(x, -30))))


def _log_stretch(load: Values, mrr: Values, spread: Values) -> Values:
    """Logarithm of the frames lost a second: the logistic curve, integrated from no load to this one."""
    return np.log(spread) + _log_minus(_log_softplus((load - mrr) / spread), _log_softplus(-mrr / spread))


def _log_tail(x: Values) -> Values:
    """Logarithm of the integral of erfc(−t)/2 from −∞ to x."""
    below, root = np.maximum(-x, 0.0), 1 / math.sqrt(math.pi)
    near = np.minimum(below, _FAR)
    left = np.where(below > _FAR, root / (2 * np.maximum(below, 1.0) ** 2), root - near * special.erfcx(near))
    right = np.maximum(x, 0.0)
    above = right * special.erfc(-right) + root * np.exp(-(right**2))
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(x < 0, np.log(left) - below**2, np.log(above)) - math.log(2))


def _log_erf(load: Values, mrr: Values, spread: Values) -> Values:
    """The logarithm of the loss with the normal distribution's curve."""
    return np.log(spread) + _log_minus(_log_tail((load - mrr) / spread), _log_tail(-mrr / spread))


def _second_logistic(x: Values) -> Values:
    """Mean square to mean of what is beyond a capacity, in spreads, where capacities have the logistic distribution."""
    below = np.maximum(-np.abs(x), -30.0)
    polylog = -special.spence(1 + np.exp(below))  # −Li₂(−eˣ)
    square = 2 * np.where(x > 0, math.pi**2 / 6 + x**2 / 2 - polylog, polylog)
    return np.asarray(square / np.exp(_log_softplus(np.maximum(x, -30.0))))


def _second_normal(x: Values) -> Values:
    """What :func:`_second_logistic` is of the logistic distribution, of the normal one."""
    below, above = np.clip(x, -20.0, 0.0), np.maximum(x, 0.0)
    root = 1 / math.sqrt(math.pi)
    left = ((below**2 + 0.5) * special.erfcx(-below) + below * root) / (below * special.erfcx(-below) + root)
    bell = root * np.exp(-(above**2))
    right = ((above**2 + 0.5) * special.erfc(-above) + above * bell) / (above * special.erfc(-above) + bell)
    return np.asarray(np.where(x < 0, left, right))


@dataclasses.dataclass(frozen=True)
class _Shape:
    """How a capacity is distributed, in spreads about the maximum receive rate."""

    log_mean: Callable[[Values, Values, Values], Values]  # of what is beyond it
    second: Callable[[Values], Values]  # mean square to mean of that
    log_density: Callable[[Values], Values]
    log_above: Callable[[Values], Values]  # that it is above


_SHAPES = (
    _Shape(
        _log_stretch,
        _second_logistic,
        lambda x: -np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))),
        lambda x: special.log_expit(-x),
    ),
    _Shape(
        _log_erf,
        _second_normal,
        lambda x: -(x**2) - math.log(math.pi) / 2,
        lambda x: special.log_ndtr(-x * math.sqrt(2)),
    ),
)


def _solved(shape: _Shape, models: Values, ratio: float, highest: float) -> Values:
    """By bisection, the load at which each of these models loses the ratio; zero where it loses that at any load."""
    mrr, spread, background = models[:, 0], np.exp(models[:, 1]), np.exp(models[:, 2])
    left = np.log(np.maximum(ratio - background, 1e-300))
    low, high = np.full_like(mrr, math.log(1e-6 * highest)), np.full_like(mrr, math.log(4 * highest))
    for _ in range(50):
        middle = (low + high) / 2
        more = shape.log_mean(np.exp(middle), mrr, spread) > left + middle
        low, high = np.where(more, low, middle), np.where(more, middle, high)
    return np.where(background < ratio, np.exp((low + high) / 2), 0.0)
