"""Sweep specifications: the configurations that they define, and their errors."""

import time

import numpy as np
import pytest

from jaxlake.environment.conflict_policies import ConflictPolicy
from jaxlake.policies import RandomPolicy, ShortestPathPolicy
from jaxlake.sweeps import SweepError, SweepSpec, load_spec

GRID = {"size": 6}
SAMPLES = {"count": 9, "size": 6}


def draw_columns(**fields):
    spec = SweepSpec(["random"], **fields)
    return spec.columns(0, spec.configurations)


def test_grid_is_the_product_of_its_knobs():
    knob_columns = draw_columns(
        grid={
            "size": {"from": 4, "to": 6},
            "hole_ratio": {"from": 0, "to": 0.3, "count": 4},
            "num_agents": [2, 3],
        }
    )
    rows = list(zip(*(knob_columns[name].tolist() for name in knob_columns), strict=True))
    holes = [0.0, 0.1, 0.2, 0.3]
    assert rows == [(n, h, 0.0, k) for n in (4, 5, 6) for h in holes for k in (2, 3)]


def test_samples_cover_their_ranges_and_depend_on_the_seed():
    knobs = {
        "count": 4000,
        "size": {"from": 4, "to": 6},
        "hole_ratio": {"from": 0.1, "to": 0.3},
        "wait_ratio": [0, 0.5],
    }
    samples = draw_columns(samples=knobs)
    sizes, counts = np.unique(samples["size"], return_counts=True)
    assert sizes.tolist() == [4, 5, 6]
    assert (abs(counts - 4000 / 3) < 150).all()  # five standard deviations
    holes = samples["hole_ratio"]
    assert 0.1 <= holes.min() < 0.101
    assert 0.299 < holes.max() <= 0.3 + 1e-7
    assert abs(np.corrcoef(samples["size"], holes)[0, 1]) < 0.08
    assert abs(np.mean(samples["wait_ratio"]) - 0.25) < 0.02
    other_samples = draw_columns(samples=knobs | {"seed": 1})
    assert 0.2 < np.mean(other_samples["size"] == samples["size"]) < 0.45


@pytest.mark.parametrize(
    "fields",
    [
        {"samples": {"count": 50, "size": {"from": 4, "to": 9}, "hole_ratio": [0.1, 0.2]}},
        {"grid": {"size": [4, 5], "hole_ratio": {"from": 0, "to": 0.24, "count": 25}}},
    ],
)
def test_columns_of_a_range_are_a_slice(fields):
    spec = SweepSpec(["random"], **fields)
    all_columns = spec.columns(0, 50)
    for start, stop in ((0, 1), (7, 23), (49, 50), (12, 12)):
        for name, values in spec.columns(start, stop).items():
            assert values.tolist() == all_columns[name][start:stop].tolist()


def test_million_configurations_are_drawn_in_seconds():
    start = time.process_time()
    spec = SweepSpec(["random"], samples={"count": 1 << 20, "size": {"from": 4, "to": 10}})
    spec.columns((1 << 20) - 1000, 1 << 20)
    assert time.process_time() - start < 0.5
    assert spec.chunk_size * spec.boards == 1 << 16


def test_policies_have_names_modules_or_mappings():
    spec = SweepSpec(["random", f"{__name__}:GREEDY", f"{__name__}:RestlessPolicy"], grid=GRID)
    assert list(spec.joint_policies.values()) == [RandomPolicy(), GREEDY, RestlessPolicy()]
    spec_of_mapping = SweepSpec({"mine": GREEDY}, grid=GRID)
    assert spec_of_mapping.joint_policies == {"mine": GREEDY}
    assert spec_of_mapping.record["policies"] == ["mine"]


def test_digest_depends_on_values_not_on_their_types():
    fields = {"samples": {"count": 9, "size": [4, 5], "seed": 3}, "boards": 8, "chunk": 4}
    array_fields = {
        "samples": {"count": np.int32(9), "size": np.array([4, 5]), "seed": np.uint8(3)},
        "boards": np.int64(8),
        "chunk": np.int64(4),
        "conflict": ConflictPolicy.FAIL,
    }
    digest = SweepSpec(["random"], **fields).digest
    assert SweepSpec(("random",), **array_fields).digest == digest
    assert SweepSpec(["random"], **fields, seed=1).digest != digest


GREEDY = ShortestPathPolicy()


class RestlessPolicy(RandomPolicy):
    """A policy as a class that is called without arguments."""


class NoPolicy:
    """No policy: it has no `act`."""

    def start(self, key, instance):
        return None


RATIO_ERROR = "grid.hole_ratio must be a number from 0 to 1"

INVALID_FIELDS = {
    "no section": ({}, "grid and samples must be set, got neither"),
    "two sections": ({"grid": GRID, "samples": SAMPLES}, "grid and samples must be set, got both"),
    "a list": ({"grid": [1]}, "grid must be a mapping of knobs, got [1]"),
    "no size": ({"grid": {}}, "grid.size must be a whole number from 2 to 32, got none"),
    "unknown knob": ({"grid": GRID | {"hole": 1}}, "the keys of grid must be among size, "),
    "count in a grid": ({"grid": GRID | {"count": 3}}, ", got count"),
    "large size": (
        {"grid": {"size": [4, 33]}},
        "grid.size must be a whole number from 2 to 32, got 33",
    ),
    "fraction": ({"grid": {"size": 4.5}}, "grid.size must be a whole number from 2 to 32, got 4.5"),
    "true": ({"grid": {"size": True}}, "grid.size must be a whole number from 2 to 32, got True"),
    "word": ({"grid": GRID | {"hole_ratio": "1e-1"}}, f"{RATIO_ERROR}, got '1e-1'"),
    "not a number": ({"grid": GRID | {"hole_ratio": float("nan")}}, f"{RATIO_ERROR}, got nan"),
    "twice": ({"grid": {"size": [4, 5, 4]}}, "grid.size must have distinct values, got 4 twice"),
    "empty": ({"grid": {"size": []}}, "grid.size must have 1 to 1,000,000 values, got 0"),
    "backwards": (
        {"grid": {"size": {"from": 5, "to": 4}}},
        "grid.size.from must be below grid.size.to, got 5 and 4",
    ),
    "no end": (
        {"grid": {"size": {"from": 5}}},
        "grid.size.to must be a whole number from 2 to 32, got None",
    ),
    "no step": (
        {"grid": GRID | {"hole_ratio": {"from": 0, "to": 1}}},
        "grid.hole_ratio.count must be a whole number from 2 to 1,000,000, got None",
    ),
    "too many sizes": (
        {"grid": {"size": {"from": 4, "to": 6, "count": 4}}},
        "grid.size.count must be a whole number from 2 to 3, got 4",
    ),
    "unknown end": (
        {"samples": SAMPLES | {"size": {"from": 4, "till": 6}}},
        "the keys of samples.size must be among from, to, got till",
    ),
    "no count": (
        {"samples": {"size": 6}},
        "samples.count must be the number of configurations, got none",
    ),
    "a negative count": (
        {"samples": SAMPLES | {"count": -1}},
        "samples.count must be a whole number from 1 to 4,294,967,296, got -1",
    ),
    "many samples": ({"samples": SAMPLES | {"count": 1 << 33}}, "4,294,967,296, got 8589934592"),
    "sample seed": (
        {"samples": SAMPLES | {"seed": -1}},
        "samples.seed must be a whole number from 0 to 4,294,967,295, got -1",
    ),
    "huge grid": (
        {
            "grid": {
                "size": [4, 5],
                "hole_ratio": {"from": 0, "to": 1, "count": 10**6},
                "wait_ratio": {"from": 0, "to": 1, "count": 10**6},
            }
        },
        "configurations, got 2,000,000,000,000",
    ),
    "waits of one agent": (
        {"grid": GRID | {"num_agents": [1, 2], "wait_ratio": [0, 0.5]}},
        "grid.wait_ratio must be 0 if num_agents may be 1, got 0.5",
    ),
    "boards": (
        {"grid": GRID, "boards": 0},
        "boards must be a whole number from 1 to 1,048,576, got 0",
    ),
    "seed": (
        {"grid": GRID, "seed": 1 << 32},
        "seed must be a whole number from 0 to 4,294,967,295, got 4294967296",
    ),
    "steps": (
        {"grid": GRID, "max_steps": "many"},
        "max_steps must be a whole number from 1 to 4,096, got 'many'",
    ),
    "candidates": (
        {"grid": GRID, "max_candidates": 0},
        "max_candidates must be a whole number from 1 to 1,073,741,824, got 0",
    ),
    "conflict": ({"grid": GRID, "conflict": "block"}, "did you mean block_both"),
    "conflicts": ({"grid": GRID, "conflict": ["fail"]}, "got ['fail']"),
    "tables": ({"grid": GRID, "tables": 1}, "tables must be true or false, got 1"),
    "large chunk": ({"grid": GRID, "chunk": 1 << 19}, "262,144, got 524288"),
    "many chunks": (
        {"samples": SAMPLES | {"count": 1 << 31}, "chunk": 8},
        "chunk must be a whole number from 2,148 to 262,144, got 8",
    ),
    "one policy": (
        {"grid": GRID, "policies": "random"},
        "policies must be a list of names or a mapping {name: policy}, got 'random'",
    ),
    "no policy": ({"grid": GRID, "policies": []}, "or a mapping {name: policy}, got []"),
    "policy twice": (
        {"grid": GRID, "policies": ["random"] * 2},
        "policies must have distinct names",
    ),
    "policy number": ({"grid": GRID, "policies": [3]}, "or a mapping {name: policy}, got 3 in it"),
    "unknown policy": (
        {"grid": GRID, "policies": ["optimum"]},
        "one of random, shortest_path, prioritised, optimal and module:NAME, got 'optimum'; "
        "did you mean optimal?",
    ),
    "unknown module": (
        {"grid": GRID, "policies": ["none_such:P"]},
        "policies: the module of none_such:P",
    ),
    "unknown name": (
        {"grid": GRID, "policies": [f"{__name__}:GREDY"]},
        f"module {__name__} has no attribute GREDY; did you mean GREEDY?",
    ),
    "no policy object": (
        {"grid": GRID, "policies": [f"{__name__}:NoPolicy"]},
        "which has no method act",
    ),
}


@pytest.mark.parametrize(("fields", "message"), INVALID_FIELDS.values(), ids=INVALID_FIELDS)
def test_spec_names_the_invalid_field(fields, message):
    with pytest.raises(SweepError) as error:
        SweepSpec(**({"policies": ["random"]} | fields))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grid: {size: 6}\npolicy: [random]", "keys must be among policies, grid, "),
        ("grid: {size: 6}", "policies must be a list of names, got none"),
        ("grid: {size: 6}\ngrid: {size: 5}\npolicies: [random]", "the key 'grid' is repeated"),
        ("grid: [6\n", "is not YAML"),
        ("- 3", "must hold a mapping of keys, got list"),
        ("grid: {size: 6}\npolicies: {mine: 3}", "policies must be a list of names, got a mapping"),
    ],
)
def test_load_spec_names_the_file_and_the_field(tmp_path, text, message):
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(Exception, match=r"sweep\.yaml: ") as error:
        load_spec(path)
    assert message in str(error.value)


def test_load_spec_applies_overrides(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text("grid: {size: 6}\npolicies: [random]\n")
    spec = load_spec(path, ["grid.size=[4, 5]", "boards=7"])
    assert (spec.configurations, spec.boards) == (2, 7)
