"""`python -m engineer.sums`: Train -> Validate -> Design on column addition, in a few seconds."""

import argparse
import sys
from collections.abc import Iterator, Sequence

from engineer.design import DesignRecord
from engineer.engineers.catalogue import SCRIPTED, SHUFFLED, Setup, scripted
from engineer.evidence import StageEvidence
from engineer.space import number_text, ratio_text
from engineer.sums.domain import FAILURES
from engineer.sums.loop import BOUNDS, Loop, Stage, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loop and print what it does.

    Args:
        arguments: of the command line; None: those of the process.

    Returns:
        The exit status, 0.

    Raises:
        SystemExit: with status 2 for arguments that can't be used.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        loop = Loop(stages=options.stages, instances=options.instances, seed=options.seed)
        setup = Setup(BOUNDS, loop.initial(), loop.stages, loop.seed)
        engineer = scripted(options.engineer, setup)
    except ValueError as error:
        parser.error(str(error))
    print(
        f"engineer {engineer.name}, seed {loop.seed}: {loop.stages} stages of {loop.instances}"
        f" sums, validated on {len(loop.held_out())} others",
        flush=True,
    )
    before: StageEvidence | None = None
    for stage in run(loop, engineer):
        print("\n".join(_stage_lines(stage, before, options.context)), flush=True)
        before = stage.evidence
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engineer.sums",
        description="A table of digit preferences learns column addition; after each stage an"
        " engineer reads what it fails and designs the next one's sums.",
    )
    named = f"{', '.join(SCRIPTED)}, each also as {SHUFFLED}NAME"
    parser.add_argument("--engineer", default="rule", metavar="NAME", help=f"one of {named}")
    parser.add_argument("--stages", type=int, default=Loop.stages, metavar="N")
    parser.add_argument(
        "--instances", type=int, default=Loop.instances, metavar="N", help="different sums a stage"
    )
    parser.add_argument("--seed", type=int, default=Loop.seed, metavar="N")
    parser.add_argument(
        "--context", action="store_true", help="also print what the engineer got to read"
    )
    return parser


def _stage_lines(stage: Stage, before: StageEvidence | None, context: bool) -> Iterator[str]:
    yield f"\nstage {stage.evidence.stage}" if stage.configuration else "\nwarm start"
    yield "digits  data carry third         valid  first failures"
    knobs = stage.configuration.values() if stage.configuration else {}
    for group, tally in stage.evidence.validation.items():
        ratios = [ratio_text(value) for value in knobs.get(group, {}).values()] or ["-"] * 3
        earlier = f"{before.validation[group].valid_percent}% ->" if before else ""
        failures = ", ".join(
            f"{term.name} {tally.failures[term.key]}"
            for term in FAILURES
            if term.key in tally.failures
        )
        yield (
            f"{group:<6} "
            + "".join(f"{ratio:>6}" for ratio in ratios)
            + f"{earlier:>8} {tally.valid_percent}%  {failures or 'none'}"
        )
    if stage.record:
        yield from _design_lines(stage.record, context)


def _design_lines(record: DesignRecord, context: bool) -> Iterator[str]:
    if context:
        yield f"\n--- what {record.engineer} got to read\n{record.context}\n---"
    yield f"design by {record.engineer}: {record.kind}, {record.reason}"
    for repair in record.repairs:
        yield (
            f"  repair {repair.name}: {repair.field} {number_text(repair.old)}"
            f" -> {number_text(repair.new)}"
        )
    for change in record.diff:
        old = "none" if change.old is None else number_text(change.old)
        yield f"  {change.field} {old} -> {number_text(change.new)}"
    if not record.diff:
        yield "  no change"


if __name__ == "__main__":
    sys.exit(main())
