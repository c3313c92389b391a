"""The section [fleet] of a plan: what is refused, and with which words, before anything is started."""

import pytest

from virtgauge.errors import UsageError
from virtgauge.plan.fleet import Start
from virtgauge.plan.load import parse_plan

PLAN = """
reference = "a"
[[platform]]
name = "a"
kind = "simulated"
[[suite.timing]]
"""
HOSTS = 'hosts = [{name = "north", address = "ada@192.0.2.1"}, {name = "south", address = "192.0.2.2"}]\n'
CLUSTER = 'scheduler = "tls://192.0.2.9:8786"\nca = "ca.pem"\ncertificate = "me.pem"\nkey = "key.pem"\n'


def fleet_of(section):
    return parse_plan(f"{PLAN}[fleet]\n{section}", "plan.toml").fleet


@pytest.mark.parametrize(
    ("section", "start"),
    [
        (HOSTS + CLUSTER, Start.CLUSTER),
        (HOSTS + 'listen = "192.0.2.9"', Start.SSH),
        ('workers = "here"\nhosts = [{name = "north"}]', Start.HERE),
    ],
)
def test_who_starts_the_workers_follows_from_what_is_given(section, start):
    assert fleet_of(section).start is start


@pytest.mark.parametrize("name", ["ip-192-0-2-117.eu-central-1.compute.internal", "gpu_node_03", "n" * 63])
def test_a_host_may_be_called_as_nodes_of_clusters_are(name):
    assert fleet_of(CLUSTER + f'hosts = [{{name = "{name}"}}]').hosts[0].worker == name


def test_a_plan_with_a_fleet_survives_being_written_out():
    plan = parse_plan(f"{PLAN}[fleet]\n{HOSTS}{CLUSTER}[[fleet.pair]]\n{PAIR}", "plan.toml")
    assert parse_plan(plan.to_toml(), "again").fleet == plan.fleet


CABLE = '[[fleet.pair.cables]]\ntester = "eth1"\nguests = "eth2"\n'
PAIR = 'suite = "bandwidth"\ntester = "north"\nguests = "south"\n'


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("hosts = []", "fleet.hosts"),
        (HOSTS, "none of them is given"),
        (HOSTS + CLUSTER + 'listen = "192.0.2.9"', "scheduler and listen is given"),
        (HOSTS + 'scheduler = "tcp://192.0.2.9:8786"', "tls://host:port"),
        (HOSTS + 'scheduler = "tls://192.0.2.9:8786"', "needs ca"),
        (HOSTS + 'listen = "192.0.2.9"\nkey = "key.pem"', "key is of an existing cluster"),
        (HOSTS + 'listen = "0.0.0.0"', "one address"),
        ('listen = "192.0.2.9"\nhosts = [{name = "north", address = "root@2001:db8::7"}]', "host 'north': address ="),
        ('listen = "192.0.2.9"\nhosts = [{name = "north", address = "root@a:99999"}]', "[user@]host"),
        ('listen = "192.0.2.9"\nhosts = [{name = "north"}]', "needs address"),
        ('workers = "here"\nhosts = [{name = "north"}, {name = "south"}]', "one_machine"),
        ('workers = "here"\nhosts = [{name = "north"}, {name = "north"}]', "two hosts have name"),
        (CLUSTER + 'hosts = [{name = "north"}, {name = "south", address = "north"}]', "two hosts have address"),
        (CLUSTER + 'hosts = [{name = "<b>"}]', "letters, digits"),
        (CLUSTER + f'hosts = [{{name = "{"n" * 64}"}}]', "1 to 63"),
        (CLUSTER + 'hosts = [{name = "north", machine_id = "x"}]', "32 hexadecimal digits"),
        (HOSTS + CLUSTER + "losses = -1", "fleet.losses"),
        (HOSTS + CLUSTER + "[[fleet.pair]]\n" + PAIR.replace("south", "west"), "'west' is no host"),
        (HOSTS + CLUSTER + "[[fleet.pair]]\n" + PAIR.replace("south", "north"), "both on 'north'"),
        (HOSTS + CLUSTER + ("[[fleet.pair]]\n" + PAIR) * 2, "has two testers"),
        (HOSTS + 'workers = "here"\none_machine = true\n[[fleet.pair]]\n' + PAIR, "no wire to itself"),
        (HOSTS + CLUSTER + "[[fleet.pair]]\n" + PAIR + CABLE, "needs 2 cables"),
        (HOSTS + CLUSTER + "[[fleet.pair]]\n" + PAIR + CABLE * 2, "'eth1' of the host of the tester is in two cables"),
        (
            HOSTS.replace('"north"', '"north", measured = false') + CLUSTER,
            "'north' is not measured and no pair's tester",
        ),
        (
            HOSTS.replace('"south"', '"south", measured = false') + CLUSTER + "[[fleet.pair]]\n" + PAIR,
            "'south' is not measured and no pair's tester",
        ),
        (HOSTS + CLUSTER + "[[fleet.pair]]\n" + PAIR.replace("bandwidth", "timing"), "fleet.pair[0].suite"),
        (HOSTS + CLUSTER + "host = 1", "fleet.host: unknown field"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(section, words):
    with pytest.raises(UsageError) as refused:
        fleet_of(section)
    assert words in str(refused.value)
