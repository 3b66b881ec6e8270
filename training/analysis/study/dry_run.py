"""What a study would do and what it takes, computed without doing it."""

from __future__ import annotations

from rich.table import Table

from training.analysis.study.config import Study
from training.analysis.study.directory import StudyDirectory
from training.run.progress import console, duration


def print_study_plan(study: Study, directory: StudyDirectory) -> None:
    """Print the runs, their state, and what each of them and all of them take."""
    config, warm_start, runs = study.config, study.warm_start, study.runs
    left = [run for run in runs if not directory.run(run).finished()]
    console.print(f"Plan of {config.name} in {directory.path}; nothing is started.\n")
    table = Table(title="Runs, in their order", title_justify="left")
    for head in ("run", "set", "state"):
        table.add_column(head, overflow="fold")
    state = "finished" if directory.warm_started else "to do"
    table.add_row("warm start", " ".join(config.set), state)
    overrides = {one.name: " ".join(one.set) for one in config.engineers}
    for run in runs:
        begun = "to be continued" if directory.run(run).path.exists() else "to do"
        table.add_row(str(run), overrides[run.engineer], begun if run in left else "finished")
    console.print(table)

    wanted = warm_start.validation
    boards = len(wanted.sizes) * len(wanted.hole_ratios) * len(wanted.wait_ratios) * wanted.per_cell
    stages = warm_start.stages.count
    updates = stages * warm_start.updates_per_stage
    instances = updates * warm_start.grpo.prompts_per_update
    table = Table(title="\nWhat they take", title_justify="left")
    for head in ("", "each run", f"all {len(runs)}"):
        table.add_column(head, justify="left" if not head else "right")
    for name, amount in (
        ("stages", stages),
        ("updates", updates),
        ("training instances", instances),
        ("completions in training", instances * warm_start.grpo.completions),
        ("validation answers", boards * (stages + 1)),
    ):
        table.add_row(name, f"{amount:,}", f"{amount * len(runs):,}")
    attempts = [study.config_of(run, directory.policy).engineer.attempts for run in runs]
    most, total = stages * max(attempts), stages * sum(attempts)
    table.add_row("engineer's answers, at most", f"{most:,}", f"{total:,}")
    console.print(table)
    if left and (each := directory.seconds_per_run) is not None:
        console.print(
            f"\n{len(left)} of {len(runs)} runs are left; at {duration(each)} per run, as so far, "
            f"they take about {duration(len(left) * each)}."
        )
