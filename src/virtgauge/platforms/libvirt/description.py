"""A domain's description that somebody else wrote, within bounds, and what of it was not read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from virtgauge.errors import UsageError, printable

_LARGEST = 1024 * 1024  # Bytes; real ones have some ten thousand
_MOST_ELEMENTS, _DEEPEST = 5_000, 40
_LONGEST = 60  # Of a value that is shown
_REMEDY = "give what `virsh dumpxml DOMAIN` prints"
_UNITS: dict[str, int] = {"b": 1, "bytes": 1} | {
    unit: factor**power
    for power, letter in enumerate("kmgtpe", 1)
    for unit, factor in ((letter, 1024), (f"{letter}ib", 1024), (f"{letter}b", 1000))
}
"""https://libvirt.org/formatdomain.html#memory-allocation"""


def read_file(path: Path) -> bytes:
    """The bytes of a description, no more than one may have.  Raises UsageError: it cannot be read, or is too long."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "check the path") from error
    if len(content) > _LARGEST:
        raise UsageError(f"{path} has more than {_LARGEST} bytes: it describes no domain", _REMEDY)
    return content


class _Builder(ElementTree.TreeBuilder):
    """Builds no document that has entities, or is larger than any domain's."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source, self._elements, self._depth = source, 0, 0

    def doctype(self, *_: Any) -> None:
        raise UsageError(f"{self._source} declares a document type, by which it could define entities", _REMEDY)

    def start(self, tag: str, attrs: dict[str, str], /) -> ElementTree.Element:
        self._elements, self._depth = self._elements + 1, self._depth + 1
        if self._elements > _MOST_ELEMENTS or self._depth > _DEEPEST:
            most = f"{_MOST_ELEMENTS} elements, or {_DEEPEST} within each other"
            raise UsageError(f"{self._source} has more than {most}: it describes no domain", _REMEDY)
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> ElementTree.Element:
        self._depth -= 1
        return super().end(tag)


Fact = tuple[ElementTree.Element, str]
"""An element's attribute by its name, or with an empty one its text, or that it is there at all."""


class Description:
    """A domain's description, which notes what of it was used and why the rest was not."""

    def __init__(self, content: bytes, source: str) -> None:
        """Raises UsageError: it is no XML, or of something else, or beyond what a domain's has."""
        self.source = source
        parser = ElementTree.XMLParser(target=_Builder(source))
        try:
            parser.feed(content)
            self.root: ElementTree.Element = parser.close()
        except (ElementTree.ParseError, ValueError, LookupError) as error:  # the latter two: of its encoding
            raise UsageError(f"{source} is not XML: {error}", _REMEDY) from error
        if self.root.tag != "domain":
            raise UsageError(f"{source} describes no domain: it begins with <{_tag(self.root)}>", _REMEDY)
        if self.root.find("cpu") is None:  # libvirt leaves it to QEMU then, whose own is this model
            ElementTree.SubElement(ElementTree.SubElement(self.root, "cpu"), "model").text = "qemu64"
        self._used: set[Fact] = set()
        self._refused: dict[Fact, str] = {}

    def use(self, facts: Sequence[Fact]) -> None:
        """Note that facts are in the plan, or are so in every guest."""
        self._used.update(facts)

    def refuse(self, facts: Sequence[Fact], why: str) -> None:
        """Note why facts cannot be in a plan."""
        self._refused |= dict.fromkeys(facts, why)

    def wrong(self, fact: Fact, expected: str) -> UsageError:
        """The error for a value that libvirt would never write."""
        element, attribute = fact
        where = f"{_tag(element)}@{attribute}" if attribute else _tag(element)
        return UsageError(f"{self.source}: {where} = {_shown(value_of(fact))}: {expected}", _REMEDY)

    def number(self, fact: Fact) -> int:
        """A whole number.  Raises UsageError: it is none."""
        text = value_of(fact)
        if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
            raise self.wrong(fact, "a whole number is expected")
        return int(text)

    def size(self, fact: Fact) -> int:
        """A size, whose unit is an attribute of its element.  Raises UsageError: it is none."""
        element, attribute = fact
        unit = element.get("unit", "KiB").lower()
        if unit not in _UNITS:
            raise self.wrong((element, "unit"), "bytes, KiB, MiB, GiB or TiB is expected")
        return self.number((element, attribute)) * _UNITS[unit]

    def cpus(self, fact: Fact) -> tuple[int, ...]:
        """A list of CPUs or nodes (``0-3,^2,8``), in order.  Raises UsageError: it is none."""
        found = 0  # a bit each, for a stranger may list the same ones over and over
        for part in value_of(fact).split(","):
            matched = re.fullmatch(r"(\^?)([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip(), re.ASCII)
            least, most = (int(matched[2]), int(matched[3] or matched[2])) if matched else (1, 0)
            if matched is None or most < least:
                raise self.wrong(fact, "a list such as 0-3,8 is expected")
            span = (1 << most + 1) - (1 << least)
            found = found & ~span if matched[1] else found | span
        return tuple(number for number, bit in enumerate(reversed(f"{found:b}")) if bit == "1")

    def left_out(self, why: Callable[[str], str]) -> list[tuple[str, str]]:
        """What is not in the plan: the path of an element or attribute, with its value, and why, by that path."""
        counted = Counter(self._unused(self.root, "", why))
        return [
            (f"{where} ({times} times)" if times > 1 else where, reason) for (where, reason), times in counted.items()
        ]

    def _unused(self, element: ElementTree.Element, path: str, why: Callable[[str], str]) -> Iterator[tuple[str, str]]:
        facts = [fact for inner in element.iter() for fact in facts_of(inner)]
        if path and not any(fact in self._used or fact in self._refused for fact in facts):
            yield path + _told(element), why(path)
            return
        for fact in facts_of(element):
            where = f"{path}@{fact[1]}" if fact[1] else path
            if fact not in self._used and (path or fact[1]):
                yield f"{where} = {_shown(value_of(fact))}", self._refused.get(fact) or why(where)
        for inner in element:
            yield from self._unused(inner, f"{path}/{_tag(inner)}".lstrip("/"), why)


def value_of(fact: Fact) -> str:
    """An attribute's value, or an element's text; empty where there is none."""
    element, attribute = fact
    return (element.get(attribute) or "").strip() if attribute else (element.text or "").strip()


def facts_of(element: ElementTree.Element) -> list[Fact]:
    """All that an element says by itself."""
    facts: list[Fact] = [(element, name) for name in element.attrib]
    says = bool((element.text or "").strip()) or (not facts and len(element) == 0)
    return [(element, ""), *facts] if says else facts


def _told(element: ElementTree.Element) -> str:
    """What tells an element from others of its name, as far as it is short."""
    text = (element.text or "").strip()
    told = [f"{name}={value!r}" for name, value in list(element.attrib.items())[:3] if name != "passwd"]
    shown = " ".join([*([_shown(text)] if text else []), *told])
    return f" ({printable(shown, _LONGEST)})" if shown else ""


def _shown(text: str) -> str:
    return printable(repr(text), _LONGEST)


def _tag(element: ElementTree.Element) -> str:
    return printable(element.tag.rpartition("}")[2], _LONGEST)
