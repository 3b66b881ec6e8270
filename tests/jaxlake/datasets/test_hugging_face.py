"""Boards as a data set of Hugging Face's library: exact in both directions, by every way there."""

import re

import datasets
import jax
import numpy as np
import pytest

from jaxlake import Status, parse_grid
from jaxlake.datasets import (
    DatasetError,
    from_hugging_face,
    to_hugging_face,
)
from jaxlake.language.answers import parse_answer
from jaxlake.language.rewards import lake_reward
from jaxlake.solver import solve_batch
from tests.jaxlake.solver.boards import instances, random_grids

PADDING = {"max_size": 7, "max_agents": 2, "horizon": 6}
SINGLE = [["S F G", "F H F", "H F F"], ["F S", "G F"]]


def assert_exact(got, wanted):
    """The same tree, shapes, dtypes and values."""
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for found, leaf in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert isinstance(found, np.ndarray)
        assert found.dtype == leaf.dtype
        np.testing.assert_array_equal(found, leaf)


@pytest.fixture(scope="module")
def boards():
    """Boards of one and two agents in NumPy leaves: solved, unsolvable, and unknown."""
    batch = instances([*random_grids(9, 60, (2, 3, 4, 5, 6), (2,), 0.4), *SINGLE], 7, 2)
    solutions = jax.device_get(solve_batch(batch, horizon=PADDING["horizon"]))
    assert {Status(one) for one in solutions.status} == set(Status)
    assert solutions.needs_wait.any()
    assert (solutions.plan != solutions.makespan_plan).any()
    return batch, solutions


@pytest.fixture(scope="module")
def dataset(boards):
    return to_hugging_face(*boards, prompt="compact")


def test_boards_and_solutions_come_back_exactly(boards, dataset):
    assert_exact(from_hugging_face(dataset, **PADDING), boards)


def test_boards_without_solutions_come_back_exactly(boards):
    made = to_hugging_face(boards[0])
    assert made.column_names == ["grid", "size", "num_agents"]
    assert_exact(from_hugging_face(made, max_size=7, max_agents=2), (boards[0], None))


def test_the_padding_is_that_of_the_largest_board_unless_told():
    five = ["S s A B", "C H F F", "G g a b", "c F F F"]
    batch = instances([five, *SINGLE], 9, 5)
    found, _ = from_hugging_face(to_hugging_face(batch))
    assert found.holes.shape == (3, 4, 4)
    assert found.agent_mask.shape == (3, 5)
    assert_exact(found, instances([five, *SINGLE], 4, 5))
    single, _ = from_hugging_face(to_hugging_face(instances(SINGLE, 9, 1)))
    assert single.agent_mask.shape == (2, 2), "as many slots as the solver needs"


def test_boards_come_back_exactly_from_parquet_and_json(boards, dataset, tmp_path):
    for way, write in (("parquet", dataset.to_parquet), ("json", dataset.to_json)):
        file = str(tmp_path / f"boards.{way}")
        write(file)
        cache = str(tmp_path / "cache")
        again = datasets.load_dataset(way, data_files=file, cache_dir=cache, split="train")
        assert_exact(from_hugging_face(again, **PADDING), boards)


def test_a_prompt_is_messages_or_a_text_that_holds_the_board(boards, dataset):
    text = to_hugging_face(boards[0], prompt="full", chat=False)
    assert "answer" not in text.column_names
    for row, words in zip(dataset, text["prompt"], strict=True):
        (message,) = row["prompt"]
        assert message["role"] == "user"
        for prompt in (message["content"], words):
            rows = re.findall(r"^[FHSsGg](?: [FHSsGg])+$", prompt, re.MULTILINE)
            assert rows == row["grid"]


def test_the_answer_of_a_row_earns_the_best_reward(dataset):
    solved = dataset.filter(lambda row: row["status"] == "OPTIMAL")
    columns = {name: solved[name] for name in ("grid", "sum_of_costs", "prompt")}
    paid = lake_reward(columns.pop("prompt"), solved["answer"], **columns)
    assert paid == [1.0] * len(solved)
    row = solved[0]
    plan = parse_answer(row["answer"], row["num_agents"], max_steps=64).plan
    assert [len(one) for one in plan] == [max(1, len(one)) for one in row["plan"]]


def _changed(dataset, name, value):
    rows = dataset.to_list()
    rows[1][name] = value
    return datasets.Dataset.from_list(rows, features=dataset.features)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("grid", ["S F", "F Q"], "row 1: row 1, column 1: got 'Q'"),
        ("grid", None, "row 1: "),
        ("status", "SOLVED", "row 1: status: got 'SOLVED', allowed are OPTIMAL"),
        ("sum_of_costs", None, "row 1: sum_of_costs: missing, but the status is OPTIMAL"),
        ("plan", [["UP"]], "row 1: plan: got 1 agents and 1 steps, 2 agents and at most 6"),
        ("plan", [["UP"] * 7, []], "row 1: plan: got 2 agents and 7 steps"),
        ("plan", [["NORTH"], []], "row 1: plan: got the action 'NORTH', allowed are WAIT"),
    ],
)
def test_a_damaged_row_is_named(name, value, message, dataset):
    solved = dataset.filter(lambda row: row["status"] == "OPTIMAL")
    with pytest.raises(DatasetError, match=message):
        from_hugging_face(_changed(solved, name, value), **PADDING)


def test_what_is_no_split_of_such_a_set_is_refused(dataset):
    for given, message in (
        (datasets.DatasetDict(train=dataset), "got DatasetDict, one split is needed"),
        (dataset.remove_columns("grid"), "the columns grid are missing"),
        (dataset.remove_columns("plan"), "the columns plan are missing"),
        (dataset.select([]), "got no rows"),
    ):
        with pytest.raises(DatasetError, match=message):
            from_hugging_face(given)
    with pytest.raises(DatasetError, match=r"grid: has \d, max_size is 4"):
        from_hugging_face(dataset, max_size=4)
    with pytest.raises(DatasetError, match="grid: has 2, max_agents is 1"):
        from_hugging_face(dataset, max_agents=1)


def test_what_is_no_batch_of_boards_is_refused(boards):
    batch, solutions = boards
    with pytest.raises(ValueError, match=r"got size of shape \(\)"):
        to_hugging_face(parse_grid(SINGLE[0]))
    with pytest.raises(ValueError, match="solutions: got 62 for 2 boards"):
        to_hugging_face(instances(SINGLE, 3, 2), solutions)
    with pytest.raises(ValueError, match="style: got 'short'"):
        to_hugging_face(batch, prompt="short")
