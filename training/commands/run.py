"""`jaxlake run`: the whole loop, Train -> Validate -> Design."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import (
    add_configuration,
    describe,
    local_path,
    number,
    reject_ignored,
)
from jaxlake.command_line.paths import check_output_folder
from training.errors import UserError
from training.runtime import set_library_defaults

if TYPE_CHECKING:
    from training.processes import ClusterSettings
    from training.schema import RunConfig

_HEARTBEAT = 60  # seconds

_HELP = """\
Run all stages of a configuration. The same command resumes a run that was stopped.

--set replaces single values: --set grpo.learning_rate=3e-4 stages.count=2. --dry-run checks the
configuration, prints what would be done and what it would take, and stops.

--from RUN starts a new run after the last complete stage of RUN. The new run inherits the weights
after that stage (LoRA adapters merged), the configuration designed for the next stage, and the
engineer's history. They replace model.pretrained, warm_start and environment.initial. It does not
inherit the optimizer state, updates of an incomplete stage, later engineer.learning updates and the
seed. Everything else comes from CONFIG. RUN is copied, and may be removed once the new run has
begun. See docs/how_to/resume.md.

exit status: 0 the run is finished, 2 invalid input or configuration
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `jaxlake run`."""
    describe(parser, run, _HELP)
    add_configuration(parser)
    parser.add_argument(
        "--run-dir",
        metavar="DIR",
        type=local_path,
        help="directory of the run (default: runs/NAME)",
    )
    source_help = "start from the last complete stage of this run"
    parser.add_argument("--from", dest="source", metavar="RUN", type=local_path, help=source_help)
    parser.add_argument(
        "--dry-run", action="store_true", help="check the configuration, print the plan and stop"
    )
    group = parser.add_argument_group(
        "several processes", "start each with the same command, except for --process"
    )
    host_help = (
        "address of process 0, reachable from all hosts; auto: ask SLURM, the TPU pod or Open MPI"
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", type=_parse_coordinator, help=host_help
    )
    group.add_argument("--processes", metavar="N", type=number(int, 1), help="number of processes")
    group.add_argument(
        "--process", metavar="I", type=number(int, 0), help="index of this process, from 0"
    )
    group.add_argument(
        "--heartbeat",
        metavar="S",
        type=number(int, 1),
        help="seconds without a heartbeat before a process is considered dead (default: 60)",
    )
    stop = "stop after this stage (0: the warm start); run again without this option to continue"
    parser.add_argument("--stop-after", metavar="S", type=number(int, 0), help=stop)


def run(args: argparse.Namespace) -> int:
    """Run the loop, or print its plan."""
    set_library_defaults()
    from training.schema import load

    if args.dry_run:
        process_options = ("--coordinator", "--processes", "--process", "--heartbeat")
        reject_ignored(args, "--dry-run", ("--stop-after", *process_options))
    if args.heartbeat is not None and args.coordinator is None:
        raise UserError(f"--heartbeat is {args.heartbeat}; it needs --coordinator")
    from jaxlake.user_code import imported_files, restrict_imports_to

    imported_files.clear()
    config = load(args.config, args.set)
    for name, file in imported_files.items():
        print(f"Imported {name} from {file}.")
    # Other modules in another run's config.yaml are not imported.
    with restrict_imports_to(frozenset(imported_files)):
        return _run(args, config)


def _run(args: argparse.Namespace, config: "RunConfig") -> int:
    from training.schema.engineer_section import check_engineer
    from training.schema.sampling_sections import find_missing_engine

    run_dir = check_output_folder("--run-dir", args.run_dir or Path("runs") / config.name)
    from training.run.directory import RunDirectory, require_literal_path

    require_literal_path(run_dir)
    if args.source is not None:
        from training.phases.starting import make_started_config

        config = make_started_config(config, args.source, run_dir)
    if args.dry_run:
        check_engineer(config.engineer, config.sampling.engine)
        _require_pretrained(config)  # before imports that take seconds
        from training.phases.starting import get_start_weights
        from training.run.dry_run import print_preview

        start = config.started_from
        print_preview(config, None if start is None else get_start_weights(start, run_dir))
        return 0
    directory = RunDirectory(run_dir)
    directory.require_same_config(config)  # `loop.run` checks this again, but after slow imports
    if not directory.finished():
        if problem := find_missing_engine(config.sampling.engine):
            raise UserError(problem)
        check_engineer(config.engineer, config.sampling.engine)
        _require_pretrained(config)
    from training.processes import joined_cluster

    cluster = _make_cluster_settings(args)
    if cluster is not None and (cluster.processes or 1) > 1:
        from training.run.shared_directory import require_shareable

        require_shareable(config)  # before the processes wait for each other
    with joined_cluster(cluster):
        from training import loop

        loop.run(config, run_dir, stop_after=args.stop_after)
    return 0


def _require_pretrained(config: "RunConfig") -> None:
    """Raise a `UserError` that names the field if the pretrained model is invalid."""
    from training.policy.model_folders import require_model

    if config.model.pretrained is not None:
        try:
            require_model(config.model.pretrained)
        except UserError as error:
            raise UserError(f"model.pretrained: {error}") from None


def _parse_coordinator(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text != "auto" and not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise argparse.ArgumentTypeError(f"got {text!r}; it must be HOST:PORT or auto")
    return text


def _make_cluster_settings(args: argparse.Namespace) -> "ClusterSettings | None":
    """Return the cluster settings from the options, or None for a single process."""
    from training.processes import ClusterSettings

    heartbeat = args.heartbeat or _HEARTBEAT
    values = {"--processes": args.processes, "--process": args.process}
    given_options = [name for name, value in values.items() if value is not None]
    if args.coordinator in (None, "auto"):
        if given_options:
            raise UserError(
                f"{given_options[0]} needs --coordinator HOST:PORT (and cannot be combined with "
                "'auto')"
            )
        return ClusterSettings(None, None, None, heartbeat) if args.coordinator else None
    if len(given_options) < 2:
        raise UserError("--coordinator HOST:PORT needs --processes and --process")
    if args.process >= args.processes:
        raise UserError(
            f"--process must be less than --processes = {args.processes}, got {args.process}"
        )
    return ClusterSettings(args.coordinator, args.processes, args.process, heartbeat)
