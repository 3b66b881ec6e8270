"""Numbers in configurations are parsed strictly; hostile trees raise one-line errors."""

import random

import pytest
import yaml

from tests.hostile import allow_only, alter_json, damage_bytes
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
def test_parse_yaml_rejects_equal_keys(text):
    with pytest.raises(ValueError, match="is repeated"):
        parse_yaml(text)


NESTED_ALIASES = ", ".join(["&b0 [1, 1]", *(f"&b{n} [*b{n - 1}, *b{n - 1}]" for n in range(1, 64))])


@pytest.mark.parametrize("value", [f"[{NESTED_ALIASES}]", "&x [*x]", "&x {a: *x}", "[" * 2000])
def test_load_rejects_self_referencing_values(value):
    with pytest.raises(UserError, match="is not YAML"):
        load(TINY, [f"validation.sizes={value}"])


def test_load_explains_hostile_configurations(tmp_path):
    rng, tree, file = random.Random(49), yaml.safe_load(TINY.read_text()), tmp_path / "config.yaml"
    for number in range(200):
        content = damage_bytes(TINY.read_bytes(), rng)
        if number % 2:
            content = yaml.safe_dump(alter_json(tree, rng, 0.05)).encode()
        file.write_bytes(content)
        with allow_only(UserError, 5000):
            load(file)
