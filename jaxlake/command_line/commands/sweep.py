"""`jaxlake sweep`: run policies on boards of many configurations, and plot the results."""

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from jaxlake.command_line.arguments import (
    add_action,
    add_actions,
    any_path,
    describe,
    local_path,
    work_part,
)
from jaxlake.command_line.catalogue import CommandParser
from jaxlake.command_line.json_lines import CLEAR_LINE, require_readable
from jaxlake.command_line.paths import check_output_folder, require_writable
from jaxlake.errors import UserError
from jaxlake.text_tables import format_duration, format_table

if TYPE_CHECKING:
    from jaxlake.sweeps import Progress, SweepSpec

_HELP = """\
Run policies on boards of very many configurations, and plot the results.

`jaxlake sweep SPEC --out DIR` is short for `jaxlake sweep run SPEC --out DIR`.

exit status: 0 done, 2 invalid input or configuration
"""

_RUN_HELP = """\
Run a sweep on all devices and write its results to a folder.

SPEC is a YAML file:

  grid:                                          # or samples:, with count and seed
    size: [4, 6]
    hole_ratio: {from: 0, to: 0.4, count: 9}     # default: 0.2
    wait_ratio: 0.25                             # default: 0
    num_agents: 2                                # default: 2
  policies: [random, shortest_path]              # also prioritised, optimal and module:NAME
  boards: 64                                     # of each configuration
  seed: 0

Further keys: max_steps, horizon, conflict, chunk (configurations per file), max_candidates and
tables; the reference of jaxlake.sweeps describes them.

DIR gets manifest.json and Parquet files with one row per configuration and policy:
pandas.read_parquet("DIR/rows"). The same command resumes an interrupted sweep and ends with the
same files. Several processes share a sweep by --part I/N, with I from 0 to N - 1 and the same DIR;
they need not run at the same time.

exit status: 0 all chunks of the part are written, 2 invalid input or configuration
"""

_PLOT_HELP = """\
Draw heat maps of a sweep over two knobs, with a panel for each policy, size and number of agents.

RESULTS is the folder of a sweep, which may be unfinished. By default the maps show the share of
valid plans over the first two knobs that vary. Configurations without boards are grey.

exit status: 0 drawn, 2 invalid input
"""

_PICTURE_SUFFIXES = (".pdf", ".png", ".svg")
_SECONDS_BETWEEN_LINES = 30.0


def add_arguments(parser: CommandParser) -> None:
    """Add the arguments of the command."""
    describe(parser, None, _HELP)
    parser.default_action = "run"
    actions = add_actions(parser)
    run_parser = add_action(actions, "run", _run, "run a sweep; the default action", _RUN_HELP)
    run_parser.add_argument("spec", metavar="SPEC", type=local_path, help="a YAML file")
    help_text = "folder for the results: a new one, or that of a sweep to resume"
    run_parser.add_argument("--out", metavar="DIR", type=any_path, help=help_text)
    help_text = "run only every N-th chunk, from chunk I on"
    run_parser.add_argument("--part", metavar="I/N", type=work_part, default=(0, 1), help=help_text)
    help_text = "replace values of SPEC, by dotted keys"
    run_parser.add_argument(
        "--set", metavar="KEY=VALUE", nargs="+", action="extend", default=[], help=help_text
    )
    help_text = "write nothing: run one chunk, and print size, memory and expected time"
    run_parser.add_argument("--dry-run", action="store_true", help=help_text)
    plot_parser = add_action(actions, "plot", _plot, "draw heat maps of the results", _PLOT_HELP)
    plot_parser.add_argument(
        "results", metavar="RESULTS", type=any_path, help="the folder of a sweep"
    )
    help_text = "where to draw: .png, .svg or .pdf (default: the name of RESULTS with .png)"
    plot_parser.add_argument("--out", metavar="FILE", type=local_path, help=help_text)
    for axis in ("x", "y"):
        help_text = "hole_ratio, wait_ratio, size or num_agents"
        plot_parser.add_argument(f"--{axis}", metavar="KNOB", help=help_text)
    help_text = "a counter of the rows, such as agents_at_goal or missing (default: valid)"
    plot_parser.add_argument("--value", metavar="COUNTER", default="valid", help=help_text)


def _run(args: argparse.Namespace) -> int:
    if args.out is None and not args.dry_run:
        raise UserError("--out must be a folder for the results unless --dry-run is set, got none")
    if isinstance(args.out, Path):
        check_output_folder("--out", args.out)
    require_readable(str(args.spec))
    from jaxlake.sweeps import load_spec, run

    spec = load_spec(args.spec, args.set)
    _use_all_cores()
    if args.dry_run:
        print(_forecast(spec, args.part))
        return 0
    is_complete = run(spec, args.out, part=args.part, progress=_ProgressReporter())
    num_rows = spec.configurations * len(spec.policies)
    state = f"{num_rows:,} rows" if is_complete else f"part {args.part[0]}/{args.part[1]} is done"
    print(f"{args.out}: {state}")
    return 0


def _plot(args: argparse.Namespace) -> int:
    out = args.out or Path(f"{args.results.name or 'sweep'}.png")
    if out.suffix not in _PICTURE_SUFFIXES:
        raise UserError(f"--out must end in {', '.join(_PICTURE_SUFFIXES)}, got {out}")
    require_writable(out)
    from jaxlake.files import open_atomic
    from jaxlake.sweeps import plot, read

    figure = plot(read(args.results), x=args.x, y=args.y, value=args.value)
    with open_atomic(out, "wb") as file:
        figure.savefig(file, format=out.suffix[1:], dpi=150)
    print(out)
    return 0


def _use_all_cores() -> None:
    """Give JAX one CPU device per core if the environment does not set their number."""
    has_flag = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not has_flag and "JAX_NUM_CPU_DEVICES" not in os.environ:
        from jaxlake import use_all_cores

        with suppress(RuntimeError):  # JAX has already created its devices
            use_all_cores()


class _ProgressReporter:
    """Prints progress to stderr: overwrites one line on a terminal, else adds one per 30 s."""

    def __init__(self) -> None:
        self._next_report = 0.0

    def __call__(self, progress: "Progress") -> None:
        """Print the number of finished chunks, the rate and the time left."""
        line = f"jaxlake: {progress.chunks:,} of {progress.total_chunks:,} chunks"
        if progress.boards_per_second is not None and progress.seconds_left is not None:
            line += f", {progress.boards_per_second:,.0f} boards/s"
            line += f", {format_duration(progress.seconds_left)} left"
        is_last = progress.chunks == progress.total_chunks
        if sys.stderr.isatty():
            end = "\n" if is_last else ""
            print(f"{CLEAR_LINE}{line}", end=end, file=sys.stderr, flush=True)
        elif is_last or time.monotonic() >= self._next_report:
            print(line, file=sys.stderr, flush=True)
            self._next_report = time.monotonic() + _SECONDS_BETWEEN_LINES


def _forecast(spec: "SweepSpec", part: tuple[int, int]) -> str:
    """Run one chunk, and return a table of the sweep's size, memory and expected time."""
    import jax

    from jaxlake.sweeps.estimate import estimate

    cost, devices = estimate(spec, part=part), jax.local_devices()
    share = "" if part == (0, 1) else f" (part {part[0]}/{part[1]})"
    rate = spec.chunk_size * spec.boards / cost.chunk_seconds
    memory = f"{cost.host_bytes / 1e9:,.1f} GB"
    if cost.device_bytes is not None:
        memory += f", {cost.device_bytes / 1e9:,.1f} GB of each device"
    rows = {
        "configurations": f"{cost.configurations:,}",
        "policies": ", ".join(spec.joint_policies),
        "rows": f"{cost.rows:,}",
        "boards": f"{cost.boards:,}",
        "missing boards": f"{cost.missing_share:.1%}",
        f"chunks{share}": f"{cost.chunks:,} of {spec.chunk_size:,} configurations",
        f"on disk{share}": f"{cost.disk_bytes / 1e6:,.1f} MB",
        "memory": memory,
        "devices": f"{len(devices)} ({devices[0].device_kind})",
        "compilation": format_duration(cost.compile_seconds),
        "one chunk": f"{format_duration(cost.chunk_seconds)}, {rate:,.0f} boards/s",
        f"expected time{share}": format_duration(cost.seconds),
    }
    return format_table(("", ""), list(rows.items()), left=2).lstrip("\n")
