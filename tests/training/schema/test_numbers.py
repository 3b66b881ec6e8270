"""Numbers in configurations are parsed strictly; hostile trees raise one-line errors."""

import random
from contextlib import suppress

import pytest

from tests.paths import TINY
from training.errors import UserError
from training.schema import load, parse_yaml


@pytest.mark.parametrize(
    "override",
    [
        "environment.num_agents=1.9",
        "environment.num_agents=true",
        "seed=true",
        "seed='\u0663'",
        "validation.seed=true",
        "validation.sizes=[true, 3]",
        "validation.hole_ratios=[false]",
        "model.scratch.head_dim=yes",
        "grpo.learning_rate=.inf",
        "grpo.learning_rate=1e999",
        "stages.count=1e9",
        "stages.count=1000000000",
        "environment.bounds.sizes=[2.5]",
    ],
)
def test_load_rejects_invalid_numbers(override):
    key = override.partition("=")[0]
    with pytest.raises(UserError, match=key.rpartition(".")[2]):
        load(TINY, [override])


@pytest.mark.parametrize("text", ["{0x3: 1, 3: 2}", "{1: a, true: b}", "{1.0: a, 1: b}"])
def test_parse_yaml_refuses_a_key_written_in_two_ways(text):
    with pytest.raises(ValueError, match="stands twice"):
        parse_yaml(text)


def test_load_says_what_is_wrong_with_hostile_configurations(tmp_path):
    rng, lines = random.Random(49), TINY.read_text().splitlines()
    values = [
        "[" * 200,
        "{a: &x [*x]}",
        ".nan",
        "9" * 5000,
        "!!python/name:os.system",
        "\ud7ff",
        "-1",
    ]
    file = tmp_path / "config.yaml"
    for _ in range(120):
        changed = list(lines)
        place = rng.randrange(len(changed))
        head = changed[place].partition(":")[0]
        changed[place] = f"{head}: {rng.choice(values)}"
        file.write_text("\n".join(changed))
        with suppress(UserError):  # other errors would be tracebacks
            load(file)
