"""Let a model answer a benchmark, or the rest of it, and report its rates beside published ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter

from jaxlake.datasets import PublishedResult, published_results
from jaxlake.files import make_room
from training.analysis.benchmark.answering import Answerer
from training.analysis.benchmark.boards import BenchmarkBoard, BenchmarkFolder
from training.analysis.benchmark.results import judge, print_rates, results_json
from training.errors import UserError
from training.run.directory import differing_keys
from training.run.lock import hold
from training.run.progress import console, track
from training.run.records import Count, Digest, Record
from training.run.typed_files import JsonFile, JsonLog, TextFile
from training.schema import Prompt, RunConfig

BESIDE = ("Qwen3-4B (base)", "Qwen3-4B + GRPO (random)", "Qwen3-4B + GRPO + Ours")
"""The published models beside which rates stand."""


class BenchmarkAnswer(Record):
    """One line of `answers.jsonl`: a model's answer to one board."""

    config: str = Field(description="of the board, such as benchmark_wr0.25; empty: none")
    sample_id: str
    text: str = Field(description="the whole answer")
    tokens: Count = Field(description="generated for it, those of requests that timed out included")


class EvaluationRecord(Record):
    """`evaluation.json`: the settings that decide the answers. The boards asked may change."""

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

    def claim(self, evaluation: EvaluationRecord, folder: BenchmarkFolder) -> None:
        """Make the folder this evaluation's; a `UserError` says if it holds anything else."""
        if not self.evaluation.exists():
            if not make_room(self.evaluation.path):
                problem = "is not empty and holds no evaluation; choose another --output"
                raise UserError(f"{self.path}: {problem}")
            self.evaluation.write(evaluation)
            return
        theirs = self.evaluation.read()
        for name in dict.fromkeys([*theirs.files, *evaluation.files]):
            if theirs.files.get(name) != evaluation.files.get(name):
                raise UserError(
                    f"{folder.path / name}: holds other boards than those that {self.path} has "
                    "answers to; choose another --output"
                )
        trees = (json.loads(one.model_dump_json()) for one in (theirs, evaluation))
        if differences := differing_keys(*trees):
            raise UserError(
                f"{self.path}: holds another evaluation, which differs in "
                f"{', '.join(differences)}; choose another --output"
            )

    def read_answers(self) -> dict[tuple[str, str], tuple[str, int]]:
        """Read text and tokens of the answers so far, by board; the first one to a board counts."""
        answers: dict[tuple[str, str], tuple[str, int]] = {}
        for one in self.answers.read():
            answers.setdefault((one.config, one.sample_id), (one.text, one.tokens))
        return answers


def evaluate_benchmark(
    config: RunConfig,
    folder: BenchmarkFolder,
    places: Sequence[int],  # of the boards that are asked for
    answerer: AbstractContextManager[Answerer],
    output: Path,
    *,
    request: dict[str, Any],  # further fields of an endpoint's requests
) -> bool:
    """Answer the boards that have no answer in `output` yet, then write and print all rates.

    The prompt, the temperature and the seed are those of `config`. True if every board that was
    asked for has an answer then. Rates are over the boards that were asked for and have one.

    Raises:
        UserError: `output` holds another evaluation, or the model can't be asked.
    """
    boards = [folder.boards[place] for place in places]
    published, directory = published_beside(boards), EvaluationDirectory(output)
    with answerer as asked:
        evaluation = EvaluationRecord(
            model=asked.model,
            files=folder.files,
            prompt=config.prompt,
            temperature=config.validation.temperature,
            seed=config.validation.seed,
            request=request,
        )
        directory.claim(evaluation, folder)
        with hold(output):
            directory.claim(evaluation, folder)  # another process may have been first
            _answer(directory, folder, places, asked)
            judged = judge(config, boards, directory.read_answers())
            if not judged:
                raise UserError(f"{output}: holds no answer to the boards that were asked for")
            results = results_json(evaluation.model, boards, judged, published)
            directory.results.write(json.dumps(results, indent=2) + "\n")
    print_rates(judged, published)
    missing = len(boards) - len(judged)
    if missing:
        console.print(f"{missing} boards have no answer yet; the same command asks for them again.")
    console.print(f"Answers and results: {output}", soft_wrap=True)
    return not missing


def published_beside(boards: Sequence[BenchmarkBoard]) -> list[PublishedResult]:
    """Return the rows of `BESIDE`, with aggregates only where all their cells are asked for."""
    asked = {(one.num_agents, one.size) for one in boards}
    rows = [one for name in BESIDE for one in published_results() if one.model == name]
    cells = {(one.num_agents, one.size) for one in rows if one.size is not None}

    def complete(agents: int) -> bool:
        of_agents = {cell for cell in cells if cell[0] == agents}
        return of_agents == {cell for cell in asked if cell[0] == agents}

    return [one for one in rows if one.size is not None or complete(one.num_agents)]


def _answer(
    directory: EvaluationDirectory,
    folder: BenchmarkFolder,
    places: Sequence[int],
    answerer: Answerer,
) -> None:
    """Ask for the answers that are missing, and keep each as soon as it is there."""
    answers = directory.read_answers()
    left = [place for place in places if folder.boards[place].key not in answers]
    done = len(places) - len(left)
    if done:
        console.print(f"{done} of {len(places)} boards are answered already.")
    if not left:
        return
    with track("benchmark", len(places), start=done, unit="answers") as advance:
        for answered in answerer.answer(left):
            board = folder.boards[answered.place]
            config, sample = board.key
            line = BenchmarkAnswer(
                config=config, sample_id=sample, text=answered.text, tokens=answered.tokens
            )
            directory.answers.append(line)
            done += 1
            advance(done)
