"""The end result of a run: as a file, and as tables on the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from jaxlake import wilson_interval
from training.config import RunConfig
from training.run.directory import RunDirectory, read_json
from training.run.progress import console


def summarise(directory: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """What `summary.json` holds: every validation and every decision, in order."""
    rounds = range(1, config.stages.rounds + 1)
    return {
        "finished": True,
        "name": config.name,
        "seed": config.seed,
        "stages": [read_json(directory.stage(stage) / "validation.json") for stage in (0, *rounds)],
        "decisions": [read_json(directory.stage(stage) / "decision.json") for stage in rounds],
    }


def print_summary(directory: RunDirectory, config: RunConfig) -> None:
    """Print rates by map size with intervals, and the configurations side by side."""
    summary = read_json(directory.summary)
    stages = summary["stages"]
    first = "warm start" if config.warm_start is not None else "before"
    heads = [first if stage["stage"] == 0 else f"round {stage['stage']}" for stage in stages]
    for title, name in (("Valid", "valid"), ("Optimal (sum of costs)", "optimal_sum_of_costs")):
        table = Table(title=f"\n{title}, per cent [95% interval]", title_justify="left")
        table.add_column("map size")
        for head in heads:
            table.add_column(head, justify="right")
        for index, row in enumerate(stages[0]["rows"]):
            size = row["size"]
            table.add_row(f"{size}x{size}", *(rate(stage["rows"][index], name) for stage in stages))
        table.add_section()
        table.add_row("all", *(rate(stage["total"], name) for stage in stages))
        console.print(table)

    table = Table(title="\nConfigurations: data, holes, waits (per cent)", title_justify="left")
    table.add_column("map size")
    columns = [("round 1 (given)", config.environment.initial.model_dump(mode="json"))] + [
        (f"round {decision['stage'] + 1}: {decision['kind']}", decision["configuration"])
        for decision in summary["decisions"]
    ]
    for head, _ in columns:
        table.add_column(head, justify="right")
    for size in config.environment.bounds.sizes:
        table.add_row(
            f"{size}x{size}", *(_knobs(_of_size(column["sizes"], size)) for _, column in columns)
        )
    console.print(table)
    names = {decision["engineer"] for decision in summary["decisions"]}
    console.print(f"Written by: {', '.join(sorted(names))}.")


def rate(row: dict[str, Any], name: str) -> str:
    """A rate with its Wilson interval, in per cent."""
    low, high = wilson_interval(row[name], row["count"])
    return f"{100 * row[name] / row['count']:.1f} [{100 * low:.0f}, {100 * high:.0f}]"


def _knobs(knobs: dict[str, float]) -> str:
    return " ".join(
        f"{100 * knobs[name]:.0f}" for name in ("data_ratio", "hole_ratio", "wait_ratio")
    )


def _of_size(sizes: dict[Any, Any], size: int) -> dict[str, float]:
    return sizes[size] if size in sizes else sizes[str(size)]
