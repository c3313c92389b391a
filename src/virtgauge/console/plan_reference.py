"""The reference of all plan keys, as Markdown: made from the models that check a plan; committed as a page of docs/.

Names, types, limits and defaults are the models' own (Pydantic's JSON Schema); the meaning of a key is the docstring
below its field.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter

from virtgauge.plan.fleet import FleetSection
from virtgauge.plan.load import model_in
from virtgauge.plan.model import DesignScope, Plan, PlatformSection, ValidityLimits
from virtgauge.plan.requirements import Budget, Requirement
from virtgauge.platforms import KINDS, settings_model
from virtgauge.suites.registry import SUITES

_HEAD = """\
# Reference of plan keys

A plan is a [TOML](https://toml.io) file. `virtgauge plan show quick > mine.toml` writes one to begin with,
`virtgauge plan check mine.toml` names every wrong key, and `virtgauge plan show mine.toml --resolved` writes out every
default.

This page is generated: `virtgauge plan reference` prints it from the models that check a plan. The names of keys end in
their unit (`_s`, `_us`, `_mib`). A key without a default must be given. Where the default is *none*, leave the key out.
"""
_PLATFORMS = """\
## Platforms

A plan has one `[[platform]]` or more. `name` and `kind` are common to all; the other keys depend on the kind.
"""
_SUITES = """\
## Suites

A plan has one `[[suite.NAME]]` or more. Each is a design: its cells are all combinations of the levels in its lists.
Two designs of a suite may share cells, which are measured once. The keys of the scope are common to all suites.
"""
_SIGNS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"} | {
    "multipleOf": "a multiple of {}"
}
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "none"}
_TABLE = "table, see below"


def plan_reference() -> str:
    """The whole page."""
    parts = [
        _HEAD,
        *_section("## The plan", Plan, but=("platform", "suite", "validity", "require", "budget", "fleet")),
        *_section("## `[validity]`", ValidityLimits),
        *_section("## `[[require]]`", Requirement),
        *_section("## `[budget]`", Budget),
        *_section("## `[fleet]`", FleetSection),
        _PLATFORMS,
        *_section("### `[[platform]]`", PlatformSection),
    ]
    for kind in KINDS:
        parts += _section(f"### Platforms of kind `{kind}`", settings_model(kind), f"kind {kind}")
    parts += [_SUITES, *_section("### The scope of a design", DesignScope, "suite.NAME")]
    for name, suite in SUITES.items():
        parts += _section(f"### `[[suite.{name}]]`", suite.Settings)
    return "\n".join(parts)


def _section(heading: str, model: type[BaseModel], path: str = "", but: Sequence[str] = ()) -> Iterator[str]:
    """A heading, what the model says of itself, its keys, and the tables inside it under headings of their own."""
    path = path or heading.strip("#` []")
    yield heading + "\n"
    # A model's docstring, less what tells programmers about its attributes.
    if about := _markdown(inspect.cleandoc(model.__doc__ or "").split("\nAttributes:")[0], joined=False):
        yield about + "\n"
    schema = model.model_json_schema()
    meanings = field_docstrings(model)
    rows = []
    inner: dict[str, type[BaseModel]] = {}
    for key, field in model.model_fields.items():
        if key in but:
            continue
        if (nested := model_in(field.annotation)) is not None:
            inner[key] = nested
        kind = _words(schema["properties"][key], schema.get("$defs", {}))
        meaning = meanings.get(key, "")
        given = "" if field.is_required() else _default(field.get_default(call_default_factory=True))
        rows.append(f"| `{key}` | {kind} | {given} | {_markdown(meaning)} |")
    yield "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows, ""]) if rows else "No keys.\n"
    level = "#" * (len(heading) - len(heading.lstrip("#")) + 1)
    for key, nested in inner.items():
        yield from _section(f"{level} `{key}` of `{path}`", nested, f"{path}.{key}")


def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field of a model and of the models that it inherits from, by the field's name."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, BaseModel) or cls is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, after in zip(body.body, body.body[1:], strict=False):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def _markdown(text: str, *, joined: bool = True) -> str:
    """Docstring markup as Markdown; in the cell of a table on one line."""
    text = re.sub(r":\w+:`[~.]*([^`]+)`", r"`\1`", text).replace("``", "`")
    return " ".join(text.split()).replace("|", r"\|") if joined else text.strip()


def _default(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults"
    plain = TypeAdapter(Any).dump_python(value, mode="json", exclude_defaults=True)
    return f"`{json.dumps(plain, ensure_ascii=False)}`"


def _words(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """A JSON Schema in few words: ``integer, ≥ 1``, ``list of `a`, `b` ``."""
    if "$ref" in schema:
        target = definitions[schema["$ref"].rpartition("/")[2]]
        return _TABLE if target.get("type") == "object" else _words(target, definitions)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_words(one, definitions) for one in schema["anyOf"]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value else '`""`' for value in schema["enum"])
    if schema.get("type") == "array":
        least, inner = "one or more" if schema.get("minItems") else "list", _words(schema.get("items", {}), definitions)
        return "tables, see below" if inner == _TABLE else f"{least} of: {inner}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties", {})
        values = {} if values is True else values  # of a table that may hold anything
        inner = _words(values, definitions)
        return f"table by name of: {'tables, see below' if inner == _TABLE else inner}"
    limits = [sign.format(_number(schema[name])) for name, sign in _SIGNS.items() if name in schema]
    kind = "path" if schema.get("format") == "path" else _TYPES.get(schema.get("type", ""), "any value")
    return ", ".join([kind, *limits])


def _number(value: float) -> str:
    """A limit; powers of two that nobody can read are written as such."""
    whole = int(value)
    exponent = (whole + 1).bit_length() - 1
    if value > 10**6 and value in (2**exponent, 2**exponent - 1):
        return f"2^{exponent}" + (" − 1" if whole < 2**exponent else "")
    return f"{whole}" if whole == value else f"{value:g}"
