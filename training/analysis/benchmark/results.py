"""Answers to the benchmark verified and counted, as `results.json` and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import jax
import numpy as np

from jaxlake import Solution, parse_grid, wilson_interval
from jaxlake.datasets import PublishedResult
from jaxlake.solver import Status
from training.analysis import METRIC_NAMES
from training.analysis.benchmark.boards import BenchmarkBoard
from training.environments.lake import Lake
from training.rollout.instances import InstanceSet
from training.run.answer_records import EpisodeRecord, Rates, rates_of
from training.run.progress import console, new_table, print_table
from training.run.rates import ISR, VALID, isr_text, rate
from training.run.records import six_digits
from training.schema import RunConfig

_OWN = {
    "valid": {"valid": VALID, "isr": ISR},
    "optimal": {"optimal_makespan": "makespan", "optimal_sum_of_costs": "sum of costs"},
}
"""The columns that stand beside a published metric: names of rates, and their heads."""


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer and its verdict."""

    board: BenchmarkBoard
    tokens: int
    episode: EpisodeRecord  # not optimal, too, where the board's optimum is not known


def judge(
    config: RunConfig,
    boards: Sequence[BenchmarkBoard],
    answers: Mapping[tuple[str, str], tuple[str, int]],  # text and tokens by `BenchmarkBoard.key`
) -> list[JudgedAnswer]:
    """Verify the answers to those of the boards that have one, in the order of the boards."""
    answered, lake = [board for board in boards if board.key in answers], Lake(config)
    judged: dict[tuple[str, str], JudgedAnswer] = {}
    # A set of boards has one number of agents, which an answer has to name.
    for _, alike in groupby(sorted(answered, key=_agents), key=_agents):
        group = list(alike)
        texts, instances = [answers[one.key][0] for one in group], _instance_set(group)
        episodes = lake.episodes(instances, texts, lake.judge(instances, texts))
        for board, episode in zip(group, episodes, strict=True):
            judged[board.key] = JudgedAnswer(board, answers[board.key][1], episode)
    return [judged[board.key] for board in answered]


def results_json(
    model: str,
    boards: Sequence[BenchmarkBoard],  # that were asked about
    answers: Sequence[JudgedAnswer],
    published: Sequence[PublishedResult],
) -> dict[str, Any]:
    """Return the content of `results.json`; equal answers give equal content."""
    tables = {
        "cells": _groups(answers, "num_agents", "size"),
        "aggregates": _groups(answers, "num_agents"),
        "configurations": _groups(answers, "config"),
    }
    return {
        "model": model,
        "boards": len(boards),
        "answered": len(answers),
        "without_known_optimum": sum(one.board.optimum is None for one in answers),
        "tokens": sum(one.tokens for one in answers),
        "total": _plain({}, answers, ()),
        **{
            name: [_plain(place, group, published) for place, group in groups]
            for name, groups in tables.items()
        },
    }


def print_rates(answers: Sequence[JudgedAnswer], published: Sequence[PublishedResult]) -> None:
    """Print valid and optimal rates and the ISR by agents and size, beside published rates."""
    models = dict.fromkeys(one.model for one in published)
    printed = {(one.num_agents, one.size, one.model): one for one in published}
    for metric, own in _OWN.items():
        title = f"\n{metric.capitalize()}, per cent [95% interval]"
        table = new_table(title, "agents, board", "n", *own.values(), *models)
        for place, of_agents in _groups(answers, "num_agents"):
            agents = place["num_agents"]
            for cell, group in [*_groups(of_agents, "num_agents", "size"), (place, of_agents)]:
                size = cell.get("size")
                name = f"{agents}, {f'{size}x{size}' if size else 'all'}"
                rates = [_rate(_rates(group), one) for one in own]
                beside = [_printed(printed.get((agents, size, model)), metric) for model in models]
                table.add_row(name, f"{len(group)}", *rates, *beside)
            table.add_section()
        print_table(table)
    if any(one.misprinted for one in published):
        console.print("* misprinted: not the mean of its own cells, or no count of 150 boards.")
    _print_totals(answers)
    total, tokens = _rates(answers), [answer.tokens for answer in answers]
    failures = ", ".join(f"{name} {count}" for name, count in total.failures.items())
    console.print(
        f"First failures: {failures or 'none'}.\n"
        f"Tokens: {sum(tokens):,} in all, {sum(tokens) / total.count:,.0f} per answer, at most "
        f"{max(tokens):,}.",
        soft_wrap=True,
    )
    if unknown := sum(answer.board.optimum is None for answer in answers):
        console.print(
            f"The optimum of {unknown} boards is not known: answers to them count as not optimal."
        )


def _print_totals(answers: Sequence[JudgedAnswer]) -> None:
    heads = (VALID, ISR, "optimal makespan", "optimal sum of costs")
    table = new_table("\nBy configuration, per cent [95% interval]", "", "n", *heads)
    for place, group in [*_groups(answers, "config"), ({"config": "all"}, answers)]:
        rates = _rates(group)
        own = [_rate(rates, one) for columns in _OWN.values() for one in columns]
        table.add_row(place["config"], f"{len(group)}", *own)
    print_table(table)


def _groups(
    answers: Sequence[JudgedAnswer], *fields: str
) -> list[tuple[dict[str, Any], list[JudgedAnswer]]]:
    """Group answers by these fields of their boards, ascending."""

    def place(answer: JudgedAnswer) -> tuple[Any, ...]:
        return tuple(getattr(answer.board, field) for field in fields)

    return [
        (dict(zip(fields, where, strict=True)), list(group))
        for where, group in groupby(sorted(answers, key=place), key=place)
    ]


def _printed(result: PublishedResult | None, metric: str) -> str:
    if result is None:
        return "-"
    value: float = getattr(result, metric)
    return f"{value:.2f}{'*' if metric in result.misprinted else ''}"


def _rate(rates: Rates, metric: str) -> str:
    """Write a rate in per cent, with its interval; the ISR, a mean of shares, has none."""
    return (isr_text(rates) or "-") if metric == "isr" else rate(rates, metric)


def _rates(answers: Sequence[JudgedAnswer]) -> Rates:
    return rates_of([one.episode for one in answers])


def _plain(
    place: dict[str, Any], answers: Sequence[JudgedAnswer], published: Sequence[PublishedResult]
) -> dict[str, Any]:
    rates = _rates(answers)
    counts = {metric: rates.successes(metric) for metric in METRIC_NAMES}
    beside = {
        one.model: {"valid": one.valid, "optimal": one.optimal, "misprinted": list(one.misprinted)}
        for one in published
        if (one.num_agents, one.size) == (place.get("num_agents"), place.get("size"))
    }
    return {
        **place,
        "count": rates.count,
        "tokens": sum(one.tokens for one in answers),
        **counts,
        "isr": six_digits(rates.isr or 0.0),
        "intervals": {
            metric: [six_digits(float(end)) for end in wilson_interval(count, rates.count)]
            for metric, count in counts.items()
        },
        "failures": rates.failures,
        **({"published": beside} if beside else {}),
    }


def _agents(board: BenchmarkBoard) -> int:
    return board.num_agents


def _instance_set(boards: Sequence[BenchmarkBoard]) -> InstanceSet:
    """Make a set of boards of one number of agents, with their optima and without plans."""
    agents, side = boards[0].num_agents, max(board.size for board in boards)
    instances = [parse_grid(one.grid, max_size=side, max_agents=agents) for one in boards]
    known = [board.optimum is not None for board in boards]
    costs, makespans = np.array([one.optimum or (-1, -1) for one in boards], np.int16).T
    no_plan = np.zeros((len(boards), 0, agents), np.int8)
    solutions: dict[str, Any] = {
        "status": np.where(known, Status.OPTIMAL, Status.UNKNOWN).astype(np.int8),
        "sum_of_costs": costs,
        "makespan": makespans,
        "needs_wait": np.zeros(len(boards), bool),  # not read by the verifier
        "plan": no_plan,
        "makespan_plan": no_plan,
        "expansions": np.zeros(len(boards), np.int32),
    }
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *instances)
    return InstanceSet(stacked, Solution(**solutions))
