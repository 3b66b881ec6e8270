"""`jaxlake engineer`: what the engineer saw, and what becomes of any answer."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import (
    add_action,
    add_actions,
    add_configuration,
    add_output,
    add_run,
    describe,
    number,
)
from jaxlake.command_line.json_lines import (
    LINES_HELP,
    Answers,
    Record,
    RecordError,
    answer_file,
    open_output,
    read_records,
    require_readable,
)
from jaxlake.command_line.paths import require_writable
from training.errors import UserError
from training.runtime import set_library_defaults

if TYPE_CHECKING:
    from engineer.lake import LakeConfiguration
    from training.analysis.counterfactual import Design
    from training.schema import RunConfig

_HELP = """\
Look at the environment engineer from outside: the context it was shown, the review of its answers,
what others would have written in its place, what could be learned where.

exit status: 0 done, 1 some lines were invalid, 2 invalid input or configuration
"""

_APPLY = f"""\
Review answers as a run does: parse, schema, clamp, normalise, minimum share, round, bounded step,
feasibility. JSON lines in, JSON lines out.

in   {{"id": ..., "answer": "a model's whole answer"}}
out  {{"id", "decision", "repairs", "reason", "configuration"}}
     decision is accepted, repaired, or kept where the answer can't be used: the configuration is
     then that of --current. repairs are {{"name", "field", "old", "new"}}, in their order.

{LINES_HELP}
"""

_CONTEXT = """\
Print what the engineer was shown after a stage, byte for byte; for a stage that has no decision
yet, what it would be shown.

exit status: 0 printed, 2 the run has no such stage
"""

_READING = """\
Measure whether a model reads compact contexts: what the rule's answer costs it, how much more once
one fact is another context's, whether its edits change where the rule's do, and how they follow the
valid rate. Of a run it is the policy after a stage, and half of the contexts are the run's own.

exit status: 0 measured, 2 there is no such run or model
"""

_REPLAY = """\
Put a stage's frozen context before other engineers and show what they would have written: the
decision, attempts, repairs, changed knobs, tokens and seconds; the file has the configurations and
what was changed. Nothing is trained. checkpoint and base are
loaded from the run's directory.

exit status: 0 scored, 2 there is no such run, stage or engineer
"""

_ABLATE = """\
Put a stage's frozen context before one engineer with all blocks, with each block left out, and with
each block alone, and show what it writes (see `jaxlake engineer replay`).

exit status: 0 done, 2 there is no such run, stage or engineer
"""

_ATLAS = """\
Measure what could be learned where: the policy as it is after a stage, frozen, answers fresh boards
of every map size, hole level and kind of wait (engineer.atlas in the configuration). An atlas that
the run measured is read; one that is measured here goes to RUN/atlases/S.json and is read the next
time. It prints p(1-p) by cell with 95% intervals. Nothing is trained (docs/replay.md).

exit status: 0 printed, 2 there is no such run, stage or policy
"""

_MAX_CHARACTERS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    describe(parser, None, _HELP)
    actions = add_actions(parser)
    apply = add_action(actions, "apply", _apply, "review answers (JSON lines)", _APPLY)
    add_configuration(apply)
    apply.add_argument("answers", metavar="ANSWERS", help="JSON lines; - reads standard input")
    current = "the configuration in force, YAML or JSON as in a run's stages"
    apply.add_argument("--current", metavar="FILE", type=Path, required=True, help=current)
    add_output(apply)

    context = add_action(actions, "context", _context, "print what the engineer saw", _CONTEXT)
    reading = add_action(actions, "reading", _reading, "measure whether it reads", _READING)
    what = "a run's directory, a Hugging Face model folder, or a hub name"
    reading.add_argument("target", metavar="MODEL|RUN", help=what)
    stage = "of a run: the weights in force after this stage (default: the last one)"
    reading.add_argument("--stage", metavar="S", type=int, help=stage)
    count = "contexts, each also with every fact swapped (256)"
    reading.add_argument("--contexts", metavar="N", type=number(int, 2), default=256, help=count)
    reading.add_argument("--json", metavar="FILE", help="write the result to this file too")
    replay = add_action(actions, "replay", _replay, "ask many engineers the same", _REPLAY)
    ablate = add_action(actions, "ablate", _ablate, "leave blocks of a context out", _ABLATE)
    atlas = add_action(actions, "atlas", _atlas, "measure what could be learned where", _ATLAS)
    for action in (context, replay, ablate, atlas):
        add_run(action)
        least = "0 (what the run began with) or later" if action is atlas else "1 or later"
        action.add_argument(
            "--stage", metavar="S", type=int, help=f"{least} (default: the last that was validated)"
        )
    for action in (replay, ablate, atlas):
        action.add_argument("--json", metavar="FILE", help="write the results to this file too")
    names = "names as in engineer.kind, separated by commas"
    replay.add_argument("--engineers", metavar="A,B,C", required=True, help=names)
    ablate.add_argument(
        "--engineer", metavar="KIND", default="checkpoint", help="as in engineer.kind (checkpoint)"
    )


def _apply(args: argparse.Namespace) -> int:
    require_readable(args.answers)
    require_writable(args.output)
    from engineer import Guard, review_answer
    from engineer.quoting import escape_surrogates
    from training.schema import load

    config = load(args.config, args.set)
    current = _read_configuration(args.current, config)
    from training.environments.catalogue import domain_of

    domain, guard = domain_of(config), Guard(max_step=config.engineer.max_step)

    def review(record: Record) -> Record:
        decision = review_answer(record["answer"], current, domain, guard)
        configuration = decision.configuration or current
        return {
            "id": record.get("id"),
            "decision": "kept" if decision.configuration is None else decision.kind,
            "repairs": [repair.model_dump(mode="json") for repair in decision.repairs],
            "reason": escape_surrogates(decision.reason),
            "configuration": configuration.model_dump(mode="json"),
        }

    def answers(lines: Iterable[bytes]) -> Answers:
        for line, record in read_records(lines, _read_answer):
            yield line, record.answer if isinstance(record, RecordError) else review(record)

    return answer_file(args.answers, args.output, answers, what="answers")


def _read_configuration(path: Path, config: "RunConfig") -> "LakeConfiguration":
    """Read a configuration as it stands in a run's stages, within the bounds of the run."""
    from pydantic import ValidationError

    from engineer.lake import LakeConfiguration
    from training.errors import problems_of
    from training.schema import read_yaml

    try:
        configuration = LakeConfiguration.model_validate(read_yaml(path))
    except ValidationError as error:
        raise UserError(f"{path}: {next(problems_of(error))}") from error
    if violation := config.lake.bounds.violation(configuration):
        raise UserError(f"{path}: {violation}")
    return configuration


def _read_answer(record: Record) -> Record:
    if "answer" not in record:
        raise RecordError("answer: missing, a string is needed")
    if not isinstance(answer := record["answer"], str):
        raise RecordError(f"answer: got {type(answer).__name__}, a string is needed")
    if len(answer) > _MAX_CHARACTERS:
        problem = f"got {len(answer)} characters, at most {_MAX_CHARACTERS} are allowed"
        raise RecordError(f"answer: {problem}")
    return record


def _context(args: argparse.Namespace) -> int:
    from training.commands.runs import known_stage

    stage = known_stage(args.run_dir, args.stage)
    from training.analysis.counterfactual import context_shown

    sys.stdout.write(context_shown(args.run_dir, stage))
    return 0


def _replay(args: argparse.Namespace) -> int:
    from training.commands.runs import known_stage
    from training.schema import known_engineer

    kinds = [name for kind in args.engineers.split(",") if (name := kind.strip())]
    if not kinds:
        raise UserError("--engineers: got none, names separated by commas are needed")
    for kind in kinds:
        _known(kind, known_engineer, "--engineers")
    stage = known_stage(args.run_dir, args.stage)
    require_writable(args.json)
    from training.analysis.counterfactual import replay_stage

    return _print_designs(replay_stage(args.run_dir, stage, kinds), args.json)


def _ablate(args: argparse.Namespace) -> int:
    from training.commands.runs import known_stage
    from training.schema import known_engineer

    _known(args.engineer, known_engineer, "--engineer")
    stage = known_stage(args.run_dir, args.stage)
    require_writable(args.json)
    from training.analysis.counterfactual import ablate_stage

    return _print_designs(ablate_stage(args.run_dir, stage, args.engineer), args.json)


def _known(kind: str, check: Callable[[str], object], option: str) -> None:
    """Raise a `UserError` that names the option for an engineer that there is not."""
    try:
        check(kind)
    except ValueError as error:
        raise UserError(f"{option}: {error}") from None


def _reading(args: argparse.Namespace) -> int:
    from training.commands.runs import known_stage
    from training.policy.model_folders import require_model

    run_dir = Path(args.target)
    is_run = (run_dir / "config.yaml").is_file()
    if is_run:
        stage = known_stage(run_dir, args.stage)
    elif args.stage is not None:
        raise UserError(f"--stage: {args.target} is not a run's directory, it has no config.yaml")
    else:
        require_model(args.target)
    require_writable(args.json)
    set_library_defaults()
    from engineer.scoring.reading import format_reading
    from training.analysis.model_reading import read_model, read_run

    if is_run:
        reading = read_run(run_dir, stage, args.contexts)
    else:
        reading = read_model(args.target, args.contexts)
    print(format_reading(reading), flush=True)
    if args.json is not None:
        with open_output(args.json) as out:
            out.write(reading.model_dump_json(indent=1) + "\n")
    return 0


def _atlas(args: argparse.Namespace) -> int:
    from training.commands.runs import known_stage

    stage = known_stage(args.run_dir, args.stage, first=0)
    require_writable(args.json)
    set_library_defaults()
    from training.analysis.atlas import atlas_json, print_atlas, stage_atlas

    record = stage_atlas(args.run_dir, stage)
    print_atlas(record)
    if args.json is not None:
        with open_output(args.json) as out:
            json.dump(atlas_json(record), out, indent=1)
            out.write("\n")
    return 0


def _print_designs(designs: "list[Design]", path: str | None) -> int:
    from training.run.progress import new_table, print_table

    # The table comes before the file, which may be impossible to write after hours of answers.
    heads = ("decision", "attempts", "repairs", "changes", "tokens", "seconds")
    table = new_table("Designs", "engineer", *heads)
    for one in designs:
        counts = (len(one.attempts), len(one.repairs), len(one.diff), one.spent.engineer_tokens)
        table.add_row(one.engineer, one.kind, *map(str, counts), f"{one.spent.seconds:.1f}")
    print_table(table)
    for one in designs:
        if one.kind == "kept":
            print(f"jaxlake: {one.engineer}: {one.reason}", file=sys.stderr)
    if path is not None:
        with open_output(path) as out:
            json.dump([one.model_dump(mode="json") for one in designs], out, indent=1)
            out.write("\n")
    return 0
