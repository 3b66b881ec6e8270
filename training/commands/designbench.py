"""`jaxlake designbench`: environment engineers on simulated learners."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import describe, local_name, local_path, number, whole_numbers
from jaxlake.command_line.json_lines import open_output
from jaxlake.command_line.paths import require_writable
from training.errors import UserError, did_you_mean, format_validation_errors

if TYPE_CHECKING:
    from engineer.bench.scores import Entry, Results
    from engineer.bench.simulation import EngineerFactory
    from engineer.context.view import ContextStyle
    from engineer.design import DesignSettings
    from engineer.engineers.controls import AlteredEvidence
    from training.schema import EngineerConfig

    EngineerSetup = tuple[EngineerFactory, DesignSettings]

_HELP = """\
Let engineers design the training of simulated learners, and print by how many points of valid rate
they beat a fixed configuration. No model is trained. See docs/how_to/designbench.md.

An engineer is a scripted engineer, your own package.module:CLASS, a Hugging Face model
(jaxlake-base, a folder or a hub name) or, with --endpoint, a model behind an OpenAI-compatible API.
The API key is read from the environment and never printed.

exit status: 0 the table was printed, 2 invalid input
"""

_LEARNERS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    describe(parser, run, _HELP)
    engineer_help = (
        "engineer to compare with the baselines; repeatable (default: all scripted engineers)"
    )
    parser.add_argument(
        "--engineer", metavar="NAME", action="append", default=[], help=engineer_help
    )
    learners_help = f"learners per track, at least 2 ({_LEARNERS})"
    parser.add_argument(
        "--learners", metavar="N", type=number(int, 2), default=_LEARNERS, help=learners_help
    )
    groups_help = "tracks by their number of groups (2,4,8)"
    parser.add_argument(
        "--groups", metavar="2,4,8", type=whole_numbers, default=[2, 4, 8], help=groups_help
    )
    controls_help = "skip the controls with false evidence, which need 2 of every 3 calls"
    parser.add_argument("--no-controls", action="store_true", help=controls_help)
    parser.add_argument("--out", metavar="FILE", type=local_name, help="write the results as JSON")
    files_help = "print two files of results side by side, and evaluate nothing"
    parser.add_argument("--compare", metavar=("A", "B"), nargs=2, type=local_path, help=files_help)
    models = parser.add_argument_group("for models")
    style_help = "full: contexts in sentences (default); compact: in symbols, for small models "
    style_help += "(default for jaxlake-base)"
    models.add_argument("--style", choices=("full", "compact"), help=style_help)
    sampler_help = "engine for Hugging Face models: the trainee's own decoder (default) or vLLM"
    models.add_argument("--sampler", choices=("jax", "vllm"), default="jax", help=sampler_help)
    models.add_argument(
        "--endpoint", metavar="URL", help="address of the models' API, ending in /v1"
    )
    key_help = "environment variable that holds the key (default: no key is sent)"
    models.add_argument("--api-key-env", metavar="VAR", help=key_help)
    tokens_help = "longest answer (512)"
    models.add_argument(
        "--max-tokens", metavar="N", type=number(int, 1), default=512, help=tokens_help
    )


def run(args: argparse.Namespace) -> int:
    """Evaluate the engineers, print the table and write the results."""
    if args.compare:
        return _compare(args.compare)
    from engineer.bench.version import get_track

    for num_groups in args.groups:
        try:
            get_track(num_groups)
        except ValueError as error:
            raise UserError(f"--{error}") from None
    require_writable(args.out)
    names = list(dict.fromkeys(args.engineer))
    for name in names:
        _require_engineer(name, args)
    results = _play_all(names, args)
    from engineer.bench.scores import results_table

    print(results_table(results))
    if args.out is not None:
        with open_output(args.out) as out:
            out.write(results.model_dump_json(indent=1) + "\n")
    return 0


def _compare(paths: Sequence[Path]) -> int:
    from engineer.bench.scores import comparison_table, read_results

    results = [read_results(path) for path in paths]
    print(comparison_table([path.stem for path in paths], results))
    return 0


def _play_all(names: Sequence[str], args: argparse.Namespace) -> "Results":
    """Evaluate the baselines and the given engineers, or all scripted ones, on every track."""
    from engineer.bench.scores import BASELINE, Entry, Results
    from engineer.engineers.catalogue import SCRIPTED_ENGINEERS

    entries: list[Entry] = []
    for name in dict.fromkeys([BASELINE, "random", "easy_to_hard", *(names or SCRIPTED_ENGINEERS)]):
        with _open_engineer(name, args) as setup:
            for num_groups in args.groups:
                print(f"jaxlake: {name}, {num_groups} groups", file=sys.stderr, flush=True)
                entries += _run_on_track(name, setup, num_groups, args)
    return Results(entries=tuple(entries))


def _run_on_track(
    name: str, setup: "EngineerSetup", num_groups: int, args: argparse.Namespace
) -> "Iterator[Entry]":
    """Yield the results of an engineer on a track, and of its controls if it has any."""
    from engineer.bench.scores import EVIDENCE_FREE, Entry
    from engineer.bench.simulation import train_learners
    from engineer.bench.version import get_track
    from engineer.engineers.controls import CONTROLS

    factory, settings = setup
    bench_track = get_track(num_groups)
    learners = bench_track.learners(args.learners)
    yield Entry.from_result(
        name, num_groups, train_learners(factory, learners, bench_track.domain, settings)
    )
    if name in EVIDENCE_FREE or args.no_controls:
        return
    for prefix, control in CONTROLS.items():
        result = train_learners(_compose(control, factory), learners, bench_track.domain, settings)
        yield Entry.from_result(f"{prefix}:{name}", num_groups, result)


def _compose(control: "type[AlteredEvidence]", factory: "EngineerFactory") -> "EngineerFactory":
    return lambda run: control(factory(run))


@contextmanager
def _open_engineer(name: str, args: argparse.Namespace) -> "Iterator[EngineerSetup]":
    """Yield an engineer by name, and stop its processes when the block ends."""
    from engineer.design import DesignSettings
    from engineer.engineers.catalogue import SCRIPTED_ENGINEERS, scripted_engineer

    if name in SCRIPTED_ENGINEERS:
        # Scripted engineers ignore the prompt, and the compact prompt is faster to write.
        yield lambda run: scripted_engineer(name, run), DesignSettings(style="compact")
        return
    from training.phases.standalone_engineers import open_engineer

    style: ContextStyle = args.style or ("compact" if name == "jaxlake-base" else "full")
    with open_engineer(name, _make_config(name, style, args), args.sampler) as engineer:
        yield lambda run: engineer, DesignSettings(style=style)


def _make_config(name: str, style: "ContextStyle", args: argparse.Namespace) -> "EngineerConfig":
    """Return the settings of a model, as in the section `engineer` of a run."""
    from pydantic import ValidationError

    from jaxlake.user_code import is_code_name
    from training.schema import EngineerConfig

    kind = name if is_code_name(name) else "endpoint" if args.endpoint else "model"
    try:
        return EngineerConfig(
            kind=kind,
            model=name,
            base_url=args.endpoint,
            api_key_env=args.api_key_env,
            style=style,
            temperature=0.0,
            max_tokens=args.max_tokens,
        )
    except ValidationError as error:
        raise UserError(f"--engineer {name}: {next(format_validation_errors(error))}") from None


def _require_engineer(name: str, args: argparse.Namespace) -> None:
    """Raise a `UserError` for an unknown engineer, before anything runs."""
    from engineer.engineers.catalogue import SCRIPTED_ENGINEERS
    from engineer.engineers.controls import split_control_name

    if name in SCRIPTED_ENGINEERS:
        return
    if split_control_name(name)[0] is not None:
        raise UserError(f"--engineer must not be a control, got {name!r}: every control runs")
    _make_config(name, "full", args)
    if args.endpoint or ":" in name or name == "jaxlake-base":
        return
    if "/" not in name:
        raise UserError(
            f"--engineer must be one of {', '.join(SCRIPTED_ENGINEERS)}, jaxlake-base, "
            "package.module:CLASS, a model's folder or hub name (with a /), or a model of "
            f"--endpoint, got {name!r}{did_you_mean(name, [*SCRIPTED_ENGINEERS, 'jaxlake-base'])}"
        )
    from training.policy.model_folders import require_model

    require_model(name)
