"""The final result of a run, as a record and as tables in the terminal.

ISR is the individual success rate: the mean fraction of agents that end at their goals.
"""

from collections.abc import Callable, Sequence
from functools import partial

from jaxlake.statistics.paired import PairedComparison
from training.environments.catalogue import get_domain
from training.phases.stage_results import StageResult, get_decision
from training.run.progress import console, new_table, print_table
from training.run.rates import ISR, VALID, format_isr, format_rate
from training.run.records import Rates, SummaryRecord
from training.schema import RunConfig


def make_summary(config: RunConfig, results: Sequence[StageResult]) -> SummaryRecord:
    """Return all validations and decisions of a finished run, in order."""
    return SummaryRecord(
        name=config.name,
        seed=config.seed,
        stages=tuple(result.validation for result in results),
        decisions=tuple(get_decision(results, stage) for stage in range(1, len(results))),
    )


def print_summary(
    config: RunConfig,
    summary: SummaryRecord,
    changes: Sequence[PairedComparison],
    problems: Sequence[str] = (),
) -> None:
    """Print rates by group with intervals, the configurations, and the problems of a run.

    `changes` compares each stage with the stage that its weights came from.
    """
    stages, domain = summary.stages, get_domain(config)
    label = domain.space.group_label
    first_heading = "warm start" if config.warm_start is not None else "before"
    headings = [f"stage {stage.stage}" if stage.stage else first_heading for stage in stages]
    has_individual_rate = stages[0].total.isr is not None

    def print_rates(title: str, format_rates: Callable[[Rates], str]) -> None:
        table = new_table(title, label, *headings)
        for group in stages[0].groups:
            cells = (format_rates(stage.groups[group]) for stage in stages)
            table.add_row(domain.group_name(group), *cells)
        table.add_section()
        table.add_row("all", *(format_rates(stage.total) for stage in stages))
        print_table(table)

    titles = {"valid": VALID[0].upper() + VALID[1:] if has_individual_rate else "Valid"}
    titles |= {label.key: label.name[0].upper() + label.name[1:] for label in domain.scores[:1]}
    for name, title in titles.items():
        print_rates(f"\n{title}, per cent [95% interval]", partial(format_rate, name=name))
        if name == "valid" and changes:
            title = "\nValid, change from the weights it began with, points [95% interval, paired]"
            table = new_table(title, label, *headings[1:])
            table.add_row("all", *map(format_change, changes))
            print_table(table)

    if has_individual_rate:
        title = f"\n{ISR}: share of the agents at their goals, per cent"
        print_rates(title, lambda rates: format_isr(rates) or "-")

    headings, configurations = ["stage 1 (given)"], [config.environment.initial.values()]
    for decision in summary.decisions:
        headings.append(f"stage {decision.stage + 1}: {decision.kind}")
        configurations.append(decision.configuration.values())
    knobs = ", ".join(domain.space.knobs)
    table = new_table(f"\nConfigurations: {knobs} (per cent)", label, *headings)
    for group in domain.space.groups:
        knobs_by_stage = [configuration[group].values() for configuration in configurations]
        cells = (" ".join(f"{100 * value:.0f}" for value in values) for values in knobs_by_stage)
        table.add_row(domain.group_name(group), *cells)
    print_table(table)
    engineers = {decision.engineer for decision in summary.decisions}
    console.print(f"Written by: {', '.join(sorted(engineers))}.")
    for problem in problems:
        console.print(f"\n{problem}", style="yellow", soft_wrap=True)


def format_change(comparison: PairedComparison) -> str:
    """Return the change of the valid rate with its interval, in percentage points."""
    low, high = comparison.interval()
    return f"{100 * comparison.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
