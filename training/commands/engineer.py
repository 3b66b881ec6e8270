"""`jaxlake engineer`: inspect contexts, review answers and replay stages with other engineers."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import (
    add_action,
    add_actions,
    add_configuration,
    add_output,
    add_run,
    describe,
    local_name,
    local_path,
)
from jaxlake.command_line.json_lines import (
    LINES_HELP,
    Record,
    RecordError,
    Results,
    open_output,
    process_file,
    read_records,
    require_readable,
)
from jaxlake.command_line.paths import require_writable
from training.commands.trust import add_trust, read_only
from training.errors import UserError

if TYPE_CHECKING:
    from engineer.lake import LakeConfiguration
    from training.analysis.replay import Design
    from training.schema import RunConfig

_HELP = """\
Inspect the environment engineer: its context after a stage, the review of its answers, and the
answers of other engineers to the same context.

exit status: 0 done, 1 some lines were invalid, 2 invalid input or configuration
"""

_APPLY = f"""\
Review answers as a run does: parse, schema, clamp, normalise, minimum share, round, bounded step,
feasibility. JSON lines in, JSON lines out.

in   {{"id": ..., "answer": "a model's whole answer"}}
out  {{"id", "decision", "repairs", "reason", "configuration"}}
     decision is accepted, repaired or kept. kept means that the answer can't be used and the
     configuration is the one of --current. repairs are {{"name", "field", "old", "new"}}, in order.

{LINES_HELP}
"""

_CONTEXT = """\
Print the engineer's context after a stage, byte for byte.

exit status: 0 printed, 2 the run has no such stage
"""

_REPLAY = """\
Give a stage's context to other engineers, and print their decisions, attempts, repairs, changed
knobs, tokens and seconds. The file also contains the configurations and all changes. Nothing is
trained. checkpoint and base are loaded from the run's directory.

exit status: 0 scored, 2 there is no such run, stage or engineer
"""

_MAX_CHARACTERS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, None, _HELP)
    actions = add_actions(parser)
    apply = add_action(actions, "apply", _review_answers, "review answers (JSON lines)", _APPLY)
    add_configuration(apply)
    apply.add_argument(
        "answers", metavar="ANSWERS", type=local_name, help="JSON lines; - reads standard input"
    )
    file_help = "the configuration in force, YAML or JSON as in a run's stages"
    apply.add_argument("--current", metavar="FILE", type=local_path, required=True, help=file_help)
    add_output(apply)
    add_trust(apply)

    context = add_action(
        actions, "context", _print_context, "print the engineer's context", _CONTEXT
    )
    replay = add_action(
        actions, "replay", _replay_stage, "give a context to other engineers", _REPLAY
    )
    for action in (context, replay):
        add_run(action)
        add_trust(action)
        stage_help = "stage, from 1 (default: the last validated stage)"
        action.add_argument("--stage", metavar="S", type=int, help=stage_help)
    engineers_help = "names as in engineer.kind, separated by commas"
    replay.add_argument("--engineers", metavar="A,B,C", required=True, help=engineers_help)
    replay.add_argument(
        "--json", metavar="FILE", type=local_name, help="write the results to this file too"
    )


@read_only
def _review_answers(args: argparse.Namespace) -> int:
    require_readable(args.answers)
    require_writable(args.output)
    from engineer import StepLimit, review_answer
    from engineer.quoting import escape_surrogates
    from training.schema import load

    config = load(args.config, args.set)
    current = _read_configuration(args.current, config)
    from training.environments.catalogue import get_domain

    domain, step_limit = get_domain(config), StepLimit(max_step=config.engineer.max_step)

    def review(record: Record) -> Record:
        decision = review_answer(record["answer"], current, domain, step_limit)
        configuration = decision.configuration or current
        return {
            "id": record.get("id"),
            "decision": "kept" if decision.configuration is None else decision.kind,
            "repairs": [repair.model_dump(mode="json") for repair in decision.repairs],
            "reason": escape_surrogates(decision.reason),
            "configuration": configuration.model_dump(mode="json"),
        }

    def review_lines(lines: Iterable[bytes]) -> Results:
        for line_number, record in read_records(lines, _read_answer):
            yield line_number, record.result if isinstance(record, RecordError) else review(record)

    return process_file(args.answers, args.output, review_lines, noun="answers")


def _read_configuration(path: Path, config: "RunConfig") -> "LakeConfiguration":
    """Read a configuration in the format of a run's stages, within the bounds of the run."""
    from pydantic import ValidationError

    from engineer.lake import LakeConfiguration
    from training.errors import format_validation_errors
    from training.schema import read_yaml

    try:
        configuration = LakeConfiguration.model_validate(read_yaml(path))
    except ValidationError as error:
        raise UserError(f"{path}: {next(format_validation_errors(error))}") from error
    if violation := config.lake.bounds.violation(configuration):
        raise UserError(f"{path}: {violation}")
    return configuration


def _read_answer(record: Record) -> Record:
    if "answer" not in record:
        raise RecordError("answer: required, but missing")
    if not isinstance(answer := record["answer"], str):
        raise RecordError(f"answer must be a string, got {type(answer).__name__}")
    if len(answer) > _MAX_CHARACTERS:
        raise RecordError(
            f"answer must have at most {_MAX_CHARACTERS} characters, got {len(answer)}"
        )
    return record


@read_only
def _print_context(args: argparse.Namespace) -> int:
    from training.commands.runs import require_run, require_stage

    stage = require_stage(args.run_dir, args.stage)
    sys.stdout.write(require_run(args.run_dir).stage(stage).context.read())
    return 0


@read_only
def _replay_stage(args: argparse.Namespace) -> int:
    from jaxlake.user_code import restrict_imports_to

    # Only code that is named on the command line may be imported.
    allowed_code = None if args.trust_code else frozenset(args.engineers.split(","))
    with restrict_imports_to(allowed_code):
        return _run_replay(args)


def _run_replay(args: argparse.Namespace) -> int:
    from training.commands.runs import require_stage
    from training.schema import check_engineer_kind

    kinds = [name for kind in args.engineers.split(",") if (name := kind.strip())]
    if not kinds:
        raise UserError("--engineers must be names separated by commas, got none")
    for kind in kinds:
        try:
            check_engineer_kind(kind)
        except ValueError as error:
            raise UserError(f"--engineers: {error}") from None
    stage = require_stage(args.run_dir, args.stage)
    require_writable(args.json)
    from training.analysis.replay import replay_stage

    _print_designs(replay_stage(args.run_dir, stage, kinds), args.json)
    return 0


def _print_designs(designs: "list[Design]", path: str | None) -> None:
    from training.run.progress import new_table, print_table

    # Print the table first, because writing the file may fail after hours of answers.
    headings = ("decision", "attempts", "repairs", "changes", "tokens", "seconds")
    table = new_table("Designs", "engineer", *headings)
    for design in designs:
        counted_lists, costs = (design.attempts, design.repairs, design.diff), design.spent
        counts = [str(count) for count in (*map(len, counted_lists), costs.engineer_tokens)]
        table.add_row(design.engineer, design.kind, *counts, f"{costs.seconds:.1f}")
    print_table(table)
    for design in designs:
        if design.kind == "kept":
            print(f"jaxlake: {design.engineer}: {design.reason}", file=sys.stderr)
    if path is not None:
        with open_output(path) as out:
            json.dump([design.model_dump(mode="json") for design in designs], out, indent=1)
            out.write("\n")
