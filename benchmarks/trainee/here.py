"""What can be timed on this machine: updates beside TRL's, and the parts of a short run."""

from __future__ import annotations

import argparse
import json
from typing import Any

from benchmarks.trainee.beside import measure_beside_trl, table_beside
from benchmarks.trainee.step_times import measure_steps, table_of_steps
from jaxlake.files import write_text_whole

_SECONDS = 1.0  # of each repeat, at least


def measure_here(args: argparse.Namespace) -> int:
    """Measure what is asked for, print the tables, write the JSON; return the exit status.

    Of the two parts of the JSON the file keeps the one that isn't measured.
    """
    result: dict[str, Any] = {}
    if args.json is not None and args.json.exists():  # what isn't measured now is kept
        result = json.loads(args.json.read_text())
    if args.beside:
        result["beside_trl"] = measure_beside_trl(args.repeats, _SECONDS)
        print(table_beside(result["beside_trl"]), flush=True)
    if args.steps_of:
        result["steps"] = measure_steps(args.steps_of, args.set)
        print(table_of_steps(result["steps"]))
    if args.json is not None:
        write_text_whole(args.json, json.dumps(result, indent=1) + "\n")
    return 0
