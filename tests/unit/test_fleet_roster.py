"""Whom a fleet believes: machines told apart, liars and other versions refused in words."""

import dataclasses

import pytest

from virtgauge import __version__
from virtgauge.fleet.messages import Enrolment, MachineIdentity, Signature
from virtgauge.fleet.roster import DistrustError, Roster
from virtgauge.plan.fleet import FleetHost, FleetSection

NORTH_ID, SOUTH_ID = "1" * 32, "2" * 32
NORTH, SOUTH = FleetHost(name="north"), FleetHost(name="south")
MACHINES = {
    "north": MachineIdentity(NORTH_ID, "boot-1", "uuid-1"),
    "south": MachineIdentity(SOUTH_ID, "boot-2", "uuid-2"),
}


def fleet(**fields):
    known = {
        "hosts": [{"name": "north"}, {"name": "south"}],
        "scheduler": "tls://192.0.2.9:8786",
        "ca": "ca.pem",
        "certificate": "me.pem",
        "key": "key.pem",
    }
    return FleetSection.model_validate(known | fields)


def signature(name, **fields):
    return dataclasses.replace(Signature(name, MACHINES[name], __version__, "9f" * 32), **fields)


def enrolment(name, **fields):
    return Enrolment(signature(name, **fields), {}, (), ())


def machine(name, **fields):
    return dataclasses.replace(MACHINES[name], **fields)


@pytest.fixture
def roster():
    made = Roster(fleet(), "9f" * 32)
    made.enrol(NORTH, enrolment("north"))
    return made


def test_two_machines_are_taken_on_and_believed(roster):
    roster.enrol(SOUTH, enrolment("south"))
    roster.check(NORTH, signature("north"))
    roster.check(SOUTH, signature("south"))


@pytest.mark.parametrize(
    "same",
    [
        {"boot_id": "boot-1"},  # a container of the same machine, with a machine ID of its own
        {"boot_id": None, "product_uuid": "uuid-1"},
        {"boot_id": None, "product_uuid": None, "machine_id": NORTH_ID},
    ],
)
def test_one_machine_under_two_names_is_refused_unless_the_plan_allows_it(roster, same):
    with pytest.raises(DistrustError, match="are one machine"):
        roster.enrol(SOUTH, enrolment("south", machine=machine("south", **same)))
    tried = Roster(fleet(one_machine=True), "9f" * 32)
    tried.enrol(NORTH, enrolment("north"))
    tried.enrol(SOUTH, enrolment("south", machine=machine("south", **same)))


def test_machines_installed_from_one_image_are_told_apart_by_their_boots(roster):
    roster.enrol(SOUTH, enrolment("south", machine=machine("south", machine_id=NORTH_ID)))


@pytest.mark.parametrize("lie", [{"machine_id": SOUTH_ID}, {"boot_id": "boot-9"}, {"product_uuid": None}])
def test_an_answer_from_another_machine_than_enrolled_is_not_believed(roster, lie):
    with pytest.raises(DistrustError, match=r"lies about its identity.*discarded"):
        roster.check(NORTH, signature("north", machine=machine("north", **lie)))


def test_a_host_may_come_back_after_a_restart_and_not_as_another_machine(roster):
    restarted = machine("north", boot_id="boot-7")
    roster.enrol(NORTH, enrolment("north", machine=restarted))
    roster.check(NORTH, signature("north", machine=restarted))
    with pytest.raises(DistrustError, match="not the machine that it was"):
        roster.enrol(NORTH, enrolment("north", machine=machine("north", product_uuid="uuid-9")))


def test_the_machine_that_the_plan_expects_is_insisted_on():
    expecting = FleetHost(name="north", machine_id=SOUTH_ID)
    with pytest.raises(DistrustError, match=f"the plan expects {SOUTH_ID}"):
        Roster(fleet(), "9f" * 32).enrol(expecting, enrolment("north"))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tool_version": "0.0.1"}, "has virtgauge 0.0.1"),
        ({"agent_sha256": "00" * 32}, "measures with another agent"),
        ({"worker": "west"}, "'west' answers for 'north'"),
        ({"machine": MachineIdentity(None, None, "uuid-1")}, "cannot be told from other machines"),
    ],
)
def test_another_version_agent_or_name_is_refused_before_anything_starts(fields, words):
    with pytest.raises(DistrustError, match=words):
        Roster(fleet(), "9f" * 32).enrol(NORTH, enrolment("north", **fields))


def test_the_signs_of_a_machine_are_read_and_missing_ones_are_none(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("ABCDEF0123\n")
    assert MachineIdentity.read(tmp_path) == MachineIdentity("abcdef0123", None, None)
    here = MachineIdentity.read()
    assert here.boot_id is not None
    assert here.shares_machine_with(MachineIdentity.read())
