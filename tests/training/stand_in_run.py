"""Stands in for `jaxlake run` in tests of a study: a finished run is copied, nothing is trained.

`python tests/training/stand_in_run.py TEMPLATE run BASE --run-dir DIR ...`. TEMPLATE is the
directory of a study with finished runs; its file `stand_in.json` lists the failures to simulate:
{"fail": ["ENGINEER/SEED", ...], "end_study": "ENGINEER/SEED"}. Calls are logged to `calls.jsonl`.
"""

import argparse
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from training.commands import run
from training.run.directory import RunDirectory
from training.schema import load


def main(template: Path, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    args = parser.parse_args(arguments[1:])
    is_warm_start = args.stop_after == 0
    is_first_stage = args.stop_after == 1
    depth = 3 if is_first_stage else 2
    name = "warm_start" if is_warm_start else "/".join(args.run_dir.parts[-depth:])
    call = {"name": name, "set": args.set, "known": args.run_dir.exists()}
    with (template / "calls.jsonl").open("a") as calls_file:
        calls_file.write(json.dumps(call) + "\n")
    args.run_dir.mkdir(parents=True, exist_ok=True)
    print(f"this is {name}", flush=True)
    failures = json.loads((template / "stand_in.json").read_text())
    if name in failures["fail"]:
        print("the lake is frozen over", file=sys.stderr)
        return 7
    if name == failures["end_study"]:
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()  # until the study ends this process
    if is_warm_start:
        first_stage = sorted((template / "runs").glob("*/*/stages/0"))[0]
        shutil.copytree(first_stage, args.run_dir / "stages/0", dirs_exist_ok=True)
        (args.run_dir / "stages/0/policy").mkdir()
    elif is_first_stage:
        _copy_first_stage(template / "runs" / name.removeprefix("first_rounds/"), args)
    else:
        shutil.copytree(template / "runs" / name, args.run_dir, dirs_exist_ok=True)
        # The copied digest list covers the first stage only.
        RunDirectory(args.run_dir).write_digest_list()
    return 0


def _copy_first_stage(finished_run: Path, args: argparse.Namespace) -> None:
    """Write the files of a run that was stopped after its first stage."""
    directory, source = RunDirectory(args.run_dir), RunDirectory(finished_run)
    directory.claim(load(args.config, args.set))
    for stage in ("0", "1"):
        shutil.copytree(finished_run / "stages" / stage, args.run_dir / "stages" / stage)
    directory.metrics.write([metric for metric in source.metrics.read() if metric.stage <= 1])
    directory.timings.write([timing for timing in source.timings.read() if timing.stage <= 1])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
