"""The JSON Schema of the report's JSON form, made from the types that it is written from.

``python -m virtgauge.exchange.report_schema > src/virtgauge/exchange/schemas/report.schema.json`` renews the published
copy, which a test compares with what is made here.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import json
import types
import typing
from importlib import resources
from typing import Any

from virtgauge.report.model import SCHEMA_VERSION, Report
from virtgauge.report.sections import SuiteReport
from virtgauge.report.suites import SUITE_REPORTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def published_schema() -> str:
    """The schema as it comes with virtgauge."""
    return resources.files("virtgauge.exchange").joinpath("schemas", "report.schema.json").read_text(encoding="utf-8")


def report_schema() -> dict[str, Any]:
    """The schema of what :func:`virtgauge.report.render_json` writes."""
    maker = _Maker()
    root = maker.record(Report)
    root["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": DIALECT,
        "$id": f"urn:virtgauge:report:{SCHEMA_VERSION}",
        "title": "A report of virtgauge",
        "description": "Durations are nanoseconds. A missing figure is null, and the estimate's method says why.",
        **root,
        "$defs": dict(sorted(maker.definitions.items())),
    }


class _Maker:
    """Makes schemas of types; those of dataclasses are kept as definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of any type that a report has."""
        if kind is SuiteReport:
            return {"anyOf": [self._suite(name, typing.cast(Any, made)) for name, made in SUITE_REPORTS.items()]}
        origin = typing.get_origin(kind)
        if origin is not None:
            return self._parametrized(origin, typing.get_args(kind))
        if dataclasses.is_dataclass(kind):
            return self._reference(typing.cast(type, kind))
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [member.value for member in kind]}
        plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
        if kind in plain:
            return {"type": plain[kind]}
        if kind is Any:
            return {}
        raise TypeError(f"{kind} has no place in a report")

    def record(self, kind: type) -> dict[str, Any]:
        """The schema of a dataclass: all of its fields and no others."""
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)]
        properties = {name: self.of(hints[name]) for name in names}
        return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}

    def _reference(self, kind: type) -> dict[str, Any]:
        name = f"{kind.__module__.removeprefix('virtgauge.')}.{kind.__name__}"
        if name not in self.definitions:
            self.definitions[name] = {}  # a type may hold itself
            self.definitions[name] = self.record(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _suite(self, name: str, made: type[SuiteReport]) -> dict[str, Any]:
        """A suite's findings, and beside them which suite it is."""
        findings = self.record(typing.get_type_hints(made)["findings"])
        findings["properties"] = {"suite": {"const": name}, **findings["properties"]}
        return findings | {"required": ["suite", *findings["required"]]}

    def _parametrized(self, origin: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if origin in (typing.Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in arguments]}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin is tuple and arguments[-1] is not Ellipsis:
            items = [self.of(one) for one in arguments]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}
        if origin in (tuple, list, collections.abc.Sequence):
            return {"type": "array", "items": self.of(arguments[0])}
        if origin in (dict, collections.abc.Mapping):
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        raise TypeError(f"{origin} has no place in a report")


if __name__ == "__main__":
    print(json.dumps(report_schema(), indent=1))
