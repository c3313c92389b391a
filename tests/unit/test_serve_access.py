"""Who may look at the server of runs: the token, where it comes from, and the command's refusals."""

import socket

import pytest
from typer.testing import CliRunner

from virtgauge import cli
from virtgauge.errors import UsageError
from virtgauge.serve.access import SHORTEST_TOKEN, TOKEN_VARIABLE, access_for

LONG = "x" * SHORTEST_TOKEN


@pytest.fixture(autouse=True)
def no_token_given(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.3.2.1", "::1"])
def test_on_loopback_nobody_is_asked(address):
    access, drawn = access_for(address, None, ())
    assert access.token is None
    assert not drawn


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1"])
def test_beyond_loopback_a_token_is_drawn_that_is_never_the_same(address):
    tokens = {access_for(address, None, ())[0].token for _ in range(20)}
    assert len(tokens) == 20
    assert min(len(token) for token in tokens) >= 32
    assert access_for(address, None, ())[1]


def test_a_token_of_file_or_environment_is_asked_for_on_loopback_too(tmp_path, monkeypatch):
    (tmp_path / "token").write_text(LONG + "-of-file\n")
    monkeypatch.setenv(TOKEN_VARIABLE, LONG + "-of-environment")
    by_file, drawn = access_for("127.0.0.1", tmp_path / "token", ())
    assert (by_file.token, drawn) == (LONG + "-of-file", False)
    assert access_for("0.0.0.0", None, ())[0].token == LONG + "-of-environment"
    assert by_file.accepts_token(f"{LONG}-of-file".encode())
    assert not by_file.accepts_session(None)
    assert not by_file.accepts_session(by_file.token)
    assert by_file.accepts_session(by_file.session)


@pytest.mark.parametrize("token", ["", "short", "x" * (SHORTEST_TOKEN - 1), LONG + "\x00", LONG + "ä"])
def test_a_token_that_is_no_protection_is_refused(tmp_path, token):
    (tmp_path / "token").write_text(token)
    with pytest.raises(UsageError, match="at least 16 printable ASCII"):
        access_for("0.0.0.0", tmp_path / "token", ())


def test_names_are_those_of_the_machine_and_those_allowed():
    access, _ = access_for("0.0.0.0", None, ["Lab.example"])
    assert access.knows_host("lab.example:8000")
    assert access.knows_host(socket.gethostname().lower())
    assert not access.knows_host("other.example")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing"], "missing is no folder"),
        (["--address", "lab.example"], "not an address of this machine"),
        (["--address", "203.0.113.9"], "cannot listen at 203.0.113.9"),
        (["--token-file", "missing"], "--token-file missing cannot be read"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.nice", lambda _: 0)  # of this process, whose other tests come as well
    result = CliRunner().invoke(cli.app, ["serve", *arguments])
    assert isinstance(result.exception, UsageError)
    assert words in result.exception.message
    assert result.exception.remedy
    assert result.stdout == ""
