"""Rates on the benchmark as tables on the terminal, beside published ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from jaxlake.datasets import PublishedResult
from training.analysis.benchmark.results import (
    BenchmarkRates,
    JudgedAnswer,
    rates_by_agents,
    rates_by_cell,
    rates_by_configuration,
    total_rates,
)
from training.run.progress import console, new_table, print_table
from training.run.rates import ISR, VALID, rate_text

_OWN = {
    "valid": (("valid", VALID), ("isr", ISR)),
    "optimal": (("optimal_makespan", "makespan"), ("optimal_sum_of_costs", "sum of costs")),
}
"""The columns of our own that stand beside a published metric: names of rates, and their heads."""


def print_rates(answers: Sequence[JudgedAnswer], published: Sequence[PublishedResult]) -> None:
    """Print valid and optimal rates and the ISR by agents and size, beside published rates.

    Where the terminal is too narrow for all columns, they follow in further tables.
    """
    cells, aggregates = rates_by_cell(answers), rates_by_agents(answers)
    for metric in _OWN:
        models = list(dict.fromkeys(one.model for one in published))
        print_table(_table(metric, cells, aggregates, models, published))
    _print_misprints(published, {(one.num_agents, one.size) for one in (*cells, *aggregates)})
    _print_configurations(answers)
    _print_total(answers)


def _table(
    metric: str,
    cells: Sequence[BenchmarkRates],
    aggregates: Sequence[BenchmarkRates],
    models: Sequence[str],
    published: Sequence[PublishedResult],
) -> Table:
    """Make the table of one metric by agents and size, with a column for each published model."""
    heads = [head for _, head in _OWN[metric]]
    title = f"\n{metric.capitalize()}, per cent [95% interval]"
    table = new_table(title, "agents, board", "n", *heads, *models)
    printed = {(one.num_agents, one.size, one.model): one for one in published}
    for aggregate in aggregates:
        agents = aggregate.num_agents
        for row in (*(cell for cell in cells if cell.num_agents == agents), aggregate):
            name = f"{agents}, all" if row.size is None else f"{agents}, {row.size}x{row.size}"
            own = [_rate(row, one) for one, _ in _OWN[metric]]
            found = (printed.get((agents or 0, row.size, model)) for model in models)
            beside = [_printed(one, metric) for one in found]
            table.add_row(name, f"{row.count}", *own, *beside)
        table.add_section()
    return table


def _printed(result: PublishedResult | None, metric: str) -> str:
    if result is None:
        return "-"
    value: float = getattr(result, metric)
    return f"{value:.2f}{'*' if metric in result.misprinted else ''}"


def _print_misprints(
    published: Sequence[PublishedResult], shown: set[tuple[int | None, int | None]]
) -> None:
    for one in published:
        if (one.num_agents, one.size) not in shown:
            continue
        for metric in one.misprinted:
            board = "all sizes" if one.size is None else f"{one.size}x{one.size}"
            value = getattr(one, metric)
            if one.means is None:
                why = "which no count of 150 boards gives"
            else:
                mean = dict(zip(("valid", "optimal"), one.means, strict=True))[metric]
                why = f"but its own cells average {mean:.2f}"
            console.print(
                f"* {one.model}, {one.num_agents} agents, {board}: {metric} is printed as "
                f"{value:.2f}, {why}.",
                soft_wrap=True,
            )


def _print_configurations(answers: Sequence[JudgedAnswer]) -> None:
    rows = rates_by_configuration(answers)
    if len(rows) > 1:
        _print_rows(
            "\nBy configuration, per cent [95% interval]", rows, lambda one: str(one.config)
        )


def _print_total(answers: Sequence[JudgedAnswer]) -> None:
    total = total_rates(answers)
    _print_rows("\nAll answers, per cent [95% interval]", [total], lambda _: "all")
    failures = ", ".join(f"{name} {count}" for name, count in total.failures.items() if count)
    longest = max(answer.tokens for answer in answers)
    console.print(
        f"First failures: {failures or 'none'}.\n"
        f"Tokens: {total.tokens:,} in all, {total.tokens / total.count:,.0f} per answer, at most "
        f"{longest:,}.",
        soft_wrap=True,
    )
    if unknown := sum(answer.board.optimum is None for answer in answers):
        console.print(
            f"The optimum of {unknown} boards is not known: answers to them count as not optimal."
        )


def _print_rows(
    title: str, rows: Sequence[BenchmarkRates], name: Callable[[BenchmarkRates], str]
) -> None:
    heads = (VALID, ISR, "optimal makespan", "optimal sum of costs")
    table = new_table(title, "", "n", *heads)
    for row in rows:
        metrics = ("valid", "isr", "optimal_makespan", "optimal_sum_of_costs")
        own = [_rate(row, metric) for metric in metrics]
        table.add_row(name(row), f"{row.count}", *own)
    print_table(table)


def _rate(row: BenchmarkRates, metric: str) -> str:
    """Write a rate in per cent, with its interval; the ISR, a mean of shares, has none."""
    if metric == "isr":
        return f"{100 * row.isr:.1f}"
    return rate_text(row.counts[metric], row.count)
