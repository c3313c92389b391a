"""Templates are compiled once, again when one is changed, and at need without a cache; nobody else's code is run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import jinja2
import pytest

from virtgauge.report.page import compiled_templates


class Templates:
    """A folder with one template, and how often it was compiled."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.file, self.cache, self.compiled = folder / "page.html", folder / "virtgauge" / "templates", 0
        self.file.write_text("one {{ word }}")
        compile_template = jinja2.Environment.compile

        def counted(*arguments: Any, **named: Any) -> Any:
            self.compiled += 1
            return compile_template(*arguments, **named)

        patch.setattr(jinja2.Environment, "compile", counted)
        patch.setenv("XDG_CACHE_HOME", str(folder))

    def rendered(self) -> str:
        """What a new process would make of it."""
        loader = jinja2.FileSystemLoader(self.file.parent)
        environment = jinja2.Environment(loader=loader, bytecode_cache=compiled_templates())
        return environment.get_template(self.file.name).render(word="word")


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Templates:
    return Templates(tmp_path, monkeypatch)


def test_a_template_is_compiled_once_and_kept_for_its_user_alone(templates: Templates) -> None:
    assert [templates.rendered() for _ in range(3)] == ["one word"] * 3
    assert templates.compiled == 1
    (kept,) = templates.cache.iterdir()
    assert (templates.cache.stat().st_mode & 0o777, kept.stat().st_mode & 0o077) == (0o700, 0)


def test_a_changed_template_is_compiled_anew_even_in_the_same_moment(templates: Templates) -> None:
    templates.rendered()
    status = templates.file.stat()
    templates.file.write_text("two {{ word }}")
    os.utime(templates.file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert templates.rendered() == "two word"


@pytest.mark.parametrize("left", [0, 3, 40, 150])
def test_damaged_code_is_compiled_anew(templates: Templates, left: int) -> None:
    templates.rendered()
    (kept,) = templates.cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:left])
    assert templates.rendered() == "one word"
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o750])
def test_a_folder_that_is_open_to_others_is_not_believed(templates: Templates, mode: int) -> None:
    templates.cache.mkdir(parents=True)
    templates.cache.chmod(mode)
    assert compiled_templates() is None
    assert templates.rendered() == "one word"
    assert not list(templates.cache.iterdir())


def test_neither_a_link_nor_another_users_folder_is_believed(templates: Templates, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    templates.cache.parent.mkdir()
    templates.cache.symlink_to(tmp_path / "elsewhere")
    assert compiled_templates() is None
    if os.geteuid() == 0:
        templates.cache.unlink()
        templates.cache.mkdir(mode=0o700)
        os.chown(templates.cache, 65534, 65534)
        assert compiled_templates() is None


def test_a_cache_that_others_can_exchange_is_not_believed(templates: Templates, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert compiled_templates() is None
    assert not templates.cache.exists()
    tmp_path.chmod(0o1777)  # where others can rename what is their own only
    assert compiled_templates() is not None
    if os.geteuid() == 0:
        shutil.rmtree(templates.cache.parent)
        os.chown(tmp_path, 65534, 65534)  # root with a user's cache
        assert compiled_templates() is None
        assert not templates.cache.exists()


def test_pages_are_made_where_no_cache_can_be(templates: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(templates.file))  # below which there is no folder
    assert templates.rendered() == "one word"


def test_pages_are_made_where_the_cache_cannot_be_written_any_more(templates: Templates) -> None:
    cache = compiled_templates()
    assert cache is not None
    templates.cache.rmdir()
    loader = jinja2.FileSystemLoader(templates.file.parent)
    made = jinja2.Environment(loader=loader, bytecode_cache=cache).get_template(templates.file.name)
    assert made.render(word="word") == "one word"
