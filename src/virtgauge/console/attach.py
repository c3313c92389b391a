"""``virtgauge attach``: prepare a machine whose agent shall call this one."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from virtgauge.console.options import makeable_folder
from virtgauge.errors import UsageError, VirtgaugeError

app = typer.Typer(
    name="attach",
    help="Machines that exist already: prepare one that cannot be reached by ssh and calls this machine instead.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_EXAMPLES = (
    "Example: virtgauge attach prepare --listen 192.0.2.1:7443\n\n"
    "Example: virtgauge attach prepare --listen 0.0.0.0:7443 --advertise 203.0.113.7:17443 --hours 72 --out esxi-guest"
)


@app.callback()
def _room() -> None:
    """Machines that exist already."""


@app.command(epilog=_EXAMPLES)
def prepare(
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS:PORT", help="Address and port of this machine: 192.0.2.1:7443.", show_default=False
        ),
    ],
    advertise: Annotated[
        str | None, typer.Option(help="What the machine dials, where that is another address (a NAT, or 0.0.0.0).")
    ] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 31, help="How long the certificates are valid.")] = 24,
    out: Annotated[Path, typer.Option(callback=makeable_folder, help="A new folder for the files.")] = Path(
        "virtgauge-attach"
    ),
) -> None:
    """Make certificates for runs to come, and one file that starts the agent on the machine.

    A run makes its own certificates and says what to start where; this is for a machine that must have its part
    before: an image, a machine that somebody else looks after. Whoever has the file can take the machine's place: keep
    it secret.
    """
    from virtgauge.agent.binary import find_agent
    from virtgauge.platforms.attached.credentials import Credentials
    from virtgauge.platforms.attached.dial_in import IDENTITY_NAME, write_kit
    from virtgauge.platforms.attached.settings import Endpoint

    ends = {}
    for option, text in (("--listen", listen), ("--advertise", advertise or listen)):
        try:
            ends[option] = Endpoint.parse(text)
        except ValueError as error:
            raise UsageError(f"{option} {text}: {error}", f"virtgauge attach prepare {option} 192.0.2.1:7443") from None
    dialled = ends["--advertise"]
    if dialled.everywhere:
        raise UsageError(f"{dialled} cannot be dialled", "give --advertise: what the machine dials")
    agent = find_agent()
    credentials = Credentials.make(datetime.timedelta(hours=hours))
    try:
        out.mkdir(mode=0o700, parents=True)
        credentials.save(out / "credentials.json")
        kit = write_kit(out, agent, credentials, dialled)
    except FileExistsError:
        raise UsageError(f"{out} is there already", "name another folder by --out, or remove it") from None
    except OSError as error:
        raise VirtgaugeError(f"{out} cannot be written: {error.strerror}", "name another folder by --out") from error
    expires = datetime.datetime.fromtimestamp(credentials.expires, datetime.UTC)
    print(
        f"""{kit}: copy it to the machine and run `sh {kit.name}` there; it calls {dialled} until a run answers
{out / IDENTITY_NAME}: for a machine that has this agent already:
    virtgauge-agent --dial {dialled} --identity {IDENTITY_NAME}
{out / "credentials.json"}: stays here; in the plan:

[[platform]]
name = "machine"
kind = "attached"
via = "dial-in"
listen = "{ends["--listen"]}"
{f'advertise = "{dialled}"' + chr(10) if advertise else ""}credentials = "{(out / "credentials.json").resolve()}"

All three are secret, and of no use after {expires:%Y-%m-%d %H:%M} UTC."""
    )
