"""Evaluate a model on a benchmark, and compare its rates with published ones."""

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter

from jaxlake.datasets import PublishedResult, published_results
from jaxlake.files import clear_unused_folder
from training.analysis.benchmark.answering import Answerer, BenchmarkAnswer
from training.analysis.benchmark.boards import BenchmarkBoard, BenchmarkFolder
from training.analysis.benchmark.results import judge, print_rates, results_json
from training.errors import UserError
from training.run.directory import differing_keys
from training.run.lock import lock_folder
from training.run.progress import console, track
from training.run.records import Digest, Record
from training.run.typed_files import JsonFile, JsonLog, TextFile
from training.schema import PromptConfig, RunConfig

COMPARED_MODELS = ("Qwen3-4B (base)", "Qwen3-4B + GRPO (random)", "Qwen3-4B + GRPO + Ours")
"""The published models shown for comparison."""


class EvaluationRecord(Record):
    """`evaluation.json`: the settings that determine the answers.

    The selection of boards and the number of answers may change between calls.
    """

    model: str  # the endpoint's name of the model, or `weights` and a digest
    files: dict[str, Digest]  # the boards' files, by name in their folder
    prompt: PromptConfig
    temperature: float = Field(ge=0.0)  # of sampling; 0: greedy
    top_p: float = 1.0  # of sampling
    top_k: int = 0  # of sampling
    seed: int  # of sampling
    request: dict[str, Any]  # further fields of an endpoint's requests


class EvaluationDirectory:
    """The files of one evaluation."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.evaluation = JsonFile(path / "evaluation.json", TypeAdapter(EvaluationRecord))
        self.answers = JsonLog(path / "answers.jsonl", TypeAdapter(BenchmarkAnswer))
        self.results = TextFile(path / "results.json")

    def claim(self, evaluation: EvaluationRecord, folder: BenchmarkFolder) -> None:
        """Claim the folder for an evaluation; raise a `UserError` if it contains anything else."""
        if not self.evaluation.exists():
            if not clear_unused_folder(self.evaluation.path):
                problem = "is not empty and holds no evaluation; choose another --output"
                raise UserError(f"{self.path}: {problem}")
            self.evaluation.write(evaluation)
            return
        saved_evaluation = self.evaluation.read()
        for name in dict.fromkeys([*saved_evaluation.files, *evaluation.files]):
            if saved_evaluation.files.get(name) != evaluation.files.get(name):
                raise UserError(
                    f"{folder.path / name}: holds other boards than the evaluation in {self.path}; "
                    "choose another --output"
                )
        settings = (json.loads(row.model_dump_json()) for row in (saved_evaluation, evaluation))
        if differences := differing_keys(*settings):
            raise UserError(
                f"{self.path}: holds an evaluation that differs in {', '.join(differences)}; "
                "choose another --output"
            )

    def read_answers(self) -> dict[tuple[str, str], dict[int, BenchmarkAnswer]]:
        """Return the saved answers by board and sample; the first of duplicates counts."""
        answers: dict[tuple[str, str], dict[int, BenchmarkAnswer]] = {}
        for answer in self.answers.read():
            answers_by_sample = answers.setdefault((answer.config, answer.sample_id), {})
            answers_by_sample.setdefault(answer.sample, answer)
        return answers


def evaluate_benchmark(
    config: RunConfig,
    folder: BenchmarkFolder,
    board_indices: Sequence[int],
    open_answerer: AbstractContextManager[Answerer],
    output: Path,
    *,
    request: dict[str, Any],
    num_samples: int = 1,
) -> bool:
    """Request the missing answers of a model to a benchmark; write and print all rates.

    Args:
        config: Configuration of the prompt and of sampling.
        folder: The boards of the benchmark.
        board_indices: The boards to answer.
        open_answerer: Opens the model when the context is entered.
        output: Folder of the evaluation. Answers in it are kept.
        request: Further fields of an endpoint's requests.
        num_samples: Number of answers per board.

    Returns:
        Whether all requested answers exist.

    Raises:
        UserError: `output` contains another evaluation, or the model is unavailable.
    """
    boards = [folder.boards[index] for index in board_indices]
    references, directory = comparable_results(boards), EvaluationDirectory(output)
    with open_answerer as answerer:
        evaluation = EvaluationRecord(
            model=answerer.model,
            files=folder.files,
            prompt=config.prompt,
            temperature=config.validation.temperature,
            top_p=config.validation.top_p,
            top_k=config.validation.top_k,
            seed=config.validation.seed,
            request=request,
        )
        directory.claim(evaluation, folder)
        with lock_folder(output):
            directory.claim(evaluation, folder)  # another process may have been first
            _request_answers(directory, folder, board_indices, answerer, num_samples)
            judged_answers = judge(config, boards, directory.read_answers(), num_samples)
            if not judged_answers:
                raise UserError(f"{output}: holds no answers to the selected boards")
            results = results_json(
                evaluation.model, boards, judged_answers, references, num_samples
            )
            directory.results.write(json.dumps(results, indent=2) + "\n")
    print_rates(judged_answers, references, num_samples)
    num_missing = num_samples * len(boards) - len(judged_answers)
    if num_missing:
        console.print(f"{num_missing} answers are missing; the same command requests them again.")
    console.print(f"Answers and results: {output}", soft_wrap=True)
    return not num_missing


def comparable_results(boards: Sequence[BenchmarkBoard]) -> list[PublishedResult]:
    """Return the published results that the boards can be compared with.

    The published aggregate of a number of agents is the mean over all published board sizes. It is
    comparable only if the boards have exactly these sizes.
    """
    results = [
        result for name in COMPARED_MODELS for result in published_results() if result.model == name
    ]
    published_cells = {(row.num_agents, row.size) for row in results if row.size is not None}
    selected_cells = {(board.num_agents, board.size) for board in boards}
    incomparable_agents = {num_agents for num_agents, _ in published_cells ^ selected_cells}
    return [
        result
        for result in results
        if result.size is not None or result.num_agents not in incomparable_agents
    ]


def _request_answers(
    directory: EvaluationDirectory,
    folder: BenchmarkFolder,
    board_indices: Sequence[int],
    answerer: Answerer,
    num_samples: int,
) -> None:
    """Request the missing answers, and save each as soon as it arrives."""
    answers = directory.read_answers()
    requests = [
        (index, sample)
        for index in board_indices
        for sample in range(num_samples)
        if sample not in answers.get(folder.boards[index].key, {})
    ]
    num_total = num_samples * len(board_indices)
    num_done = num_total - len(requests)
    if num_done:
        console.print(f"{num_done} of {num_total} answers exist already.")
    if not requests:
        return
    with track("benchmark", num_total, start=num_done, unit="answers") as advance:
        for answer in answerer.answer(requests):
            directory.answers.append(answer)
            num_done += 1
            advance(num_done)
