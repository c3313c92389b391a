"""The schedule: complete, balanced, random by its seed, and the same whenever it is asked for."""

import dataclasses
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from virtgauge.execution.schedule import schedule, turns


@dataclasses.dataclass(frozen=True)
class Named:
    key: str
    testbed: str = "guest"


names = st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


@given(seed=st.integers(0, 2**63 - 1), repetitions=st.integers(1, 6), arms=names, cells=names)
def test_every_cell_of_every_arm_comes_once_in_every_block(seed, repetitions, arms, cells):
    batches = list(schedule(seed, repetitions, arms, [Named(c) for c in cells]))
    seen = Counter((s.block, s.arm, cell.key) for s in batches for cell in s.cells)
    assert len(seen) == repetitions * len(arms) * len(cells)
    assert set(seen.values()) == {1}


@given(seed=st.integers(0, 2**63 - 1), arms=names, cells=names)
def test_blocks_follow_one_another_and_do_not_depend_on_their_number(seed, arms, cells):
    named = [Named(c) for c in cells]
    short = list(schedule(seed, 2, arms, named))
    long = list(schedule(seed, 5, list(reversed(arms)), list(reversed(named))))
    assert long[: len(short)] == short
    assert [s.block for s in long] == sorted(s.block for s in long)


def test_the_order_of_the_arms_is_balanced_over_many_blocks():
    firsts = Counter(s.arm for i, s in enumerate(schedule(7, 3000, ["a", "b", "c"], [Named("x")])) if i % 3 == 0)
    # 3000 draws of 1/3: a standard deviation of 26
    assert all(abs(count - 1000) < 5 * 26 for count in firsts.values())


def test_another_seed_gives_another_order():
    def order(seed):
        return [s.arm for s in schedule(seed, 10, list("abcdef"), [Named("x")])]

    assert order(1) != order(2)
    assert order(1) == order(1)


@given(seed=st.integers(0, 2**63 - 1), arms=names, cells=names)
def test_cells_share_a_batch_only_with_those_of_their_testbed_and_arms_stand_side_by_side(seed, arms, cells):
    named = [Named(name, testbed=str(len(name) % 2)) for name in cells]
    batches = list(schedule(seed, 1, arms, named))
    assert all(cell.testbed == batch.testbed for batch in batches for cell in batch.cells)
    # within a block every testbed is gone through with all arms before the next begins
    testbeds = [batch.testbed for batch in batches]
    assert [testbeds[i] for i in range(0, len(testbeds), len(arms))] == list(dict.fromkeys(testbeds))


@given(seed=st.integers(0, 2**63 - 1), repetitions=st.integers(1, 9), each=st.integers(1, 4), arms=names, cells=names)
def test_repetitions_in_a_row_share_a_testbed_of_each_arm(seed, repetitions, each, arms, cells):
    batches = list(schedule(seed, repetitions, arms, [Named(c) for c in cells], each=each))
    assert Counter((s.block, s.arm) for s in batches) == Counter((n, arm) for n in range(repetitions) for arm in arms)
    found = [[batch.block for batch in turn] for turn in turns(batches, each)]
    starts = [blocks[0] for blocks in found]
    assert starts == sorted(start for start in range(0, repetitions, each) for _ in arms)
    assert all(blocks == list(range(blocks[0], min(blocks[0] + each, repetitions))) for blocks in found)
    longer = list(schedule(seed, repetitions + each, arms, [Named(c) for c in cells], each=each))
    assert set(batches) <= set(longer), "a run can be made longer"
