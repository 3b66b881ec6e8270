"""Stands in for vLLM in tests of the loop: no engine is started, and every part else is real."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

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
from training.sampling.sampler import Completion, Question


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

    Other weights give other answers. So a run in which an update is lost, or does not reach the
    sampler, goes on differently.
    """

    open_ones: ClassVar[int] = 0

    def __init__(self, folder: Path, settings: Any, *, seed: int = 0) -> None:
        StandInSampler.open_ones += 1
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
        StandInSampler.open_ones -= self._open
        self._open = False

    def sample(self, question: Question) -> list[list[Completion]]:
        groups = []
        for place, prompt in enumerate(question.prompts):
            known = json.dumps([self.weights, list(prompt), question.seed, place])
            rng = np.random.default_rng(list(hashlib.sha256(known.encode()).digest()))
            task = self._tokenizer.decode(prompt)
            texts = [_answer(rng, task, question.form) for _ in range(question.n)]
            groups.append([self._completion(text, question) for text in texts])
        return groups

    def _completion(self, text: str, question: Question) -> Completion:
        ids = [*self._tokenizer.encode(text, add_special_tokens=False), *question.stop_token_ids]
        kept = tuple(ids[: question.max_tokens])
        return Completion(kept, np.full(len(kept), -0.5, np.float32), len(kept) < len(ids))


def _answer(rng: np.random.Generator, task: str, form: AnswerForm | None) -> str:
    if form is not None:
        return _design(rng, form)
    if groups := re.findall(r"^n ?(\d+) ", task, re.MULTILINE):  # a compact context, free form
        return "\n".join(f"n{group} {' '.join(rng.choice(list('=-+'), 3))}" for group in groups)
    return _plan(rng, task)


def _plan(rng: np.random.Generator, task: str) -> str:
    """Each agent's shortest path without the others and the holes, or in half of the cases a step.

    That is often valid on a small board, and often not.
    """
    moves: list[list[Action]] = []
    for numbers in re.findall(r"\((\d+), (\d+)\) to \((\d+), (\d+)\)", task):
        row, column, goal_row, goal_column = map(int, numbers)
        down, right = goal_row - row, goal_column - column
        moves.append([Action.DOWN if down > 0 else Action.UP] * abs(down))
        moves[-1] += [Action.RIGHT if right > 0 else Action.LEFT] * abs(right)
    plan = np.full((max(map(len, moves), default=0) + 1, len(moves)), Action.WAIT)
    for agent, actions in enumerate(moves):
        plan[: len(actions), agent] = actions
    if rng.random() < 0.5:
        plan[0] = rng.choice(list(Action))
    return target(plan)


def _design(rng: np.random.Generator, form: AnswerForm) -> str:
    """Random edits if the form is their pattern, else random ratios."""
    if isinstance(form, str):
        rows = re.sub(r"\[[-+=]+\]", lambda _: str(rng.choice(["-", "=", "+"])), form)
        text = re.sub(r"\\(.)", r"\1", rows)
        assert re.fullmatch(form, text)
        return text
    knobs = ("data_ratio", "hole_ratio", "wait_ratio")
    return json.dumps(
        {
            group: {knob: int(rng.integers(1, 5)) / 20 for knob in knobs}
            for group in form["properties"]
        }
    )
