"""What the storage paper concludes, each conclusion with the test that decides it.

The conclusions are data (``storage_claims.toml``).  The same tests are made on the paper's own Tables IV and V and on a
run's figures.  A figure has a place: database, operation, server (``physical``, ``virtual``) and clients (``1``,
``many``); a test names levels of some and goes through every combination, with all levels of what it does not name.
"""

from __future__ import annotations

import functools
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from virtgauge.reference.claim_file import Bounded, read_claims

Database = Literal["Cassandra", "MongoDB", "PostgreSQL"]
Operation = Literal["single-write", "single-read", "multi-write", "multi-read"]
Server = Literal["physical", "virtual"]
Clients = Literal["1", "many"]
Factor = Literal["database", "operation", "server", "clients"]


class _Test(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    databases: tuple[Database, ...] = get_args(Database)
    operations: tuple[Operation, ...] = get_args(Operation)
    servers: tuple[Server, ...] = get_args(Server)
    clients: tuple[Clients, ...] = get_args(Clients)


class Order(_Test):
    """The databases are in this order, the fastest first; ``first`` asks only that the first one is the fastest."""

    kind: Literal["order"]
    first: bool = False


class Ratio(_Test, Bounded):
    """The ratio of the figure at one level of a factor to that at another lies within bounds.

    A bound of 1 is never reached.  ``count``: in every place, in more than half of them, or in any.
    """

    kind: Literal["ratio"]
    factor: Factor
    of: str
    to: str
    count: Literal["all", "most", "any"] = "all"


class Spread(_Test, Bounded):
    """Of one operation the fastest database's figure over the slowest's lies within bounds.

    With ``than``, that spread over the one of another operation.
    """

    kind: Literal["spread"]
    than: Operation | None = None


class Alike(_Test):
    """A factor changes the figures of all databases by about the same: the changes differ by no more than that."""

    kind: Literal["alike"]
    factor: Literal["server", "clients"]
    at_most: float


class Effect(_Test):
    """A factor changes one database more than each of the others, up or down.

    ``smaller``: less.  Compared are the means of the logarithms' sizes over all places.
    """

    kind: Literal["effect"]
    factor: Literal["server", "clients"]
    database: Database
    smaller: bool = False


class Peak(_Test):
    """The figure rises up to so many clients, and falls beyond."""

    kind: Literal["peak"]
    at_clients: int


class NoSingleBest(_Test):
    """No database is the fastest in all of these operations."""

    kind: Literal["no-single-best"]


class Index(_Test, Bounded):
    """The figure with an index over the one without lies within bounds, at one client."""

    kind: Literal["index"]


class IndexInteraction(_Test):
    """The server matters more with an index than without."""

    kind: Literal["index-interaction"]


class QuickFlushes(_Test, Bounded):
    """The figure of a flushing database where flushes complete at once, over the one on a turning disk."""

    kind: Literal["quick-flushes"]


class Untestable(BaseModel):
    """What no figure of the paper's or ours decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["untestable"]
    reason: str


Test = Annotated[
    Order
    | Ratio
    | Spread
    | Alike
    | Effect
    | Peak
    | NoSingleBest
    | Index
    | IndexInteraction
    | QuickFlushes
    | Untestable,
    Field(discriminator="kind"),
]


class Claim(BaseModel):
    """One conclusion.

    Attributes:
        name: short and unique.
        place: where the paper says it.
        text: what it says, in its words or close to them.
        note: how it is judged, and what is ours in that.
        ranking: it compares what databases write, so that it is tested once more with all at one level of durability.
        tests: all must agree.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    place: str
    text: str
    note: str = ""
    ranking: bool = False
    tests: Annotated[tuple[Test, ...], Field(min_length=1)]


@functools.cache
def storage_claims() -> tuple[Claim, ...]:
    """Every conclusion, in the paper's order."""
    return read_claims("storage_claims.toml", Claim)
