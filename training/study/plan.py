"""What a study would do and take, worked out without doing it."""

from __future__ import annotations

from rich.table import Table

from training.report.figures import duration
from training.run.progress import console
from training.study.config import Study
from training.study.directory import StudyDirectory


def print_plan(study: Study, directory: StudyDirectory) -> None:
    """Print the runs, their state, and what one and all of them take."""
    config, run = study.config, study.run
    arms = study.arms
    left = [arm for arm in arms if not directory.finished(arm)]
    console.print(f"Plan of {config.name} in {directory.path}; nothing is started.\n")
    table = Table(title="Runs, in their order", title_justify="left")
    for head in ("run", "set", "state"):
        table.add_column(head, overflow="fold")
    sets = {one.name: " ".join(one.set) for one in config.engineers}
    table.add_row(
        "warm start", " ".join(config.set), "finished" if directory.warm_started else "to do"
    )
    for arm in arms:
        there = directory.run(arm).exists()
        state = "to do" if arm in left and not there else "to go on with" if there else ""
        table.add_row(
            str(arm), sets[arm.engineer], "finished" if directory.finished(arm) else state
        )
    console.print(table)

    wanted = run.validation
    boards = len(wanted.sizes) * len(wanted.hole_ratios) * len(wanted.wait_ratios) * wanted.per_cell
    rounds = run.stages.rounds
    updates = rounds * run.updates_per_round
    instances = updates * run.grpo.prompts_per_update
    table = Table(title="\nWhat they take", title_justify="left")
    for head in ("", "each run", f"all {len(arms)}"):
        table.add_column(head, justify="left" if not head else "right")
    for name, amount in (
        ("rounds", rounds),
        ("updates", updates),
        ("training instances", instances),
        ("completions in training", instances * run.grpo.completions),
        ("validation answers", boards * (rounds + 1)),
    ):
        table.add_row(name, f"{amount:,}", f"{amount * len(arms):,}")
    attempts = [study.run_of(arm, directory.policy).engineer.attempts for arm in arms]
    table.add_row(
        "engineer's answers, at most", f"{rounds * max(attempts):,}", f"{rounds * sum(attempts):,}"
    )
    console.print(table)
    each = directory.seconds_a_run
    if each is not None and left:
        console.print(
            f"\n{len(left)} of {len(arms)} runs are left; at {duration(each)} a run, as so far, "
            f"about {duration(len(left) * each)}."
        )
