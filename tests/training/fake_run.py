"""The loop without vLLM, and a loop that dies in the middle of a phase.

`python -m tests.training.fake_run CONFIG RUN_DIR POINT KEY=VALUE ...` runs a configuration, with
its real engine, in a process that kills itself (SIGKILL) at POINT: one of `POINTS`, or `none`.
"""

import hashlib
import json
import os
import pkgutil
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from unittest import mock

import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import AutoTokenizer

from engineer.space import AnswerForm
from jaxlake import Action
from jaxlake.language.prompts import target
from training import loop
from training.phases import design_learning, rehearsal, train, warm_start
from training.sampling import engines
from training.sampling.sampler import Completion, SamplingRequest
from training.schema import load

POINTS = {
    # between two checkpoints, after optimizer steps that are not saved
    "warm_start": ("training.learner.imitation.pad_sequences", 15),
    # completions are drawn, nothing is learned from them yet; once in the second update
    "rollout": ("training.rollout.rollout.overlong_penalty", 2),
    # weights are updated and handed to vLLM, the metrics not written
    "update": ("training.phases.train.check_rollout", 3),
    # answers are verified, nothing is written
    "validation": ("training.phases.validate.judge_answers", 1),
    # the answer is reviewed, nothing is written
    "design": ("training.phases.design._run_engineer", 1),
}
IGNORED_FILES = ("timings.jsonl", "report.html", "checkpoints", "engine", "SHA256SUMS")


class KilledError(BaseException):
    """Ends a run in this process; nothing catches it."""


def raise_killed(*_: Any) -> NoReturn:
    raise KilledError


@contextmanager
def interrupt_at(point: str, interrupt: Callable[[], None]) -> Iterator[None]:
    """Call `interrupt` at a point of the run; `none` is never reached."""
    if point == "none":
        yield
        return
    function_name, interrupted_call = POINTS[point]
    function = pkgutil.resolve_name(function_name)
    calls = 0

    def call_and_count(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        result = function(*args, **kwargs)
        calls += 1
        if calls == interrupted_call:
            interrupt()
        return result

    with mock.patch(function_name, call_and_count):
        yield


def read_comparable_files(run_dir: Path) -> dict[str, bytes]:
    """Return the files of a run that must be equal for equal runs."""
    paths = {str(path.relative_to(run_dir)): path for path in run_dir.rglob("*") if path.is_file()}
    return {
        name: re.sub(rb'"seconds": [0-9.e-]+', b"", path.read_bytes())
        for name, path in paths.items()
        if not name.startswith(IGNORED_FILES)
    }


def assert_same_files(expected_dir: Path, run_dir: Path) -> None:
    """Assert that two runs have equal files."""
    expected, run_files = read_comparable_files(expected_dir), read_comparable_files(run_dir)
    assert sorted(run_files) == sorted(expected)
    assert [name for name in expected if run_files[name] != expected[name]] == []


@contextmanager
def without_vllm() -> Iterator[None]:
    """Let the loop run without vLLM, and the warm start read fewer synthetic contexts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "VllmSampler", StandInSampler)
        patch.setattr(loop, "check_engine", lambda *_: None)
        for phase in (train, design_learning):  # it can't know the log-probabilities
            patch.setattr(phase, "check_rollout", lambda *_, **__: None)
        patch.setattr(warm_start, "EXAMPLES", 64)
        patch.setattr(rehearsal, "EXAMPLES", 64)
        yield


class StandInSampler:
    """Writes plans and configurations that follow from weights, prompt and seed alone.

    Other weights give other answers, so a lost update shows.
    """

    num_open: ClassVar[int] = 0

    def __init__(self, folder: Path, settings: Any, *, seed: int = 0) -> None:
        StandInSampler.num_open += 1
        self._open = True
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self.sync(load_file(folder / "model.safetensors").items())

    def sync(self, tensors: Iterable[tuple[str, Any]]) -> None:
        arrays = {name: np.asarray(tensor) for name, tensor in tensors}
        digest = hashlib.sha256()
        for name in sorted(arrays):
            digest.update(name.encode() + arrays[name].tobytes())
        self.weights = digest.hexdigest()
        self.weight_version = self.weights[:8]

    def drop_cache(self) -> None:
        pass

    def close(self) -> None:
        """Close the sampler, which a rollout drawn ahead may have closed already."""
        StandInSampler.num_open -= self._open
        self._open = False

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        groups = []
        for index, prompt in enumerate(request.prompts):
            seed_text = json.dumps([self.weights, list(prompt), request.seed, index])
            rng = np.random.default_rng(list(hashlib.sha256(seed_text.encode()).digest()))
            prompt_text = self._tokenizer.decode(prompt)
            texts = [_write_answer(rng, prompt_text, request.form) for _ in range(request.n)]
            groups.append([self._make_completion(text, request) for text in texts])
        return groups

    def _make_completion(self, text: str, request: SamplingRequest) -> Completion:
        ids = [*self._tokenizer.encode(text, add_special_tokens=False), *request.stop_token_ids]
        token_ids = tuple(ids[: request.max_tokens])
        return Completion(
            token_ids, np.full(len(token_ids), -0.5, np.float32), len(token_ids) < len(ids)
        )


def _write_answer(rng: np.random.Generator, prompt: str, form: AnswerForm | None) -> str:
    if form is not None:
        return _write_design(rng, form)
    if match := re.search(r"with the map sizes ([0-9, ]+) as keys", prompt):  # a context in words
        properties = dict.fromkeys(match[1].split(", "))
        return f"Diagnosis: too easy.\n{_write_design(rng, {'properties': properties})}"
    if groups := re.findall(r"^n ?(\d+) ", prompt, re.MULTILINE):  # a compact context, free form
        return "\n".join(f"n{group} {' '.join(rng.choice(list('=-+'), 3))}" for group in groups)
    return _write_plan(rng, prompt)


def _write_plan(rng: np.random.Generator, prompt: str) -> str:
    """Each agent's shortest path on an empty board; every other plan begins with a random step."""
    action_lists: list[list[Action]] = []
    for coordinates in re.findall(r"\((\d+), (\d+)\) to \((\d+), (\d+)\)", prompt):
        row, column, goal_row, goal_column = map(int, coordinates)
        num_down, num_right = goal_row - row, goal_column - column
        action_lists.append([Action.DOWN if num_down > 0 else Action.UP] * abs(num_down))
        action_lists[-1] += [Action.RIGHT if num_right > 0 else Action.LEFT] * abs(num_right)
    plan = np.full((max(map(len, action_lists), default=0) + 1, len(action_lists)), Action.WAIT)
    for agent, actions in enumerate(action_lists):
        plan[: len(actions), agent] = actions
    if rng.random() < 0.5:
        plan[0] = rng.choice(list(Action))
    return target(plan)


def _write_design(rng: np.random.Generator, form: AnswerForm) -> str:
    """Random edits if the form is their pattern, else random ratios."""
    if isinstance(form, str):
        pattern = re.sub(r"\[[-+=]+\]", lambda _: str(rng.choice(["-", "=", "+"])), form)
        text = re.sub(r"\\(.)", r"\1", pattern)
        assert re.fullmatch(form, text)
        return text
    ratio_names = ("data_ratio", "hole_ratio", "wait_ratio")
    return json.dumps(
        {
            group: {name: int(rng.integers(1, 5)) / 20 for name in ratio_names}
            for group in form["properties"]
        }
    )


def main(config: str, run_dir: str, point: str, *overrides: str) -> None:
    with interrupt_at(point, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        loop.run(load(Path(config), overrides), Path(run_dir))


if __name__ == "__main__":
    main(*sys.argv[1:])
