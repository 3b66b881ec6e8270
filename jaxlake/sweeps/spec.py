"""Specification of a sweep: configurations, policies and boards."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxlake.environment.conflict_policies import ConflictPolicy, parse_conflict_policy
from jaxlake.errors import shorten
from jaxlake.policies.catalogue import POLICIES, policy_digest, policy_of
from jaxlake.policies.joint_rollout import JointPolicy, check_policy
from jaxlake.solver import DEFAULT_HORIZON
from jaxlake.sweeps.knobs import (
    KNOBS,
    Choice,
    Range,
    SweepError,
    check_keys,
    parse_grid_axis,
    parse_sample_axis,
)

MAX_CONFIGURATIONS = 1 << 32
MAX_BOARDS = 1 << 20
MAX_CHUNKS = 1_000_000

_BOARDS_PER_CHUNK = 1 << 16
_MAX_DEFAULT_CHUNK = 1 << 12
_MAX_TABLES = 1 << 11  # per chunk; a table takes about 40 kB
_MAX_BOARDS_PER_CHUNK = 1 << 24


@dataclass(frozen=True)
class SweepSpec:
    """Policies to evaluate, the configurations of the lake, and the boards per configuration.

    Exactly one of `grid` and `samples` describes the configurations by the knobs `size`,
    `hole_ratio` (default 0.2), `wait_ratio` (0) and `num_agents` (2).

    - `grid`: all combinations of the knobs' values. A knob is a number, a sequence of distinct
      numbers, or `{"from": A, "to": B, "count": N}` for N evenly spaced numbers from A to B. For
      integer knobs `count` is optional and defaults to all integers from A to B.
    - `samples`: `count` independent draws, determined by their own `seed` (default 0). A knob is a
      number, a sequence to choose from, or `{"from": A, "to": B}` for uniform draws.

    Raises:
        SweepError: A field is invalid; the message names the field, the value and the allowed
            values.
    """

    policies: Sequence[str] | Mapping[str, JointPolicy]  # names for `policy_of`, or a mapping
    grid: Mapping[str, Any] | None = None
    samples: Mapping[str, Any] | None = None
    boards: int = 64  # per configuration
    seed: int = 0  # 0 to 2**32 - 1; determines the boards and the policies' random draws
    max_steps: int = DEFAULT_HORIZON  # time limit of an episode, in steps
    horizon: int = DEFAULT_HORIZON  # longest plan of the solver, in steps
    conflict: ConflictPolicy | str = "fail"
    chunk: int | None = None  # configurations per file; None: about 65,536 two-agent boards
    max_candidates: int | None = None  # per configuration, see `jaxlake.generate`
    tables: bool = False  # whether to also store the full `Statistics`

    def __post_init__(self) -> None:
        for name, low, high in (
            ("boards", 1, MAX_BOARDS),
            ("seed", 0, 2**32 - 1),
            ("max_steps", 1, 4096),
            ("horizon", 1, 4096),
        ):
            _check_count(name, getattr(self, name), low, high)
        if self.max_candidates is not None:
            _check_count("max_candidates", self.max_candidates, 1, 1 << 30)
        if not isinstance(self.tables, bool):
            raise SweepError(f"tables must be true or false, got {shorten(self.tables)}")
        try:
            parse_conflict_policy(self.conflict)
        except (ValueError, TypeError) as error:
            raise SweepError(str(error)) from None
        section = self._section
        if self.configurations > MAX_CONFIGURATIONS:
            raise SweepError(
                f"{section} must have at most {MAX_CONFIGURATIONS:,} configurations, got "
                f"{self.configurations:,}"
            )
        max_wait_ratio = self.axes["wait_ratio"].high
        if self.axes["num_agents"].low == 1 and max_wait_ratio > 0:
            raise SweepError(
                f"{section}.wait_ratio must be 0 if num_agents may be 1, got {max_wait_ratio:g}; "
                "a single agent never waits"
            )
        if section == "samples":
            _check_count("samples.seed", self._knobs.get("seed", 0), 0, 2**32 - 1)
        if self.chunk is not None:
            min_size = -(-self.configurations // MAX_CHUNKS)
            _check_count("chunk", self.chunk, min_size, _MAX_BOARDS_PER_CHUNK // self.boards)
        _ = self.joint_policies  # raises for an invalid policy

    @cached_property
    def axes(self) -> dict[str, Choice | Range]:
        """Values of each knob, in the order of `KNOBS`."""
        section, knobs = self._section, self._knobs
        sample_keys = () if section == "grid" else ("count", "seed")
        check_keys(section, knobs, (*KNOBS, *sample_keys))
        parse = parse_grid_axis if section == "grid" else parse_sample_axis
        return {name: parse(f"{section}.{name}", name, knobs.get(name)) for name in KNOBS}

    @cached_property
    def configurations(self) -> int:
        """The number of configurations."""
        if self._section == "grid":
            return math.prod(axis.count for axis in self._choices.values())
        count = self._knobs.get("count")
        if count is None:
            raise SweepError("samples.count must be the number of configurations, got none")
        _check_count("samples.count", count, 1, MAX_CONFIGURATIONS)
        return int(count)

    @cached_property
    def joint_policies(self) -> dict[str, JointPolicy]:
        """The policies by name, in the order of the rows of a configuration."""
        policies = self.policies
        if (
            isinstance(policies, str)
            or not isinstance(policies, Mapping | Sequence)
            or not policies
        ):
            raise SweepError(
                "policies must be a list of names or a mapping {name: policy}, "
                f"got {shorten(policies)}"
            )
        if len(set(map(str, policies))) < len(policies):
            raise SweepError(f"policies must have distinct names, got {shorten(policies)}")
        by_name = {}
        for name in policies:
            if not isinstance(name, str) or not name:
                raise SweepError(
                    "policies must be a list of names or a mapping {name: policy}, "
                    f"got {shorten(name)} in it"
                )
            try:
                if isinstance(policies, Mapping):
                    check_policy(name, policies[name])
                    by_name[name] = policies[name]
                else:
                    by_name[name] = policy_of(name, horizon=self.horizon)
            except ValueError as error:
                raise SweepError(f"policies: {error}") from None
        return by_name

    @cached_property
    def chunk_size(self) -> int:
        """The number of configurations per file; the last file may have fewer."""
        if self.chunk is not None:
            return min(int(self.chunk), self.configurations)
        size = _BOARDS_PER_CHUNK // self.boards // 4 ** max(0, self.max_agents - 2)
        max_default_size = _MAX_TABLES // len(self.policies) if self.tables else _MAX_DEFAULT_CHUNK
        min_size = -(-self.configurations // MAX_CHUNKS)
        return max(1, min_size, min(size, max_default_size, self.configurations))

    @property
    def chunks(self) -> int:
        """The number of files of rows."""
        return -(-self.configurations // self.chunk_size)

    def chunk_range(self, chunk: int) -> range:
        """Return the indices of the configurations of a chunk."""
        start = chunk * self.chunk_size
        return range(start, min(start + self.chunk_size, self.configurations))

    @property
    def max_size(self) -> int:
        """The side length to which all boards are padded."""
        return int(self.axes["size"].high)

    @property
    def max_agents(self) -> int:
        """The number of agent slots of all boards."""
        return int(self.axes["num_agents"].high)

    @property
    def record(self) -> dict[str, Any]:
        """All fields that determine the results, as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        record = {
            name: value.item() if isinstance(value, np.integer) else value
            for name, value in values.items()
        }
        section = {name: axis.record for name, axis in self.axes.items()}
        if self._section == "samples":
            section |= {"count": self.configurations, "seed": self._sample_seed}
        user_policies = {
            name: policy_digest(policy)
            for name, policy in self.joint_policies.items()
            if name not in POLICIES or isinstance(self.policies, Mapping)
        }
        return (
            record
            | ({"policy_digests": user_policies} if user_policies else {})
            | {
                "policies": list(self.joint_policies),
                self._section: section,
                "conflict": parse_conflict_policy(self.conflict).value,
                "chunk": self.chunk_size,
            }
        )

    @property
    def digest(self) -> str:
        """The SHA-256 of `record`, in hexadecimal."""
        return spec_digest(self.record)

    def columns(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return the knobs of the configurations `start` to `stop` - 1.

        The arrays have shape (stop - start,); sizes and agents are int32, ratios float64.
        """
        if not 0 <= start <= stop <= self.configurations:
            raise IndexError(
                f"start and stop must be in [0, {self.configurations}], got {start} and {stop}"
            )
        if self._section == "grid":
            choices = self._choices
            shape = [choice.count for choice in choices.values()]
            indices = np.unravel_index(np.arange(start, stop), shape)
            return {
                name: choice.values[index]
                for (name, choice), index in zip(choices.items(), indices, strict=True)
            }
        # Philox draws four 64-bit words per step of its counter: one per knob of a configuration.
        generator = np.random.Philox(key=[self._sample_seed, 0], counter=[start, 0, 0, 0])
        words = generator.random_raw(len(KNOBS) * (stop - start)).reshape(-1, len(KNOBS))
        uniform = (words >> np.uint64(11)) * 2.0**-53
        return {name: axis.draw(uniform[:, i]) for i, (name, axis) in enumerate(self.axes.items())}

    @property
    def _choices(self) -> dict[str, Choice]:
        """The axes of a grid, which are all choices."""
        return {name: axis for name, axis in self.axes.items() if isinstance(axis, Choice)}

    @cached_property
    def _section(self) -> str:
        if (self.grid is None) == (self.samples is None):
            quantity = "neither" if self.grid is None else "both"
            raise SweepError(f"exactly one of grid and samples must be set, got {quantity}")
        return "samples" if self.grid is None else "grid"

    @property
    def _knobs(self) -> Mapping[str, Any]:
        knobs = getattr(self, self._section)
        if not isinstance(knobs, Mapping):
            raise SweepError(f"{self._section} must be a mapping of knobs, got {shorten(knobs)}")
        return knobs

    @property
    def _sample_seed(self) -> int:
        return int(self._knobs.get("seed", 0))


def spec_digest(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a specification's record, in hexadecimal."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def load_spec(path: str | Path, overrides: Sequence[str] = ()) -> SweepSpec:
    """Return the specification in a YAML file whose keys are the fields of `SweepSpec`.

    Args:
        path: The YAML file.
        overrides: Replacements for values of the file, as `key=value` or `key.sub=value`.

    Raises:
        UserError: The file cannot be read or is not YAML, or a key or value is invalid.
    """
    from jaxlake.yaml_files import apply_override, read_yaml

    tree = read_yaml(Path(path))
    for override in overrides:
        apply_override(override, tree)
    try:
        check_keys("", tree, [field.name for field in fields(SweepSpec)])
        if "policies" not in tree:
            raise SweepError("policies must be a list of names, got none")
        if isinstance(tree["policies"], Mapping):
            raise SweepError("policies must be a list of names, got a mapping")
        return SweepSpec(**tree)
    except SweepError as error:
        raise SweepError(f"{path}: {error}") from None


def _check_count(name: str, value: Any, low: int, high: int) -> None:
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or not low <= value <= high:
        raise SweepError(
            f"{name} must be a whole number from {low:,} to {high:,}, got {shorten(value)}"
        )
