"""The contexts that a base model imitates, and those that measure its reading."""

import re
from collections import Counter

import numpy as np
import pytest

from examples.base_model.designs import draw_examples, draw_swaps
from examples.base_model.recipe import Designs

SETTINGS = Designs(sizes=(2, 3, 4, 5, 6), groups=(2, 4), count=600)
COLUMNS = {
    "valid": [1],
    "failures": [2, 3],
    "trend": [4],
    "learnability": [5],
    "levels": [6, 8, 10],
    "last_edit": [7, 9, 11],
}


@pytest.fixture(scope="module")
def examples():
    return draw_examples(np.random.default_rng(0), SETTINGS)


@pytest.fixture(scope="module")
def swap_pairs():
    return draw_swaps(np.random.default_rng(1), SETTINGS, 12)


def split_rows(context: str) -> list[list[str]]:
    return [line.split() for line in context.split("\n")[1:-2]]


def test_designs_answer_has_the_sizes_of_its_context(examples):
    size_counts, group_counts = Counter(), Counter()
    for example in examples:
        names = [row[0] for row in split_rows(example.context)]
        assert names == sorted(names)
        assert [line.split()[0] for line in example.answer.split("\n")] == names
        assert re.fullmatch(r"(n\d+( [-=+]){3}\n?)+", example.answer)
        size_counts.update(names)
        group_counts[len(names)] += 1
    assert set(size_counts) == {f"n{size}" for size in SETTINGS.sizes}
    assert set(group_counts) == {2, 3, 4}


def test_swap_changes_one_fact_and_the_rule_answer(swap_pairs):
    assert Counter(pair.fact for pair in swap_pairs) == dict.fromkeys(COLUMNS, 12)
    for pair in swap_pairs:
        plain_rows, swapped_rows = split_rows(pair.plain.context), split_rows(pair.swapped.context)
        assert pair.plain.context.split("\n")[0] == pair.swapped.context.split("\n")[0]
        changed_columns = {
            column
            for plain_row, swapped_row in zip(plain_rows, swapped_rows, strict=True)
            for column, words in enumerate(zip(plain_row, swapped_row, strict=True))
            if words[0] != words[1]
        }
        assert changed_columns
        assert changed_columns <= set(COLUMNS[pair.fact])
        assert pair.plain.answer != pair.swapped.answer
        assert len(pair.plain.answer) == len(pair.swapped.answer)
