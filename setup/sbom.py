"""What is in a release, as CycloneDX has it (a software bill of materials): libraries, crates, the pages' script.

The same sources make the same text: its time is SOURCE_DATE_EPOCH, its serial number that of its content.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import deb
from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("virtgauge-agent", "bandwidth", "flushlab", "hptime-c", "hptime-preload", "sensorstore", "uml-registers")
"""Crates of the workspace of which programs and libraries are made."""


def text(version: str) -> str:
    """The bill of the release of that version, in JSON.

    Raises:
        KeyError: a library or crate that is used is not in its lock.
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
    direct = [*_libraries(bom), *_crates(bom)]
    bom.register_dependency(subject, direct)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, JsonV1Dot6(bom).output_as_string())
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _libraries(bom: Bom) -> Iterator[Component]:
    """Adds Python's libraries in the Debian package; those that virtgauge itself asks for, and the pages' script."""
    needed = deb.needed()
    needed["virtgauge"].add("vl-convert-python")
    names = {one for some in needed.values() for one in some}
    here = {"python_full_version": deb.python_version(), "python_version": deb.python_version().rpartition(".")[0]}
    made = {}
    for block in sorted(deb.locked(names)):
        one = Requirement(block.partition("\\")[0])
        if one.marker and not one.marker.evaluate(here):
            continue
        version = str(one.specifier).removeprefix("==")
        purl = PackageURL("pypi", None, one.name, version)
        files = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in re.findall(r"sha256:(\w+)", block)]
        locked = ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION,
            url=XsUri(str(purl)),
            comment="any of its files that the lock allows",
            hashes=files,
        )
        made[one.name] = _component(one.name, version, purl, _licence(one.name), external_references=[locked])
        bom.components.add(made[one.name])
    made["vl-convert-python"].description = "of it: virtgauge/native/vega-embed.js, Vega, Vega-Lite and vega-embed"
    for name, component in made.items():
        bom.register_dependency(component, [made[one] for one in sorted(needed.get(name, ()))])
    yield from (made[one] for one in sorted(needed["virtgauge"]))


def _licence(name: str) -> str:
    """By the expression, else the classifiers, else the first line of what a library says."""
    told = metadata.metadata(name)
    classified = [one.split(" :: ")[-1] for one in told.get_all("Classifier") or () if one.startswith("License ::")]
    classified = [one for one in classified if one != "OSI Approved"]
    said = (told.get("License") or "").strip().split("\n")[0]
    return told.get("License-Expression") or ", ".join(classified) or said


def _crates(bom: Bom) -> Iterator[Component]:
    """Adds the crates that what is shipped is linked of; those of the workspace that are shipped."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--filter-platform", _host()]
    told = json.loads(subprocess.run(command, cwd=ROOT / "native", check=True, stdout=subprocess.PIPE).stdout)
    packages = {one["id"]: one for one in told["packages"]}
    links = {
        node["id"]: [one["pkg"] for one in node["deps"] if any(kind["kind"] is None for kind in one["dep_kinds"])]
        for node in told["resolve"]["nodes"]
    }
    shipped = [one for one in told["workspace_members"] if packages[one]["name"] in SHIPPED]
    made: dict[str, Component] = {}
    left = list(shipped)
    while left:
        if (one := left.pop()) not in made:
            made[one] = _crate(packages[one])
            bom.components.add(made[one])
            left += links[one]
    for one, component in made.items():
        bom.register_dependency(component, [made[other] for other in links[one]])
    yield from (made[one] for one in shipped)


def _host() -> str:
    told = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return re.findall(r"^host: (\S+)", told, re.MULTILINE)[0]


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
    ref = str(purl) if purl else f"crate {name}"
    return Component(name=name, version=version, bom_ref=ref, purl=purl, licenses=licences, **more)
