"""Verify and count answers to the benchmark, for `results.json` and tables.

Rates are reported by cell, which is one number of agents on one board size.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import jax
import numpy as np

from jaxlake import Solution, parse_grid
from jaxlake.datasets import PublishedResult
from jaxlake.solver import Status
from training.analysis import METRIC_NAMES
from training.analysis.benchmark.answering import BenchmarkAnswer
from training.analysis.benchmark.boards import BenchmarkBoard
from training.analysis.pass_at_k import pass_rate, pass_sizes
from training.environments.lake import Lake
from training.rollout.instances import InstanceSet
from training.run.answer_records import EpisodeRecord, Rates, compute_rates
from training.run.progress import console, new_table, print_table
from training.run.rates import ISR, VALID, format_interval, format_isr
from training.run.records import six_digits
from training.schema import RunConfig

_COLUMNS = {
    "valid": {"valid": VALID, "isr": ISR},
    "optimal": {"optimal_makespan": "makespan", "optimal_sum_of_costs": "sum of costs"},
}
"""Measured rates shown next to each published metric: headings by the names of rates."""


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer and its verification."""

    board: BenchmarkBoard
    answer: BenchmarkAnswer
    episode: EpisodeRecord  # not optimal if the board's optimum is unknown


def judge(
    config: RunConfig,
    boards: Sequence[BenchmarkBoard],
    answers: Mapping[tuple[str, str], Mapping[int, BenchmarkAnswer]],  # by board and sample
    num_samples: int = 1,
) -> list[JudgedAnswer]:
    """Return the first `num_samples` existing answers to each board, verified, in board order."""
    answer_pairs = [
        (board, answers[board.key][sample])
        for board in boards
        for sample in range(num_samples)
        if sample in answers.get(board.key, {})
    ]
    lake = Lake(config)
    judged_answers: dict[tuple[tuple[str, str], int], JudgedAnswer] = {}
    # All boards of an `InstanceSet` have the same number of agents.
    for _, group in groupby(sorted(answer_pairs, key=_get_num_agents), key=_get_num_agents):
        pairs = list(group)
        instances = _make_instance_set([board for board, _ in pairs])
        texts = [answer.text for _, answer in pairs]
        episodes = lake.episodes(instances, texts, lake.judge(instances, texts))
        for (board, answer), episode in zip(pairs, episodes, strict=True):
            judged_answers[board.key, answer.sample] = JudgedAnswer(board, answer, episode)
    return [judged_answers[board.key, answer.sample] for board, answer in answer_pairs]


def results_json(
    model: str,
    boards: Sequence[BenchmarkBoard],  # the selected boards, answered or not
    answers: Sequence[JudgedAnswer],
    references: Sequence[PublishedResult],
    num_samples: int = 1,
) -> dict[str, Any]:
    """Return the content of `results.json`, a deterministic function of the answers."""
    tables = {
        "cells": _group_answers(answers, "num_agents", "size"),
        "aggregates": _group_answers(answers, "num_agents"),
        "configurations": _group_answers(answers, "config"),
    }
    return {
        "model": model,
        "boards": len(boards),
        "samples": num_samples,
        "answered": len(answers),
        "without_known_optimum": sum(entry.board.optimum is None for entry in answers),
        "tokens": sum(entry.answer.tokens for entry in answers),
        "total": _rates_json({}, answers, (), num_samples),
        **{
            name: [_rates_json(labels, group, references, num_samples) for labels, group in groups]
            for name, groups in tables.items()
        },
    }


def print_rates(
    answers: Sequence[JudgedAnswer],
    references: Sequence[PublishedResult],
    num_samples: int = 1,
) -> None:
    """Print valid and optimal rates and the ISR by agents and size, next to published rates."""
    _print_published_metrics(answers, references)
    if num_samples > 1:
        _print_pass_at_k(answers, num_samples)
    if any(result.misprinted for result in references):
        console.print("* misprinted: not the mean of its cells, or not a count of 150 boards.")
    _print_totals(answers)
    _print_counts(answers)


def _print_published_metrics(
    answers: Sequence[JudgedAnswer], references: Sequence[PublishedResult]
) -> None:
    models = dict.fromkeys(result.model for result in references)
    results = {(result.num_agents, result.size, result.model): result for result in references}
    for metric, columns in _COLUMNS.items():
        title = f"\n{metric.capitalize()}, per cent [95% interval]"
        table = new_table(title, "agents, board", "n", *columns.values(), *models)
        for num_agents, size, group in _iterate_cells(answers):
            rates = [_format_rate(group, name) for name in columns]
            reference_rates = [
                _format_published(results.get((num_agents, size, model)), metric)
                for model in models
            ]
            table.add_row(_cell_name(num_agents, size), f"{len(group)}", *rates, *reference_rates)
            if size is None:
                table.add_section()
        print_table(table)


def _print_pass_at_k(answers: Sequence[JudgedAnswer], num_samples: int) -> None:
    ks = pass_sizes(num_samples)
    title = "\nAt least one of k answers valid, per cent [95% interval over boards]"
    table = new_table(title, "agents, board", "n", *(f"pass@{k}" for k in ks))
    for num_agents, size, group in _iterate_cells(answers):
        rates = (format_interval(*_compute_pass_rate(group, "valid", k)) for k in ks)
        table.add_row(_cell_name(num_agents, size), f"{len(group)}", *rates)
    print_table(table)


def _print_totals(answers: Sequence[JudgedAnswer]) -> None:
    headings = (VALID, ISR, "optimal makespan", "optimal sum of costs")
    table = new_table("\nBy configuration, per cent [95% interval]", "", "n", *headings)
    for labels, group in [*_group_answers(answers, "config"), ({"config": "all"}, answers)]:
        rates = [_format_rate(group, name) for columns in _COLUMNS.values() for name in columns]
        table.add_row(labels["config"], f"{len(group)}", *rates)
    print_table(table)


def _print_counts(answers: Sequence[JudgedAnswer]) -> None:
    total_rates, tokens = _compute_rates(answers), [entry.answer.tokens for entry in answers]
    failures = ", ".join(f"{name} {count}" for name, count in total_rates.failures.items())
    console.print(
        f"First failures: {failures or 'none'}.\n"
        f"Tokens: {sum(tokens):,} in all, {sum(tokens) / total_rates.count:,.0f} per answer, at "
        f"most {max(tokens):,}. Cut off by the token limit: "
        f"{sum(entry.answer.truncated for entry in answers):,} of {total_rates.count:,} answers.",
        soft_wrap=True,
    )
    if num_unknown := sum(entry.board.optimum is None for entry in answers):
        console.print(
            f"{num_unknown} answers count as not optimal: no optimum of their board is known."
        )


def _iterate_cells(
    answers: Sequence[JudgedAnswer],
) -> Iterator[tuple[int, int | None, list[JudgedAnswer]]]:
    """Yield (agents, size, answers) for each cell, and with size None for all sizes together."""
    for labels, agent_answers in _group_answers(answers, "num_agents"):
        for cell, group in _group_answers(agent_answers, "size"):
            yield labels["num_agents"], cell["size"], group
        yield labels["num_agents"], None, agent_answers


def _cell_name(num_agents: int, size: int | None) -> str:
    return f"{num_agents}, {f'{size}x{size}' if size else 'all'}"


def _group_answers(
    answers: Sequence[JudgedAnswer], *fields: str
) -> list[tuple[dict[str, Any], list[JudgedAnswer]]]:
    """Return answers grouped by fields of their boards, in ascending order of these fields."""

    def get_values(entry: JudgedAnswer) -> tuple[Any, ...]:
        return tuple(getattr(entry.board, field) for field in fields)

    return [
        (dict(zip(fields, values, strict=True)), list(group))
        for values, group in groupby(sorted(answers, key=get_values), key=get_values)
    ]


def _format_published(result: PublishedResult | None, metric: str) -> str:
    if result is None:
        return "-"
    value: float = getattr(result, metric)
    return f"{value:.2f}{'*' if metric in result.misprinted else ''}"


def _format_rate(answers: Sequence[JudgedAnswer], metric: str) -> str:
    """Format a rate in per cent with its interval; the ISR has no interval."""
    if metric == "isr":
        return format_isr(_compute_rates(answers)) or "-"
    return format_interval(*_compute_pass_rate(answers, metric))


def _compute_pass_rate(
    answers: Sequence[JudgedAnswer], metric: str, k: int = 1
) -> tuple[float, float, float]:
    return pass_rate(((entry.board.key, entry.episode.succeeds(metric)) for entry in answers), k)


def _compute_rates(answers: Sequence[JudgedAnswer]) -> Rates:
    return compute_rates([entry.episode for entry in answers])


def _rates_json(
    labels: dict[str, Any],
    answers: Sequence[JudgedAnswer],
    references: Sequence[PublishedResult],
    num_samples: int,
) -> dict[str, Any]:
    rates = _compute_rates(answers)
    counts = {metric: rates.successes(metric) for metric in METRIC_NAMES}
    reference_rates = {
        row.model: {"valid": row.valid, "optimal": row.optimal, "misprinted": list(row.misprinted)}
        for row in references
        if (row.num_agents, row.size) == (labels.get("num_agents"), labels.get("size"))
    }
    return {
        **labels,
        "count": rates.count,
        "tokens": sum(entry.answer.tokens for entry in answers),
        "truncated": sum(entry.answer.truncated for entry in answers),
        **counts,
        "isr": six_digits(rates.isr or 0.0),
        "intervals": {
            metric: [six_digits(bound) for bound in _compute_pass_rate(answers, metric)[1:]]
            for metric in counts
        },
        **({"pass_at": _pass_at_k_json(answers, num_samples)} if num_samples > 1 else {}),
        "failures": rates.failures,
        **({"published": reference_rates} if reference_rates else {}),
    }


def _pass_at_k_json(
    answers: Sequence[JudgedAnswer], num_samples: int
) -> dict[str, list[float] | None]:
    """Return pass@k with its interval by k; None if no board has k answers."""
    rates = {str(k): _compute_pass_rate(answers, "valid", k) for k in pass_sizes(num_samples)}
    return {
        k: None if math.isnan(rate[0]) else [six_digits(value) for value in rate]
        for k, rate in rates.items()
    }


def _get_num_agents(pair: tuple[BenchmarkBoard, BenchmarkAnswer]) -> int:
    return pair[0].num_agents


def _make_instance_set(boards: Sequence[BenchmarkBoard]) -> InstanceSet:
    """Return the boards, all with the same number of agents, with optima and without plans."""
    num_agents, max_size = boards[0].num_agents, max(board.size for board in boards)
    instances = [
        parse_grid(board.grid, max_size=max_size, max_agents=num_agents) for board in boards
    ]
    optimum_mask = [board.optimum is not None for board in boards]
    costs, makespans = np.array([board.optimum or (-1, -1) for board in boards], np.int16).T
    empty_plans = np.zeros((len(boards), 0, num_agents), np.int8)
    solutions: dict[str, Any] = {
        "status": np.where(optimum_mask, Status.OPTIMAL, Status.UNKNOWN).astype(np.int8),
        "sum_of_costs": costs,
        "makespan": makespans,
        "needs_wait": np.zeros(len(boards), bool),  # unused by the verifier
        "plan": empty_plans,
        "makespan_plan": empty_plans,
        "expansions": np.zeros(len(boards), np.int32),
    }
    stacked_instances = jax.tree.map(lambda *leaves: np.stack(leaves), *instances)
    return InstanceSet(stacked_instances, Solution(**solutions))
