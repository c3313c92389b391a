from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from virtgauge.folders import cache_root
from virtgauge.provision.cache import ProvisionError, staged, whole_facts, whole_folder


def test_the_cache_follows_xdg_and_ignores_a_relative_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_root() == tmp_path / ".cache" / "virtgauge"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache_root() == tmp_path / "elsewhere" / "virtgauge"


def test_a_folder_appears_whole_with_the_hashes_of_its_files(tmp_path: Path) -> None:
    final = tmp_path / "product"
    with staged(final, {"version": "1"}) as folder:
        (folder / "below").mkdir()
        (folder / "below" / "file").write_bytes(b"abc")
        assert not final.exists()
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    manifest = json.loads((final / "manifest.json").read_text())
    assert manifest == {"facts": {"version": "1"}, "files": {"below/file": [3, abc]}}
    assert whole_facts(final, thorough=True) == {"version": "1"}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), RuntimeError("a defect")])
def test_an_interrupted_build_leaves_the_old_product_and_no_half_one(
    tmp_path: Path, interruption: BaseException
) -> None:
    final = tmp_path / "product"
    with staged(final, {}) as folder:
        (folder / "file").write_text("old")
    with pytest.raises(type(interruption)), staged(final, {}) as folder:
        (folder / "file").write_text("ne")
        raise interruption
    assert (final / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [final]


def test_a_product_is_replaced_as_a_whole(tmp_path: Path) -> None:
    final = tmp_path / "product"
    for name in ("first", "second"):
        with staged(final, {}) as folder:
            (folder / name).touch()
    assert sorted(path.name for path in final.iterdir()) == ["manifest.json", "second"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_ends_in_an_error_that_names_the_way_out(tmp_path: Path, number: int) -> None:
    with pytest.raises(ProvisionError, match="no space left") as caught, staged(tmp_path / "product", {}):
        raise OSError(number, "written too much")
    assert caught.value.remedy is not None
    assert "XDG_CACHE_HOME" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_rot_of_the_same_size_is_seen_only_by_the_thorough_look(tmp_path: Path) -> None:
    final = tmp_path / "product"
    with staged(final, {}) as folder:
        (folder / "file").write_text("abc")
    (final / "file").write_text("abd")
    assert whole_facts(final, thorough=False) == {}
    assert whole_facts(final, thorough=True) is None
    (final / "file").write_text("ab")
    assert whole_facts(final, thorough=False) is None


def test_what_an_image_brings_is_found_where_the_cache_has_none_and_is_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("virtgauge.provision.cache.BROUGHT", tmp_path / "brought")
    brought, kept = tmp_path / "brought" / "product" / "current", cache_root() / "product" / "current"
    with staged(brought, {"version": "1"}) as folder:
        (folder / "file").write_text("whole")
    assert whole_folder("product") == (brought, {"version": "1"})
    assert whole_folder("product", lambda facts: facts["version"] == "2") is None
    with staged(kept, {"version": "1"}) as folder:
        (folder / "file").write_text("the user's own")
    assert whole_folder("product") == (kept, {"version": "1"})
    (kept / "file").unlink()
    (brought / "file").write_text("half")
    assert whole_folder("product", thorough=True) is None
    assert brought.is_dir() and not kept.exists()
