"""Boards as a Hugging Face dataset."""

import re

import datasets
import jax
import numpy as np
import pytest

import jaxlake
from jaxlake import Status, parse_grid
from jaxlake.datasets import to_hugging_face
from jaxlake.language.answers import parse_answer
from jaxlake.language.rewards import lake_reward
from jaxlake.solver import solve_batch
from tests.jaxlake.solver.boards import draw_grids, make_instances

ONE_AGENT_GRIDS = [["S F G", "F H F", "H F F"], ["F S", "G F"]]


@pytest.fixture(scope="module")
def boards():
    """Return solved, unsolvable and unknown boards of one and two agents, with solutions."""
    batch = make_instances([*draw_grids(9, 60, (2, 3, 4, 5, 6), (2,), 0.4), *ONE_AGENT_GRIDS], 7, 2)
    solutions = jax.device_get(solve_batch(batch, horizon=6))
    assert {Status(status) for status in solutions.status} == set(Status)
    assert solutions.needs_wait.any()
    assert (solutions.plan != solutions.makespan_plan).any()
    return batch, solutions


@pytest.fixture(scope="module")
def dataset(boards):
    return to_hugging_face(*boards, prompt="compact")


def test_boards_without_solutions_are_their_grids(boards):
    grid_dataset = to_hugging_face(boards[0])
    assert grid_dataset.column_names == ["grid", "size", "num_agents"]
    grids = [parse_grid(grid) for grid in grid_dataset["grid"]]
    batch = jaxlake.stack_instances(grids)
    assert jax.tree.all(
        jax.tree.map(np.array_equal, batch, make_instances(grid_dataset["grid"], 6, 2))
    )


def test_dataset_round_trips_through_parquet_and_json(dataset, tmp_path):
    for file_format, write_file in (("parquet", dataset.to_parquet), ("json", dataset.to_json)):
        file = str(tmp_path / f"boards.{file_format}")
        write_file(file)
        cache = str(tmp_path / "cache")
        copy = datasets.load_dataset(file_format, data_files=file, cache_dir=cache, split="train")
        assert copy.to_list() == dataset.to_list()


def test_prompt_is_messages_or_text_with_the_board(boards, dataset):
    text_dataset = to_hugging_face(boards[0], prompt="full", chat=False)
    assert "answer" not in text_dataset.column_names
    for row, text_prompt in zip(dataset, text_dataset["prompt"], strict=True):
        (message,) = row["prompt"]
        assert message["role"] == "user"
        for prompt in (message["content"], text_prompt):
            rows = re.findall(r"^[FHSsGg](?: [FHSsGg])+$", prompt, re.MULTILINE)
            assert rows == row["grid"]


def test_row_answer_earns_the_maximum_reward(dataset):
    solved_rows = dataset.filter(lambda row: row["status"] == "OPTIMAL")
    columns = {name: solved_rows[name] for name in ("grid", "sum_of_costs", "prompt")}
    rewards = lake_reward(columns.pop("prompt"), solved_rows["answer"], **columns)
    assert rewards == [1.0] * len(solved_rows)
    row = solved_rows[0]
    plan = parse_answer(row["answer"], row["num_agents"], max_steps=64).plan
    assert [len(actions) for actions in plan] == [max(1, len(actions)) for actions in row["plan"]]


def test_to_hugging_face_rejects_invalid_arguments(boards):
    batch, solutions = boards
    with pytest.raises(ValueError, match=r"must have shape \(B,\), got \(\)"):
        to_hugging_face(parse_grid(ONE_AGENT_GRIDS[0]))
    with pytest.raises(ValueError, match="solutions must have 2 entries, got 62"):
        to_hugging_face(make_instances(ONE_AGENT_GRIDS, 3, 2), solutions)
    with pytest.raises(ValueError, match=r"style must be one of .*, got 'short'"):
        to_hugging_face(batch, prompt="short")
