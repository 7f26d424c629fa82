"""Where the code cuts data into blocks: found in the sources, crossed in an audit, and put back afterwards."""

from __future__ import annotations

from apportion.auditing.boundaries import NOT_SIZES, Sizes, block_sizes, is_shrunk, small_blocks
from apportion.linalg import lattice

from strategies import random_interactions

SMALL = Sizes(users=400, rows=3000, items=50, of_one_user=40, of_one_item=300)


def test_sizes_are_those_of_the_data():
    data = random_interactions(0)
    sizes = Sizes.of(data)
    assert (sizes.users, sizes.rows, sizes.items) == (data.n_users, data.n_observations, data.n_tasks)
    assert sizes.of_one_item == data.by_task.counts.max()
    assert sizes.of_one_user == max((data.users == user).sum() for user in range(data.n_users))


def test_blocks_are_smaller_during_an_audit_and_as_they_were_afterwards():
    before = lattice._AT_A_TIME
    assert before > 2 * SMALL.rows
    with small_blocks(SMALL):
        assert lattice._AT_A_TIME == 256
    assert before == lattice._AT_A_TIME


def test_a_block_that_the_data_cross_stays():
    large = Sizes(users=10**6, rows=10**8, items=10**5, of_one_user=10**5, of_one_item=10**6)
    with small_blocks(large):
        assert block_sizes()["apportion.linalg.lattice._AT_A_TIME"] == lattice._AT_A_TIME
    assert not is_shrunk("apportion.linalg.lattice._AT_A_TIME", large)


def test_limits_that_are_not_blocks_stay_unless_asked_for():
    from apportion.privacy.contributions import key_counts

    with small_blocks(SMALL):
        assert key_counts._MOST == 100_000
    with small_blocks(SMALL, all_numbers=True):
        assert key_counts._MOST == 256


def test_what_is_said_of_each_block_is_true_of_these_sizes():
    with small_blocks(SMALL) as blocks:
        said = {block.name: block.crossed for block in blocks}
    assert said["apportion.linalg.lattice._AT_A_TIME"] == "made smaller, to 256"
    assert not set(NOT_SIZES) & set(said)
    with small_blocks(Sizes(5, 20, 4, 6, 5)) as blocks:
        tiny = {block.name: block.crossed for block in blocks}
    assert tiny["apportion.linalg.lattice._AT_A_TIME"] == "not crossed: the data are too small"
