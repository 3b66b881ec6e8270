"""Compare the arms of a study by the answers of their final policies to the benchmark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from jaxlake.datasets import PublishedResult
from training.analysis import METRIC_NAMES
from training.analysis.benchmark.boards import BenchmarkBoard, BenchmarkFolder
from training.analysis.benchmark.evaluate import EvaluationDirectory, comparable_results
from training.analysis.benchmark.results import judge
from training.analysis.study.config import Study, StudyRun
from training.analysis.study.contrasts import contrast, mean_interval
from training.analysis.study.directory import StudyDirectory
from training.analysis.study.report import interval_text, over_seeds_text
from training.analysis.study.results import Results, replace_nan
from training.analysis.study.runner import Task
from training.errors import UserError
from training.run.progress import console, new_table, print_table
from training.run.typed_files import JsonFile

FAILURE_KINDS = {
    "parse errors": ("parse_error",),
    "illegal moves": ("off_board",),
    "conflicts": ("vertex_conflict", "swapping_conflict"),
    "hole falls": ("hole",),
    "goals not reached": ("goal_not_reached",),
}
"""The paper's kinds of failure, and the corresponding kinds of the lake."""


@dataclass(frozen=True)
class BenchmarkRun:
    """The verified answers of a run's final policy to the B boards."""

    run: StudyRun
    scores: Mapping[str, np.ndarray]  # by metric, bool (B,)
    failures: np.ndarray  # int (B,), index into FAILURE_KINDS; -1 for a valid answer


def benchmark_tasks(study: Study, directory: StudyDirectory, folder: BenchmarkFolder) -> list[Task]:
    """Return tasks that complete the evaluations of finished runs."""
    tasks = []
    for run in study.runs:
        files, output = directory.run(run), directory.benchmark(run)
        if not files.finished() or _is_answered(output, folder):
            continue
        # The user runs a study that names the same code.
        arguments = ("evaluate", str(files.config_file), "--trust-code")
        source = ("--run-dir", str(files.path), "--benchmark", str(folder.path))
        where = (*source, "--output", str(output))

        def result(output: Path = output) -> str | None:
            return "answered" if _is_answered(output, folder) else None

        title, name = f"benchmark of {run}", f"benchmark-{run.engineer}-{run.seed}"
        log = output.with_name(f"{output.name}.log")
        tasks.append(Task(title, name, log, (*arguments, *where), result))
    return tasks


def write_tables(study: Study, directory: StudyDirectory, folder: BenchmarkFolder) -> Path:
    """Compare the arms that have answered all boards, print tables, and return `results.json`."""
    runs = [
        _read_run(study, directory, folder, run)
        for run in study.runs
        if _is_answered(directory.benchmark(run), folder)
    ]
    if not runs:
        raise UserError(f"{directory.path}: no run has answers to all boards of {folder.path}")
    published = comparable_results(folder.boards)
    results = compare(study, folder.boards, runs, published)
    file = JsonFile(directory.path / "benchmark" / "results.json", TypeAdapter(Results))
    file.write(results)
    print_tables(results)
    if missing := [run for run in study.runs if run not in {one.run for one in runs}]:
        console.print(f"Without answers: {'; '.join(map(str, missing))}.", soft_wrap=True)
    return file.path


def compare(
    study: Study,
    boards: Sequence[BenchmarkBoard],
    runs: Sequence[BenchmarkRun],
    published: Sequence[PublishedResult],
) -> Results:
    """Return the rates, differences and failures of each arm, by agents and size and overall."""
    by_engineer: dict[str, list[BenchmarkRun]] = {}
    for engineer in study.config.engineers:
        if rows := [one for one in runs if one.run.engineer == engineer.name]:
            by_engineer[engineer.name] = rows
    return {
        "boards": len(boards),
        "arms": {
            name: {
                "seeds": [row.run.seed for row in rows],
                "against": (other := study.config.get_baseline(name)),
                "cells": [
                    place | _cell(rows, by_engineer.get(other or "", []), indices)
                    for place, indices in _iterate_cells(boards)
                ],
            }
            for name, rows in by_engineer.items()
        },
        "published": [
            {"model": result.model, "num_agents": result.num_agents, "size": result.size}
            | {"valid": result.valid, "optimal": result.optimal}
            for result in published
        ],
    }


def print_tables(results: Results) -> None:
    """Print rates by agents and size with published ones, differences, and kinds of failure."""
    arms = results["arms"]
    places = list(_cells_by_place(next(iter(arms.values()))))
    agents = list(dict.fromkeys(count for count, _ in places if count is not None))
    for metric, title in METRIC_NAMES.items():
        for number in agents:
            sizes = [size for count, size in places if count == number]
            heads = [f"{size}x{size}" if size else "all" for size in sizes]
            table = new_table(f"\n{number} agents: {title}, per cent [95%]", "arm", *heads)
            for name, arm in arms.items():
                cells = _cells_by_place(arm)
                rates = [cells[number, size]["rates"][metric] for size in sizes]
                table.add_row(name, *(_format_two_lines(rate, signed=False) for rate in rates))
            table.add_section()
            kind = "valid" if metric == "valid" else "optimal"
            for model, printed in _published_by_model(results, number).items():
                row = [f"{printed[size][kind]:.2f}" if size in printed else "-" for size in sizes]
                table.add_row(f"published: {model}", *row)
            print_table(table)
    _print_differences(arms, agents)
    table = new_table("\nFirst failures, per cent", "agents, arm", *FAILURE_KINDS)
    for count in (*agents, None):
        for name, arm in arms.items():
            shares = _cells_by_place(arm)[count, None]["failures"].values()
            table.add_row(f"{count or 'all'}, {name}", *(f"{100 * share:.1f}" for share in shares))
        table.add_section()
    print_table(table)


def _print_differences(arms: Results, agents: Sequence[int]) -> None:
    heads = [*(f"{number} agents" for number in agents), "all"]
    title = "\nValid, points above the arm after `minus`: [other seeds and boards] [other seeds]"
    table = new_table(title, "arm", *heads)
    for name, arm in arms.items():
        cells = _cells_by_place(arm)
        differences = [cells[number, None]["difference"] for number in (*agents, None)]
        if None not in differences:
            texts = [
                f"{_format_two_lines(difference['valid'])}\n{over_seeds_text(difference['valid'])}"
                for difference in differences
            ]
            table.add_row(f"{name}\nminus {arm['against']}", *texts)
    if table.row_count:
        print_table(table)


def _format_two_lines(interval: Mapping[str, Any], *, signed: bool = True) -> str:
    return interval_text(interval, signed=signed).replace(" [", "\n[", 1)


def _is_answered(output: Path, folder: BenchmarkFolder) -> bool:
    """Return whether an evaluation has an answer to every board of the folder."""
    evaluation = EvaluationDirectory(output)
    if not evaluation.evaluation.exists() or evaluation.evaluation.read().files != folder.files:
        return False
    answers = evaluation.read_answers()
    return all(0 in answers.get(board.key, {}) for board in folder.boards)


def _read_run(
    study: Study, directory: StudyDirectory, folder: BenchmarkFolder, run: StudyRun
) -> BenchmarkRun:
    config = study.config_of(run, directory.policy)
    answers = EvaluationDirectory(directory.benchmark(run)).read_answers()
    episodes = [one.episode for one in judge(config, folder.boards, answers)]
    places = {key: place for place, keys in enumerate(FAILURE_KINDS.values()) for key in keys}
    scores = {
        metric: np.array([one.succeeds(metric) for one in episodes]) for metric in METRIC_NAMES
    }
    failures = np.array([-1 if one.failure is None else places[one.failure] for one in episodes])
    return BenchmarkRun(run, scores, failures)


def _iterate_cells(boards: Sequence[BenchmarkBoard]) -> Iterator[tuple[Results, np.ndarray]]:
    """Yield agents and size with the indices of these boards; None means all."""
    agents = np.array([board.num_agents for board in boards])
    sizes = np.array([board.size for board in boards])
    for number in sorted(set(agents.tolist())):
        mask = agents == number
        for size in (*sorted(set(sizes[mask].tolist())), None):
            cell = mask if size is None else mask & (sizes == size)
            yield {"num_agents": number, "size": size}, np.flatnonzero(cell)
    yield {"num_agents": None, "size": None}, np.arange(len(boards))


def _cell(
    runs: Sequence[BenchmarkRun], others: Sequence[BenchmarkRun], indices: np.ndarray
) -> Results:
    """Return the rates of an arm on some boards, and the differences from another arm."""
    failures = np.stack([run.failures[indices] for run in runs])
    shared = {one.run.seed for one in runs} & {one.run.seed for one in others}

    def difference(metric: str) -> Results:
        ours, theirs = (
            {one.run.seed: one.scores[metric][indices] for one in side} for side in (runs, others)
        )
        comparison = contrast(ours, theirs)
        low, high = comparison.over_seeds
        return asdict(comparison.difference) | {
            "over_seeds": replace_nan({"low": low, "high": high})
        }

    return {
        "count": len(indices),
        "rates": {
            metric: asdict(
                mean_interval(np.stack([run.scores[metric][indices] for run in runs]).astype(int))
            )
            for metric in METRIC_NAMES
        },
        "difference": {m: difference(m) for m in METRIC_NAMES} if shared else None,
        "failures": {
            kind: float((failures == place).mean()) for place, kind in enumerate(FAILURE_KINDS)
        },
    }


def _cells_by_place(arm: Results) -> dict[tuple[int | None, int | None], Results]:
    return {(cell["num_agents"], cell["size"]): cell for cell in arm["cells"]}


def _published_by_model(results: Results, agents: int) -> dict[str, dict[int | None, Results]]:
    models: dict[str, dict[int | None, Results]] = {}
    for result in results["published"]:
        if result["num_agents"] == agents:
            models.setdefault(result["model"], {})[result["size"]] = result
    return models
