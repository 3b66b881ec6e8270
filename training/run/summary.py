"""The end result of a run: as a record, and as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from engineer.lake import SizeKnobs
from jaxlake import wilson_interval
from jaxlake.paired import PairedComparison
from training.phases.stage_results import StageResult, decision_of
from training.run.progress import console, new_table
from training.run.records import Rates, SummaryRecord
from training.schema import RunConfig


def summary_of(config: RunConfig, results: Sequence[StageResult]) -> SummaryRecord:
    """Every validation and every decision of a finished run, in order."""
    return SummaryRecord(
        name=config.name,
        seed=config.seed,
        stages=tuple(result.validation for result in results),
        decisions=tuple(decision_of(results, stage) for stage in range(1, len(results))),
    )


def print_summary(
    config: RunConfig, summary: SummaryRecord, changes: Sequence[PairedComparison]
) -> None:
    """Print rates by map size with intervals, and the configurations side by side.

    `changes` compare each stage with the one that its weights came from.
    """
    stages = summary.stages
    first = "warm start" if config.warm_start is not None else "before"
    heads = [f"stage {stage.stage}" if stage.stage else first for stage in stages]
    for title, name in (("Valid", "valid"), ("Optimal (sum of costs)", "optimal_sum_of_costs")):
        table = new_table(f"\n{title}, per cent [95% interval]", "map size", *heads)
        for rows in zip(*(stage.rows for stage in stages), strict=True):
            size = rows[0].size
            table.add_row(f"{size}x{size}", *(rate(row, name) for row in rows))
        table.add_section()
        table.add_row("all", *(rate(stage.total, name) for stage in stages))
        console.print(table)
        if name == "valid" and changes:
            title = "\nValid, change from the weights it began with, points [95% interval, paired]"
            table = new_table(title, "map size", *heads[1:])
            table.add_row("all", *map(change, changes))
            console.print(table)

    heads, configurations = ["stage 1 (given)"], [config.environment.initial]
    for decision in summary.decisions:
        heads.append(f"stage {decision.stage + 1}: {decision.kind}")
        configurations.append(decision.configuration)
    table = new_table("\nConfigurations: data, holes, waits (per cent)", "map size", *heads)
    for size in config.environment.bounds.sizes:
        table.add_row(f"{size}x{size}", *(_percents(one.sizes[size]) for one in configurations))
    console.print(table)
    names = {decision.engineer for decision in summary.decisions}
    console.print(f"Written by: {', '.join(sorted(names))}.")


def rate(row: Rates, name: str) -> str:
    """A rate with its Wilson interval, in per cent; `name` says which one, such as "valid"."""
    return rate_text(getattr(row, name), row.count)


def rate_text(successes: int, count: int) -> str:
    """Write a rate with its 95% Wilson interval, in per cent."""
    low, high = wilson_interval(successes, count)
    return f"{100 * successes / count:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def change(comparison: PairedComparison) -> str:
    """The change of the valid rate with its interval, in points."""
    low, high = comparison.interval()
    return f"{100 * comparison.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def _percents(knobs: SizeKnobs) -> str:
    ratios = (knobs.data_ratio, knobs.hole_ratio, knobs.wait_ratio)
    return " ".join(f"{100 * ratio:.0f}" for ratio in ratios)
