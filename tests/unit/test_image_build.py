"""Building and inspecting as the command does: whole files or none, and errors that say what to do."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import image_parts as parts
import pytest
from typer.testing import CliRunner

from virtgauge.agent import AgentBinary
from virtgauge.cli import app
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.image import build as building
from virtgauge.image import formats, inspection
from virtgauge.image.build import Ingredients, build, find_ingredients
from virtgauge.image.contents import DialChannel, SerialChannel
from virtgauge.image.formats import Format, format_of
from virtgauge.provision.progress import silence

pytestmark = pytest.mark.slow


@pytest.fixture
def ingredients(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Ingredients:
    folder = tmp_path / "parts"
    folder.mkdir()
    made = Ingredients(parts.kernel(folder), parts.agent(folder), parts.boot_loader())
    monkeypatch.setattr(inspection, "find_agent", lambda: made.agent)
    return made


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("format", Format)
def test_what_is_built_is_found_whole_again(ingredients: Ingredients, out: Path, format: Format) -> None:
    built = build(ingredients, format, out / "image", silence)
    assert built.size == (out / "image").stat().st_size < 64_000_000
    assert os.listdir(out) == ["image"]
    found = inspection.inspect(out / "image")
    assert (found.format, found.record, found.problems) == (format, built.contents.record, ())


def test_an_image_replaces_the_one_before_it(ingredients: Ingredients, out: Path) -> None:
    (out / "image.iso").write_bytes(b"before")
    build(ingredients, Format.ISO, out / "image.iso", silence)
    assert inspection.inspect(out / "image.iso").problems == ()


def test_a_file_system_without_nameless_files_gets_the_image_all_the_same(
    ingredients: Ingredients, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # opening a folder for writing: the answer of such a one
    build(ingredients, Format.RAW, out / "image.raw", silence)
    assert os.listdir(out) == ["image.raw"]
    assert inspection.inspect(out / "image.raw").problems == ()


def test_another_kernel_in_the_image_is_a_problem(ingredients: Ingredients, out: Path) -> None:
    image = out / "image.raw"
    build(ingredients, Format.RAW, image, silence)
    content = image.read_bytes()
    image.write_bytes(content.replace(b"kernel" * 1000, b"terror" * 1000))
    (problem,) = inspection.inspect(image).problems
    assert "not those that it was made of" in problem


def test_an_agent_of_another_build_is_a_problem(
    ingredients: Ingredients, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(ingredients, Format.ISO, out / "image.iso", silence)
    another = AgentBinary(ingredients.agent.path, "b" * 64)
    monkeypatch.setattr(inspection, "find_agent", lambda: another)
    (problem,) = inspection.inspect(out / "image.iso").problems
    assert "another build" in problem


def test_a_disk_of_somebody_else_is_refused(out: Path, private_state: Path) -> None:
    (out / "empty.raw").write_bytes(bytes(4 << 20))
    with pytest.raises(UsageError, match="none of virtgauge's"):
        inspection.inspect(out / "empty.raw")


def test_a_damaged_ova_is_told(ingredients: Ingredients, out: Path) -> None:
    image = out / "image.ova"
    build(ingredients, Format.OVA, image, silence)
    content = bytearray(image.read_bytes())
    content[len(content) // 2] ^= 1
    image.write_bytes(content)
    with pytest.raises(VirtgaugeError, match="not what its manifest says"):
        inspection.inspect(image)


@pytest.fixture
def full_disk(out: Path, root: None) -> Iterator[Path]:
    """A folder on a disk that ends after 4 MiB."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(out)], check=True)
    try:
        yield out
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_a_disk_without_room_is_told_before_anything_is_built(ingredients: Ingredients, full_disk: Path) -> None:
    with pytest.raises(VirtgaugeError, match=f"no space left on the disk of {full_disk}") as caught:
        build(ingredients, Format.RAW, full_disk / "image.raw", silence)
    assert "XDG_CACHE_HOME" in str(caught.value.remedy)
    assert os.listdir(full_disk) == []


def test_a_disk_that_fills_up_meanwhile_has_nothing_half_written(
    ingredients: Ingredients, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (full_disk / "image.raw").write_bytes(b"before")
    monkeypatch.setattr(building, "_ROOM", 0)
    with pytest.raises(VirtgaugeError, match=f"no space left on the disk of {full_disk}"):
        build(ingredients, Format.RAW, full_disk / "image.raw", silence)
    assert os.listdir(full_disk) == ["image.raw"]
    assert (full_disk / "image.raw").read_bytes() == b"before"


def test_the_cache_on_a_full_disk_is_named(
    ingredients: Ingredients, out: Path, full_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(building, "_ROOM", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(full_disk))
    with pytest.raises(VirtgaugeError, match="no space left"):
        build(ingredients, Format.RAW, tmp_path / "elsewhere" / "image.raw", silence)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_place_that_cannot_be_is_refused(ingredients: Ingredients, out: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        build(ingredients, Format.RAW, out / "absent" / "image.raw", silence)
    with pytest.raises(UsageError, match="is a folder"):
        build(ingredients, Format.RAW, out, silence)


def test_the_name_tells_the_format() -> None:
    assert format_of(Path("a/guest.ISO")) is Format.ISO
    assert format_of(Path("guest.img")) is Format.RAW
    with pytest.raises(UsageError, match="tells no format") as caught:
        format_of(Path("guest"))
    assert all(format in str(caught.value.remedy) for format in Format)


def test_what_is_missing_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, any_agent: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        find_ingredients(SerialChannel(), Format.RAW)
    assert caught.value.remedy == "run `virtgauge provision kernel`"
    monkeypatch.setattr(building, "find_kernel", lambda: parts.kernel(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        find_ingredients(SerialChannel(), Format.RAW)
    assert caught.value.remedy == "run `virtgauge provision image`"
    monkeypatch.setattr(building, "find_boot_loader", lambda: object())
    monkeypatch.setattr(shutil, "which", lambda *_: None)
    assert find_ingredients(SerialChannel(), Format.ISO).agent.path == any_agent
    with pytest.raises(UnavailableError, match="qemu-img is not installed"):
        find_ingredients(SerialChannel(), Format.QCOW2)


def test_qemu_imgs_own_words_are_told(tmp_path: Path) -> None:
    (tmp_path / "broken.qcow2").write_bytes(b"QFI\xfb" + bytes(2000))
    with pytest.raises(VirtgaugeError, match=r"qemu-img check: .*broken\.qcow2"):
        formats.check(tmp_path / "broken.qcow2", "qcow2")


def invoke(*words: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["image", *words])
    return result.exit_code, result.output, result.exception


def test_the_command_builds_and_tells_in_json(
    ingredients: Ingredients, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "find_ingredients", lambda channel, format: ingredients)
    code, output, _ = invoke("build", "--out", str(out / "guest.iso"), "--json", "--quiet")
    told = json.loads(output)
    assert code == 0
    assert (told["format"], told["bytes"]) == ("iso", (out / "guest.iso").stat().st_size)
    code, output, _ = invoke("check", str(out / "guest.iso"))
    assert code == 0
    assert "whole" in output
    code, output, _ = invoke("check", "--json", str(out / "guest.iso"))
    assert json.loads(output)["contents"]["digest"] == told["contents"]["digest"]


def test_an_image_with_an_identity_is_its_owners_only(ingredients: Ingredients, out: Path) -> None:
    identity = b"virtgauge identity 1\nexpires 99999999999\n"
    secret = dataclasses.replace(ingredients, channel=DialChannel("192.0.2.1:7443", identity, "192.0.2.10/24"))
    build(secret, Format.RAW, out / "image.raw", silence)
    assert (out / "image.raw").stat().st_mode & 0o777 == 0o600


def test_a_call_without_an_identity_or_an_identity_without_a_call_is_refused(out: Path, private_state: Path) -> None:
    _, _, error = invoke("build", "--out", str(out / "x.iso"), "--dial", "192.0.2.1:7443")
    assert isinstance(error, UsageError)
    assert "--identity" in error.message
    _, _, error = invoke("build", "--out", str(out / "x.iso"), "--identity", str(out / "identity.pem"))
    assert isinstance(error, UsageError)
    assert os.listdir(out) == []


def test_the_command_refuses_before_it_builds(out: Path, private_state: Path) -> None:
    _, _, error = invoke("build", "--out", str(out / "x.iso"), "--format", "vhdxx")
    assert isinstance(error, UsageError)
    assert "'vhdxx' is not one of" in error.message
    _, _, error = invoke("build", "--out", str(out / "guest"))
    assert isinstance(error, UsageError)
    _, _, error = invoke("build", "--out", str(out / "x.iso"), "--serial", "COM1")
    assert isinstance(error, UsageError)
    _, _, error = invoke("check", str(out / "absent.iso"))
    assert isinstance(error, UsageError)
    assert os.listdir(out) == []
