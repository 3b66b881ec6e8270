"""Answers to the benchmark verified and counted, as values and as `results.json`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

import jax
import numpy as np

from jaxlake import Failure, Solution, parse_grid, wilson_interval
from jaxlake.datasets import PublishedResult
from jaxlake.language.judging import judge_texts
from jaxlake.solver import Status
from training.analysis import METRIC_NAMES
from training.analysis.benchmark.boards import BenchmarkBoard
from training.analysis.benchmark.directory import BenchmarkAnswer
from training.rollout.instances import InstanceSet
from training.run.records import six_digits
from training.schema import Prompt


@dataclass(frozen=True)
class JudgedAnswer:
    """One answer and what the verifier says of it."""

    board: BenchmarkBoard
    tokens: int
    valid: bool
    optimal_sum_of_costs: bool  # False, too, where the board's optimum is not known
    optimal_makespan: bool  # the same
    at_goal: float  # share of the agents that are at their goals at the end
    failure: str | None  # label of the first failure; None for a valid plan


@dataclass(frozen=True)
class BenchmarkRates:
    """Counts over some answers."""

    num_agents: int | None  # of the boards; None: any
    size: int | None  # of the boards, cells; None: any
    config: str | None  # that the boards are of; None: any
    count: int
    counts: Mapping[str, int]  # by name in `METRIC_NAMES`
    isr: float  # individual success rate: the mean share of agents at their goals, 0 to 1
    failures: Mapping[str, int]  # by label of the first failure
    tokens: int  # generated in all

    def interval(self, metric: str) -> tuple[float, float]:
        """Return the ends of Wilson's 95% interval of a rate, from 0 to 1."""
        low, high = wilson_interval(self.counts[metric], self.count)
        return float(low), float(high)


def judge_answers(
    boards: Sequence[BenchmarkBoard],
    answers: Mapping[tuple[str, str], BenchmarkAnswer],
    prompt: Prompt,
) -> list[JudgedAnswer]:
    """Verify the answers to those of the boards that have one, in the order of the boards."""
    answered = [board for board in boards if board.key in answers]
    judged: dict[tuple[str, str], JudgedAnswer] = {}
    # A set of boards has one number of agents, which an answer has to name.
    for _, alike in groupby(sorted(answered, key=_agents), key=_agents):
        group = list(alike)
        texts = [answers[board.key].text for board in group]
        instances, max_steps = _instance_set(group), prompt.max_steps
        verdict = judge_texts(texts, instances.instances, instances.solutions, max_steps=max_steps)
        outcomes = verdict.outcomes
        for row, board in enumerate(group):
            failure = Failure(int(outcomes.failure[row]))
            judged[board.key] = JudgedAnswer(
                board=board,
                tokens=answers[board.key].tokens,
                valid=bool(outcomes.valid[row]),
                optimal_sum_of_costs=bool(outcomes.optimal_sum_of_costs[row]),
                optimal_makespan=bool(outcomes.optimal_makespan[row]),
                at_goal=int(outcomes.at_goal[row].sum()) / board.num_agents,
                failure=None if failure is Failure.NONE else failure.label,
            )
    return [judged[board.key] for board in answered]


def rates_by(
    answers: Iterable[JudgedAnswer], place: Callable[[BenchmarkBoard], tuple[Any, Any, Any]]
) -> list[BenchmarkRates]:
    """Count the answers by the place of their boards: (agents, size, configuration), ascending."""
    groups: dict[tuple[Any, Any, Any], list[JudgedAnswer]] = {}
    for answer in answers:
        groups.setdefault(place(answer.board), []).append(answer)
    return [_rates(*where, groups[where]) for where in sorted(groups, key=_ascending)]


def rates_by_cell(answers: Sequence[JudgedAnswer]) -> list[BenchmarkRates]:
    """Count the answers by agents and size."""
    return rates_by(answers, lambda board: (board.num_agents, board.size, None))


def rates_by_agents(answers: Sequence[JudgedAnswer]) -> list[BenchmarkRates]:
    """Count the answers by agents."""
    return rates_by(answers, lambda board: (board.num_agents, None, None))


def rates_by_configuration(answers: Sequence[JudgedAnswer]) -> list[BenchmarkRates]:
    """Count the answers by configuration, such as one for each wait ratio."""
    return rates_by(answers, lambda board: (None, None, board.config))


def total_rates(answers: Sequence[JudgedAnswer]) -> BenchmarkRates:
    """Count all answers, of which there is at least one."""
    (rates,) = rates_by(answers, lambda board: (None, None, None))
    return rates


def results_json(
    model: str,
    boards: Sequence[BenchmarkBoard],
    answers: Sequence[JudgedAnswer],
    published: Sequence[PublishedResult],
) -> dict[str, Any]:
    """Give the content of `results.json`; equal answers give equal content.

    `boards` are those that were asked about; `published` are the rows to stand beside.
    """
    tables = {
        "cells": rates_by_cell(answers),
        "aggregates": rates_by_agents(answers),
        "configurations": rates_by_configuration(answers),
    }
    return {
        "model": model,
        "boards": len(boards),
        "answered": len(answers),
        "without_known_optimum": sum(one.board.optimum is None for one in answers),
        "tokens": sum(one.tokens for one in answers),
        "total": _plain(total_rates(answers), ()),
        **{name: [_plain(one, published) for one in rates] for name, rates in tables.items()},
    }


def _plain(rates: BenchmarkRates, published: Sequence[PublishedResult]) -> dict[str, Any]:
    place = {"num_agents": rates.num_agents, "size": rates.size, "config": rates.config}
    beside = {
        one.model: {"valid": one.valid, "optimal": one.optimal, "misprinted": list(one.misprinted)}
        for one in published
        if (one.num_agents, one.size) == (rates.num_agents, rates.size)
    }
    return {
        **{name: value for name, value in place.items() if value is not None},
        "count": rates.count,
        "tokens": rates.tokens,
        **rates.counts,
        "isr": six_digits(rates.isr),
        "intervals": {
            metric: [six_digits(end) for end in rates.interval(metric)] for metric in rates.counts
        },
        "failures": dict(rates.failures),
        **({"published": beside} if beside else {}),
    }


def _rates(
    num_agents: int | None, size: int | None, config: str | None, answers: list[JudgedAnswer]
) -> BenchmarkRates:
    failures = [answer.failure for answer in answers]
    return BenchmarkRates(
        num_agents=num_agents,
        size=size,
        config=config,
        count=len(answers),
        counts={metric: sum(getattr(one, metric) for one in answers) for metric in METRIC_NAMES},
        isr=fmean(answer.at_goal for answer in answers),
        failures={kind.label: failures.count(kind.label) for kind in Failure if kind},
        tokens=sum(answer.tokens for answer in answers),
    )


def _ascending(where: tuple[Any, ...]) -> tuple[str, ...]:
    """Make a key by which places are sorted, numbers as numbers."""
    return tuple(f"{one:09d}" if isinstance(one, int) else str(one or "") for one in where)


def _agents(board: BenchmarkBoard) -> int:
    return board.num_agents


def _instance_set(boards: Sequence[BenchmarkBoard]) -> InstanceSet:
    """Make a set of boards of one number of agents, with their optima and without plans."""
    agents, side = boards[0].num_agents, max(board.size for board in boards)
    instances = [parse_grid(one.grid, max_size=side, max_agents=agents) for one in boards]
    optima = [board.optimum for board in boards]
    known = [one is not None for one in optima]
    no_plan = np.zeros((len(boards), 0, agents), np.int8)
    solutions: dict[str, Any] = {
        "status": np.where(known, Status.OPTIMAL, Status.UNKNOWN).astype(np.int8),
        "sum_of_costs": np.array([one.sum_of_costs if one else -1 for one in optima], np.int16),
        "makespan": np.array([one.makespan if one else -1 for one in optima], np.int16),
        "needs_wait": np.zeros(len(boards), bool),  # not read by the verifier
        "plan": no_plan,
        "makespan_plan": no_plan,
        "expansions": np.zeros(len(boards), np.int32),
    }
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *instances)
    return InstanceSet(stacked, Solution(**solutions))
