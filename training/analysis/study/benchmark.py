"""Compare the engineers of a study by the answers of their final policies to the benchmark.

An arm is an engineer with the runs of all its seeds. A cell is one number of agents on one board
size, or an aggregate over sizes or over all boards.
"""

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
from training.analysis.study.runner import StudyProcess
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
"""Kinds of failure in the paper, with the corresponding kinds of the lake."""


@dataclass(frozen=True)
class BenchmarkRun:
    """The verified answers of a run's final policy to the B boards."""

    run: StudyRun
    scores: Mapping[str, np.ndarray]  # by metric, bool (B,)
    failures: np.ndarray  # int (B,), index into FAILURE_KINDS; -1 for a valid answer


def make_evaluations(
    study: Study, directory: StudyDirectory, folder: BenchmarkFolder
) -> list[StudyProcess]:
    """Return processes that complete the evaluations of finished runs."""
    processes = []
    for run in study.runs:
        run_directory, output = directory.run_directory(run), directory.benchmark(run)
        if not run_directory.finished() or _is_answered(output, folder):
            continue
        # The study has run the same code already, so it is trusted.
        command = ["evaluate", str(run_directory.config_file), "--trust-code"]
        command += ["--run-dir", str(run_directory.path), "--benchmark", str(folder.path)]
        command += ["--output", str(output)]

        def read_result(output: Path = output) -> str | None:
            return "answered" if _is_answered(output, folder) else None

        title, job_name = f"benchmark of {run}", f"benchmark-{run.engineer}-{run.seed}"
        log = output.with_name(f"{output.name}.log")
        processes.append(StudyProcess(title, job_name, log, tuple(command), read_result))
    return processes


def write_tables(study: Study, directory: StudyDirectory, folder: BenchmarkFolder) -> Path:
    """Compare all runs that have answered every board; print tables, and return `results.json`."""
    runs = [
        _read_run(study, directory, folder, run)
        for run in study.runs
        if _is_answered(directory.benchmark(run), folder)
    ]
    if not runs:
        raise UserError(f"{directory.path}: no run has answers to all boards of {folder.path}")
    references = comparable_results(folder.boards)
    results = compare(study, folder.boards, runs, references)
    file = JsonFile(directory.path / "benchmark" / "results.json", TypeAdapter(Results))
    file.write(results)
    print_tables(results)
    answered_runs = {row.run for row in runs}
    if missing_runs := [run for run in study.runs if run not in answered_runs]:
        console.print(f"Runs without answers: {'; '.join(map(str, missing_runs))}.", soft_wrap=True)
    return file.path


def compare(
    study: Study,
    boards: Sequence[BenchmarkBoard],
    runs: Sequence[BenchmarkRun],
    references: Sequence[PublishedResult],
) -> Results:
    """Return the rates, differences and failures of each arm by cell."""
    names = [engineer.name for engineer in study.config.engineers]
    runs_by_engineer = {name: [row for row in runs if row.run.engineer == name] for name in names}
    cells = list(_iterate_cells(boards))
    arms = {}
    for name, arm_runs in runs_by_engineer.items():
        if arm_runs:
            baseline_name = study.config.get_baseline(name)
            baseline_runs = runs_by_engineer.get(baseline_name or "", [])
            arms[name] = {
                "seeds": [row.run.seed for row in arm_runs],
                "against": baseline_name,
                "cells": [
                    labels | _summarize_cell(arm_runs, baseline_runs, indices)
                    for labels, indices in cells
                ],
            }
    return {
        "boards": len(boards),
        "arms": arms,
        "published": [
            {"model": result.model, "num_agents": result.num_agents, "size": result.size}
            | {"valid": result.valid, "optimal": result.optimal}
            for result in references
        ],
    }


def print_tables(results: Results) -> None:
    """Print rates next to published ones, differences, and shares of the kinds of failure."""
    arms = results["arms"]
    keys = list(_index_cells(next(iter(arms.values()))))
    agent_counts = list(dict.fromkeys(num_agents for num_agents, _ in keys if num_agents))
    for metric, title in METRIC_NAMES.items():
        for num_agents in agent_counts:
            sizes = [size for count, size in keys if count == num_agents]
            headings = [f"{size}x{size}" if size else "all" for size in sizes]
            table = new_table(f"\n{num_agents} agents: {title}, per cent [95%]", "arm", *headings)
            for name, arm in arms.items():
                cells = _index_cells(arm)
                rates = [cells[num_agents, size]["rates"][metric] for size in sizes]
                table.add_row(name, *(_format_two_lines(rate, signed=False) for rate in rates))
            table.add_section()
            kind = "valid" if metric == "valid" else "optimal"
            published_rates = {
                (row["model"], row["size"]): f"{row[kind]:.2f}"
                for row in results["published"]
                if row["num_agents"] == num_agents
            }
            for model in dict.fromkeys(model for model, _ in published_rates):
                texts = (published_rates.get((model, size), "-") for size in sizes)
                table.add_row(f"published: {model}", *texts)
            print_table(table)
    _print_differences(arms, agent_counts)
    _print_failures(arms, agent_counts)


def _print_failures(arms: Results, agent_counts: Sequence[int]) -> None:
    table = new_table("\nFirst failures, per cent", "agents, arm", *FAILURE_KINDS)
    for count in (*agent_counts, None):
        for name, arm in arms.items():
            shares = _index_cells(arm)[count, None]["failures"].values()
            table.add_row(f"{count or 'all'}, {name}", *(f"{100 * share:.1f}" for share in shares))
        table.add_section()
    print_table(table)


def _print_differences(arms: Results, agent_counts: Sequence[int]) -> None:
    headings = [*(f"{count} agents" for count in agent_counts), "all"]
    title = "\nValid, points above the arm after `minus`: [other seeds and boards] [other seeds]"
    table = new_table(title, "arm", *headings)
    for name, arm in arms.items():
        cells = _index_cells(arm)
        differences = [cells[count, None]["difference"] for count in (*agent_counts, None)]
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
    config = study.make_run_config(run, directory.policy)
    answers = EvaluationDirectory(directory.benchmark(run)).read_answers()
    episodes = [judged.episode for judged in judge(config, folder.boards, answers)]
    scores = {
        metric: np.array([episode.succeeds(metric) for episode in episodes])
        for metric in METRIC_NAMES
    }
    indices: dict[str | None, int] = {None: -1}  # of kinds of failure; a valid answer has none
    for index, failures in enumerate(FAILURE_KINDS.values()):
        indices |= dict.fromkeys(failures, index)
    return BenchmarkRun(run, scores, np.array([indices[episode.failure] for episode in episodes]))


def _iterate_cells(boards: Sequence[BenchmarkBoard]) -> Iterator[tuple[Results, np.ndarray]]:
    """Yield the labels of each cell (None: all) and the indices of its boards."""
    agent_counts = np.array([board.num_agents for board in boards])
    sizes = np.array([board.size for board in boards])
    for num_agents in sorted(set(agent_counts.tolist())):
        agent_mask = agent_counts == num_agents
        for size in (*sorted(set(sizes[agent_mask].tolist())), None):
            cell_mask = agent_mask if size is None else agent_mask & (sizes == size)
            yield {"num_agents": num_agents, "size": size}, np.flatnonzero(cell_mask)
    yield {"num_agents": None, "size": None}, np.arange(len(boards))


def _summarize_cell(
    runs: Sequence[BenchmarkRun], baseline_runs: Sequence[BenchmarkRun], indices: np.ndarray
) -> Results:
    """Return the rates of an arm on some boards, and the differences from its baseline."""
    rates, differences = {}, {}
    common_seeds = {row.run.seed for row in runs} & {row.run.seed for row in baseline_runs}
    for metric in METRIC_NAMES:
        scores, baseline_scores = (
            {row.run.seed: row.scores[metric][indices] for row in rows}
            for rows in (runs, baseline_runs)
        )
        rates[metric] = asdict(mean_interval(np.stack(list(scores.values())).astype(int)))
        if common_seeds:
            comparison = contrast(scores, baseline_scores)
            low, high = comparison.over_seeds
            over_seeds = replace_nan({"low": low, "high": high})
            differences[metric] = {**asdict(comparison.difference), "over_seeds": over_seeds}
    failures = np.stack([row.failures[indices] for row in runs])
    return {
        "count": len(indices),
        "rates": rates,
        "difference": differences or None,
        "failures": {
            kind: float((failures == index).mean()) for index, kind in enumerate(FAILURE_KINDS)
        },
    }


def _index_cells(arm: Results) -> dict[tuple[int | None, int | None], Results]:
    return {(cell["num_agents"], cell["size"]): cell for cell in arm["cells"]}
