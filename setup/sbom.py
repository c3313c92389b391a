"""What is in a release, as CycloneDX has it (a software bill of materials): libraries, crates, the pages' scripts, and
what is compiled into them.

Versions are those of what is there; of what a wheel bundles, those that the wheel's own bill (PEP 770) or its files
tell.  The same sources make the same text: its time is SOURCE_DATE_EPOCH, its serial number that of its content.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import deb
import notices
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "src" / "virtgauge" / "native"
STATIC = ("virtgauge-agent", "bandwidth", "flushlab")
"""Crates of programs that are linked statically."""
GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"
_SONAME = rb"^\S+\.so\.([\d.]+)\0"
_BUNDLED = (
    ("numpy", "openblas", "BSD-3-Clause", "numpy.libs/*openblas*", rb"OpenBLAS (\d[\d.]*\d)"),
    ("numpy", "libgfortran", GCC, "numpy.libs/libgfortran*", _SONAME),
    ("numpy", "libquadmath", "LGPL-2.1-or-later", "numpy.libs/libquadmath*", _SONAME),
    ("scipy", "openblas", "BSD-3-Clause", "scipy.libs/*openblas*", rb"OpenBLAS (\d[\d.]*\d)"),
    ("scipy", "libgfortran", GCC, "scipy.libs/libgfortran*", _SONAME),
    ("scipy", "libquadmath", "LGPL-2.1-or-later", "scipy.libs/libquadmath*", _SONAME),
    ("pyarrow", "curl", "curl", "pyarrow/libarrow.so.*", rb"libcurl/(\d[\d.]+)"),
    ("pyarrow", "openssl", "Apache-2.0", "pyarrow/libarrow.so.*", rb"OpenSSL (\d+\.\d+\.\d+) "),
    ("pyarrow", "libxml2", "MIT", "pyarrow/libarrow.so.*", rb"libxml2/src/v(\d[\d.]+)"),
    ("pyarrow", "zlib", "Zlib", "pyarrow/libarrow.so.*", rb"[ \0]inflate (\d[\d.]+)"),
    ("pyarrow", "bzip2", "bzip2-1.0.6", "pyarrow/libarrow.so.*", rb"\0(1\.\d\.\d), \d+-\w+-\d{4}"),
)
"""What wheels have in them: whose, name, licence, a file, and what tells its version in the file's name or content."""


def text(version: str, libraries: Path) -> str:
    """The bill of the release of that version, whose libraries of Python are in a folder, in JSON.

    Raises:
        KeyError: a library or crate that is used is not in its lock, or a version is not where it is looked for.
    """
    subject = Component(
        name="virtgauge",
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref="virtgauge",
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        purl=PackageURL("pypi", None, "virtgauge", version),
    )
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    bom = Bom(metadata=BomMetaData(component=subject, timestamp=time), serial_number=uuid.UUID(int=0))
    direct = [*_libraries(bom, libraries), *_scripts(bom), *_crates(bom)]
    bom.register_dependency(subject, direct)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, JsonV1Dot6(bom).output_as_string())
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _libraries(bom: Bom, folder: Path) -> Iterator[Component]:
    """Adds Python's libraries in the Debian package, and what they bundle; those that virtgauge itself asks for."""
    needed = deb.needed()
    there = {canonicalize_name(one.name): one for one in metadata.distributions(path=[str(folder)])}
    locks = {block.partition(" ")[0]: block for block in deb.locked(needed)}
    made, within = {}, {}
    for name in sorted(needed.keys() - {"virtgauge"}):
        version = there[name].version
        purl = PackageURL("pypi", None, name, version)
        digests = re.findall(r"sha256:(\w+)", locks[f"{name}=={version}"])
        locked = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(str(purl)),
            comment="any of its files that the lock allows",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests],
        )
        made[name] = _component(name, version, purl, _licence(there[name]), external_references=[locked])
        bom.components.add(made[name])
        within[name] = list(_bundled(name, there[name], folder))
        for one in within[name]:
            _add(bom, one)
    for name, component in made.items():
        bom.register_dependency(component, [*(made[one] for one in sorted(needed[name])), *within[name]])
    yield from (made[one] for one in sorted(needed["virtgauge"]))


def _bundled(name: str, library: metadata.Distribution, folder: Path) -> Iterator[Component]:
    """What a wheel has in it: what its own bills name, and what its files tell."""
    for file in library.files or ():
        if "sboms" in file.parts:
            for one in json.loads(Path(str(library.locate_file(file))).read_text(encoding="utf-8"))["components"]:
                licence = " AND ".join(filter(None, map(_named, one.get("licenses", ()))))
                yield _part(name, one["name"], one.get("version", ""), licence, one.get("purl"))
    for wheel, part, licence, where, told in _BUNDLED:
        if wheel == name:
            path = next(iter(sorted(folder.glob(where))), None)
            found = path and re.search(told, path.name.encode() + b"\0" + path.read_bytes())
            if not found:
                raise KeyError(f"{part} is not in {wheel}'s {where} any more, or tells no version there: see _BUNDLED")
            yield _part(name, part, found[1].decode(), licence)


def _named(licence: dict[str, Any]) -> str:
    """Of a licence as CycloneDX has it."""
    inner = licence.get("license", {})
    return str(licence.get("expression") or inner.get("id") or inner.get("name") or "")


def _part(of: str, name: str, version: str, licence: str, purl: str | None = None) -> Component:
    known = PackageURL.from_string(purl) if purl else PackageURL("generic", None, name, version or None)
    return _component(name, version, known, licence or "NOASSERTION", bom_ref=f"{of}: {name} {version}".strip())


def _add(bom: Bom, component: Component) -> Component:
    bom.components.add(component)
    bom.register_dependency(component, ())
    return component


def _scripts(bom: Bom) -> Iterator[Component]:
    """Adds what virtgauge/native/vega-embed.js is made of."""
    import vl_convert

    bundle = (NATIVE / "vega-embed.js").read_text(encoding="utf-8")
    series = re.escape(vl_convert.get_vegalite_versions()[-1])
    if not (lite := re.search(rf'"({series}\.\d+)"', bundle)):
        raise KeyError(f"vega-embed.js names no version of Vega-Lite {series}: `setup/page.py`")
    versions = {"vega": vl_convert.get_vega_version(), "vega-lite": lite[1], "d3": ""}
    versions |= {"vega-embed": vl_convert.get_vega_embed_version(), "vega-themes": vl_convert.get_vega_themes_version()}
    for name, version in versions.items():
        purl = PackageURL("npm", None, name, version or None)
        yield _add(bom, _component(name, version, purl, "ISC" if name == "d3" else "BSD-3-Clause"))


def _licence(library: metadata.Distribution) -> str:
    """By the expression, else the classifiers, else the first line of what a library says."""
    told = library.metadata
    classified = [one.split(" :: ")[-1] for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    classified = [one for one in classified if one != "OSI Approved"]
    said = (told.get("License") or "").strip().split("\n")[0]
    return told.get("License-Expression") or ", ".join(classified) or said


def _crates(bom: Bom) -> Iterator[Component]:
    """Adds what the programs that are shipped are linked of; the crates of the workspace that they are made of."""
    linked = notices.linked(notices.SHIPPED)
    made = {one: _crate(package) for one, (package, _) in linked.items()}
    bom.components.update(made.values())
    gcc = re.search(rb"GCC: \([^)]*\) (\d[\d.]+)", (NATIVE / "virtgauge-agent").read_bytes())
    standard = _add(bom, _part("rust", "std", notices.rustc("-V").split()[1], "MIT OR Apache-2.0"))
    static = [
        _add(bom, _part("static", "glibc", (os.confstr("CS_GNU_LIBC_VERSION") or "").split()[-1], "LGPL-2.1-or-later")),
        _add(bom, _part("static", "libgcc", gcc[1].decode() if gcc else "", GCC)),
    ]
    for one, component in made.items():
        package, needs = linked[one]
        more = static if component.name in STATIC else []
        if component.name == "libsqlite3-sys":
            header = Path(package["manifest_path"]).with_name("sqlite3") / "sqlite3.h"
            (version,) = re.findall(r'^#define SQLITE_VERSION +"([\d.]+)"', header.read_text(), re.MULTILINE)
            more = [_add(bom, _part(component.name, "sqlite", version, "blessing"))]
        bom.register_dependency(component, [standard, *more, *(made[other] for other in needs)])
    yield from (made[one] for one, (package, _) in linked.items() if package["name"] in notices.SHIPPED)


def _crate(package: dict[str, Any]) -> Component:
    name, version = package["name"], package["version"]
    licence = (package["license"] or "").replace("/", " OR ")
    if not package["source"]:
        return _component(name, version, None, licence)
    lock = (ROOT / "native" / "Cargo.lock").read_text()
    entry = rf'name = "{re.escape(name)}"\nversion = "{re.escape(version)}"\nsource = .*\nchecksum = "(\w+)"'
    if not (found := re.search(entry, lock)):
        raise KeyError(f"{name} {version}")
    archive = HashType(alg=HashAlgorithm.SHA_256, content=found[1])
    return _component(name, version, PackageURL("cargo", None, name, version), licence, hashes=[archive])


def _component(name: str, version: str, purl: PackageURL | None, licence: str, **more: Any) -> Component:
    licences = [LicenseFactory().make_from_string(licence)] if licence else []
    more = {"bom_ref": str(purl) if purl else f"crate {name}"} | more
    return Component(name=name, version=version or None, purl=purl, licenses=licences, **more)
