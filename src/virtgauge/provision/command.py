"""``virtgauge provision``: fetch what guests need, into the user's cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from virtgauge.errors import ExitCode
from virtgauge.provision.boot_loader import provision_boot_loader
from virtgauge.provision.databases.catalogue import DUCKDB, SERVERS
from virtgauge.provision.databases.product import Product
from virtgauge.provision.ganesha import provision_ganesha
from virtgauge.provision.gvisor import provision_runsc
from virtgauge.provision.kernel import provision_kernel
from virtgauge.provision.object_store import OBJECT_STORE
from virtgauge.provision.packages import Purpose, provision_packages
from virtgauge.provision.progress import Outcome, State, showing
from virtgauge.provision.xen import provision_xen

app = typer.Typer(
    name="provision",
    help="Fetch what guests need: Debian packages, a guest kernel, gVisor, an NFS server. Repeating it costs nothing.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Purposes = Annotated[
    list[Purpose] | None,
    typer.Option("--for", help="What to install packages for; repeat it for several.  [default: guests]"),
]


def _show(outcomes: Iterable[Outcome]) -> bool:
    """Print outcomes, one line each; returns whether nothing was skipped."""
    whole = True
    for outcome in outcomes:
        print(outcome.line(), flush=True)
        whole = whole and outcome.state is not State.SKIPPED
    return whole


def _packages(purposes: Iterable[Purpose]) -> bool:
    with showing("packages") as progress:
        outcomes = provision_packages(progress, purposes)
    return _show(outcomes)


def _kernel() -> bool:
    with showing("kernel") as progress:
        outcome = provision_kernel(progress)
    return _show([outcome])


def _gvisor() -> bool:
    with showing("gvisor") as progress:
        outcome = provision_runsc(progress)
    return _show([outcome])


def _ganesha() -> bool:
    with showing("ganesha") as progress:
        outcome = provision_ganesha(progress)
    return _show([outcome])


def _boot_loader() -> bool:
    with showing("image") as progress:
        outcome = provision_boot_loader(progress)
    return _show([outcome])


def _xen() -> bool:
    with showing("xen") as progress:
        outcome = provision_xen(progress)
    return _show([outcome])


def _object_store() -> bool:
    with showing(OBJECT_STORE.part) as progress:
        outcome = OBJECT_STORE.provision(progress)
    return _show([outcome])


def _databases(products: Iterable[Product]) -> bool:
    outcomes = []
    for product in products:
        with showing(product.name) as progress:
            outcomes.append(product.provision(progress))
    return _show(outcomes)


def _end(whole: bool) -> None:
    if not whole:
        raise typer.Exit(ExitCode.UNAVAILABLE)


@app.command(epilog="Example: [bold]sudo virtgauge provision packages[/bold]")
def packages(
    purposes: Purposes = None,
) -> None:
    """Install the Debian packages that are missing (as root), or name them and the command."""
    _end(_packages(purposes or [Purpose.GUESTS]))


@app.command(epilog="Example: [bold]virtgauge provision kernel[/bold]")
def kernel() -> None:
    """Download Debian's kernel and extract it into the cache, for virtual machines to boot."""
    _end(_kernel())


@app.command(epilog="Example: [bold]virtgauge provision gvisor[/bold]")
def gvisor() -> None:
    """Build gVisor's runsc at the pinned version, with Go."""
    _end(_gvisor())


@app.command(epilog="Example: [bold]virtgauge provision ganesha[/bold]")
def ganesha() -> None:
    """Download Debian's NFS server nfs-ganesha and extract it into the cache, for the I/O-bound load."""
    _end(_ganesha())


@app.command(epilog="Example: [bold]virtgauge provision image[/bold], then [bold]virtgauge image build[/bold]")
def image() -> None:
    """Download Debian's boot loader and its tools and extract them into the cache, for `virtgauge image build`."""
    _end(_boot_loader())


@app.command(epilog="Example: [bold]virtgauge provision xen[/bold]")
def xen() -> None:
    """Download Debian's Xen and extract it into the cache, for a nested lab in which the platform xen can be tried."""
    _end(_xen())


@app.command(epilog="Example: [bold]sudo virtgauge provision databases[/bold]")
def databases() -> None:
    """Fetch the databases of the storage suite; PostgreSQL, Java and Maven are installed where they are missing."""
    installed = _packages([Purpose.DATABASES])
    _end(_databases([DUCKDB, *SERVERS]) and installed)


@app.command("all", epilog="Example: [bold]virtgauge provision all[/bold], then [bold]virtgauge doctor[/bold]")
def everything(
    purposes: Purposes = None,
) -> None:
    """All of the above, the databases' servers only --for databases. What cannot be had is said and skipped."""
    purposes = purposes or [Purpose.GUESTS]
    _packages(purposes)
    _kernel()
    _gvisor()
    _ganesha()
    _boot_loader()
    if Purpose.LABS in purposes:
        _xen()
        _object_store()
    _databases([DUCKDB, *(SERVERS if Purpose.DATABASES in purposes else ())])
