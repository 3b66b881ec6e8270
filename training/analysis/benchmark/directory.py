"""What an evaluation leaves on disk, and the claim that a folder belongs to one evaluation.

```
evaluation.json    what decides the answers: the model, the boards' files, the prompt, the sampling
answers.jsonl      one line per board, appended as answers come
results.json       rates with intervals, beside the published ones
.lock              who works here now (training/run/lock.py); empty if nobody does
```
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter

from jaxlake.files import make_room
from training.analysis.benchmark.boards import BenchmarkBoard, BenchmarkFolder
from training.errors import UserError
from training.run.directory import differing_keys
from training.run.records import Count, Digest, Record
from training.run.typed_files import JsonFile, JsonLog, TextFile
from training.schema import Prompt


class BenchmarkAnswer(Record):
    """One line of `answers.jsonl`: what a model said to one board."""

    config: str = Field(description="of the board, such as benchmark_wr0.25; empty: none")
    sample_id: str
    text: str = Field(description="the whole answer")
    tokens: Count = Field(description="generated for it, those of requests that timed out included")

    @property
    def key(self) -> tuple[str, str]:
        """What tells the board from all others of the benchmark."""
        return self.config, self.sample_id


class EvaluationRecord(Record):
    """`evaluation.json`: what decides the answers. Which boards are asked may change."""

    model: str = Field(description="the endpoint's name of the model, or `weights` and a digest")
    files: dict[str, Digest] = Field(description="the boards' files, by name in their folder")
    prompt: Prompt
    temperature: float = Field(ge=0.0, description="of sampling; 0: greedy")
    seed: int = Field(description="of sampling")
    request: dict[str, Any] = Field(description="further fields of an endpoint's requests")


class EvaluationDirectory:
    """The files of one evaluation."""

    def __init__(self, path: Path) -> None:
        """Name the files of the evaluation in `path`; nothing is read or written yet."""
        self.path = path
        self.evaluation = JsonFile(path / "evaluation.json", TypeAdapter(EvaluationRecord))
        self.answers = JsonLog(path / "answers.jsonl", TypeAdapter(BenchmarkAnswer))
        self.results = TextFile(path / "results.json")

    def claim(self, evaluation: EvaluationRecord, folder: BenchmarkFolder) -> bool:
        """Make the folder this evaluation's, and say whether it already was.

        Raises:
            UserError: It holds answers to other boards, whose file the message names, or of another
                model, prompt or sampling, or something else.
        """
        if not self.evaluation.exists():
            if not make_room(self.evaluation.path):
                problem = "is not empty and holds no evaluation; choose another --output"
                raise UserError(f"{self.path}: {problem}")
            self.evaluation.write(evaluation)
            return False
        theirs, ours = self.evaluation.read(), evaluation
        for name in dict.fromkeys([*theirs.files, *ours.files]):
            if theirs.files.get(name) != ours.files.get(name):
                raise UserError(
                    f"{folder.path / name}: holds other boards than those that {self.path} has "
                    f"answers to (SHA-256 {ours.files.get(name)}, not {theirs.files.get(name)}); "
                    "choose another --output"
                )
        trees = (json.loads(one.model_dump_json()) for one in (theirs, ours))
        if differences := differing_keys(*trees):
            raise UserError(
                f"{self.path}: holds another evaluation, which differs in "
                f"{', '.join(differences)}; choose another --output"
            )
        return True

    def read_answers(self, folder: BenchmarkFolder) -> dict[tuple[str, str], BenchmarkAnswer]:
        """Read the answers so far, by board; a `UserError` names one that there is no board for.

        Of several answers to one board the first one counts.
        """
        known = {board.key for board in folder.boards}
        answers: dict[tuple[str, str], BenchmarkAnswer] = {}
        for answer in self.answers.read():
            if answer.key not in known:
                name = "/".join(filter(None, answer.key))
                raise UserError(f"{self.answers.path}: {folder.path} has no board {name}")
            answers.setdefault(answer.key, answer)
        return answers


def benchmark_answer(board: BenchmarkBoard, text: str, tokens: int) -> BenchmarkAnswer:
    """Make the line for an answer to a board."""
    return BenchmarkAnswer(config=board.config, sample_id=board.sample_id, text=text, tokens=tokens)
