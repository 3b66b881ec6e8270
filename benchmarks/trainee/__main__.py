"""The command line: `python -m benchmarks.trainee`."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.accelerators.targets import MACHINES, environment_of, machine_of
from benchmarks.lake.benchmark import git_commit
from benchmarks.trainee.machines import SPEEDS
from jaxlake.command_line.arguments import number
from jaxlake.files import write_text_whole

ROOT = Path(__file__).resolve().parents[2]

_DESCRIPTION = """\
Compile the GRPO update of Qwen3 models for devices that aren't there, and forecast its time.

With --beside or --steps-of, time the trainee on this machine instead. Else
shapes alone are compiled, no weights are made. The compiler says whether it compiles, what memory
it takes on each device and what devices exchange. Time is forecast from counts. `make accelerators`
makes the environments with the compilers. docs/trainee_benchmarks.md says what the numbers mean.

With --measure, on a machine whose JAX computes on such devices, the update is taken there, with
drawn weights, and its time stands beside the forecast that the JSON file holds.

exit status: 0 all was compiled, 1 something was not, 2 wrong use
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Compile what the arguments ask for; return the exit status."""
    # Imported here: the forecast needs the trainee, which the lake's benchmarks do without.
    from benchmarks.trainee.update import MODELS

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainee",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    targets = ", ".join(f"{kind}:SHAPE" for kind in MACHINES)
    parser.add_argument("--target", action="append", help=f"one of {targets}")
    what = "only see that each target can be compiled for"
    parser.add_argument("--check", action="store_true", help=what)
    what = "take the update on this machine's devices"
    parser.add_argument("--measure", action="store_true", help=what)
    parser.add_argument("--beside", choices=["trl"], help="time updates here, beside TRL's")
    parser.add_argument("--steps-of", metavar="FILE", type=Path, help="time a short run's parts")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of --steps-of")
    parser.add_argument("--model", nargs="+", choices=MODELS, default=["4B"])
    positive = number(int, 1)
    parser.add_argument("--groups", type=positive, default=1, help="prompts per bundle")
    parser.add_argument("--prompt", type=positive, default=512, help="tokens of a prompt")
    parser.add_argument("--rows", type=positive, default=8, help="rows of completions per bundle")
    parser.add_argument("--width", type=positive, default=4096, help="tokens of a row")
    parser.add_argument("--micro-batches", type=positive, default=4, help="of an update")
    parser.add_argument("--tensor", type=positive, default=1, help="devices that split heads")
    parser.add_argument("--repeats", type=positive, default=7, help="of --beside; 7 unless told")
    parser.add_argument(
        "--remat",
        choices=["true", "false", "all_but_attention", "all_but_mlp", "all_but_products"],
        default="all_but_attention",
        help="as model.remat (default: all_but_attention)",
    )
    parser.add_argument("--attention", default="auto", help="as model.attention (default: auto)")
    parser.add_argument(
        "--engine-share",
        type=number(float, 0, 1),
        default=0.0,
        help="of each device's memory, taken by an engine beside the trainer (default: 0)",
    )
    parser.add_argument("--work", type=json.loads, help="one update as JSON, instead of all these")
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="put the results into this file, too"
    )
    parser.add_argument("--hlo", metavar="DIR", type=Path, help="write what was compiled here")
    args = parser.parse_args(argv)
    if (args.beside, args.steps_of, args.target) == (None, None, None):
        parser.error("one of --target, --beside and --steps-of is needed")
    if args.measure:
        options = {"--check": args.check, "--hlo": args.hlo, "--beside": args.beside}
        options["--steps-of"] = args.steps_of
        if passed_over := [name for name, value in options.items() if value]:
            parser.error(f"--measure: got {passed_over[0]}, too, which does something else")
    if args.beside or args.steps_of:
        from benchmarks.trainee.here import measure_here

        return measure_here(args)
    records: list[dict[str, Any]] = []
    for target in args.target:
        try:
            if args.measure:
                records += _measured(target, args)
                continue
            python, works = _works(target, args)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        if args.check:
            continue
        print("\n".join(header(target)), flush=True)
        for name, work in works.items():
            record = {"target": target, "model": name}
            record |= compile_update(python, target, dataclasses.asdict(work), args.hlo, name)
            if "error" not in record:
                record |= forecast(record, target, work.model_flops(), args.engine_share)
            records.append(record)
            print(row(record), flush=True)
            if args.json is not None:  # after each: some take minutes
                put_into(args.json, record)
    return int(any("error" in record for record in records))


def _measured(target: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Take the updates on this machine's devices; print and return what there is to say of each.

    Raises:
        ValueError: there is no such target, or this machine's devices are others.
    """
    import jax

    from benchmarks.trainee.measuring import measure_attention, measure_update, require_devices

    records = []
    works = _of_arguments(target, args)
    for work in works.values():
        require_devices(work, target)
    for name, work in works.items():
        measured: dict[str, Any] = {"commit": git_commit(), "jax": jax.__version__}
        try:
            measured |= measure_update(work, target)
            measured |= {"attention": measure_attention(work, target)}
        except Exception as error:  # what a device says of an update is a result
            measured["error"] = f"{type(error).__name__}: {str(error)[:500]}"
        record = {"target": target, "model": name, "work": dataclasses.asdict(work)}
        record = held_record(args.json, record) | {"measured": measured}
        records.append(record | ({"error": measured["error"]} if "error" in measured else {}))
        print(sentence_of(record), flush=True)
        if args.json is not None:
            put_into(args.json, record)
    return records


def _works(target: str, args: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    """Return the interpreter whose compiler knows a target, and the updates by name.

    Raises:
        ValueError: there is no such target, its compiler isn't there, or a mesh doesn't fit it.
    """
    works = _of_arguments(target, args)
    environment = environment_of(target)
    python = ROOT / environment / "bin/python"
    if not python.exists():
        raise ValueError(
            f"--target {target}: {environment} is not there; `make accelerators` makes it"
        )
    return python, works


def _of_arguments(target: str, args: argparse.Namespace) -> dict[str, Any]:
    """Return the updates that are asked for, by name.

    Raises:
        ValueError: there is no such target, or a mesh doesn't fit it.
    """
    from benchmarks.trainee.update import MODELS, Work
    from training.policy.architectures import DecoderConfig

    chips = chip_count(target)
    if args.work is not None:
        fields = args.work | {"model": DecoderConfig(**args.work["model"])}
        works = {fields.pop("name"): Work(**fields)}
    elif chips % args.tensor:
        raise ValueError(f"--tensor: got {args.tensor}, allowed are divisors of {chips}")
    else:
        works = {
            name: Work(
                *(MODELS[name], args.groups, args.prompt, args.rows, args.width),
                *(args.micro_batches, chips // args.tensor, args.tensor),
                remat={"true": True, "false": False}.get(args.remat, args.remat),
                attention=args.attention,
            )
            for name in args.model
        }
    if wrong := [work for work in works.values() if work.fsdp * work.tensor != chips]:
        raise ValueError(
            f"--target {target}: {chips} devices, allowed are as many as the mesh has:"
            f" fsdp {wrong[0].fsdp} x tensor {wrong[0].tensor}"
        )
    return works


_NAMED = ("target", "model", "work")
"""What tells records apart."""


def held_record(path: Path | None, record: dict[str, Any]) -> dict[str, Any]:
    """Return what a file holds of the same update, or the record."""
    key = [record.get(name) for name in _NAMED]
    records = json.loads(path.read_text())["updates"] if path is not None and path.exists() else []
    return next((one for one in records if [one.get(name) for name in _NAMED] == key), record)


def put_into(path: Path, record: dict[str, Any]) -> None:
    """Put a record into a file of results, in the place of an older one of the same update.

    What was measured of the update stays beside a new forecast of it.
    """
    records = json.loads(path.read_text())["updates"] if path.exists() else []
    same = [[one.get(name) for name in _NAMED] for one in records]
    key = [record.get(name) for name in _NAMED]
    if key in same:
        old = records[same.index(key)]
        kept = {"measured": old["measured"]} if "measured" in old else {}
        records[same.index(key)] = kept | record
    else:
        records.append(record)
    write_text_whole(path, json.dumps({"schema": 2, "updates": records}, indent=1) + "\n")


def chip_count(target: str) -> int:
    """Return how many devices a target such as `h100:8` or `v5p:2x2x2` has."""
    machine_of(target)
    count = 1
    for side in target.partition(":")[2].split("x"):
        if not side.isdigit() or int(side) < 1:
            raise ValueError(f"--target: got {target!r}, allowed are shapes such as 8 or 2x4")
        count *= int(side)
    return count


def compile_update(
    python: Path, target: str, work: dict[str, Any], folder: Path | None, name: str
) -> dict[str, Any]:
    """Compile an update in the environment of `python`; return what the worker says of it."""
    command = [str(python), "-m", "benchmarks.trainee.worker", "--target", target]
    command += ["--work", json.dumps(work)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        command += ["--hlo", str(folder / f"{name}-{target.replace(':', '-')}.txt")]
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False
    )
    if done.returncode or not done.stdout.strip():
        last = done.stderr.strip().splitlines()[-1:]
        return {
            "work": work,
            "error": f"the compiler ended with {done.returncode}: {''.join(last)[:300]}",
        }
    record: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return record


def forecast(
    record: dict[str, Any], target: str, model_flops: float, engine_share: float = 0.0
) -> dict[str, Any]:
    """Forecast the seconds of an update: kernels, and where they wait for what is exchanged.

    The update fits if its memory does beside an engine that has `engine_share` of each device's.
    """
    speed = SPEEDS[target.partition(":")[0]]
    devices = record["devices"]
    exchange = sum(record["sent_bytes"].values()) / speed.sent_per_second(record["devices"])
    kinds = ("product", "attention", "other", "waiting")
    seconds = sum(record[f"{kind}_seconds"] for kind in kinds)
    used = record["argument_bytes"] + record["temporary_bytes"]
    used += record["output_bytes"] - record["aliased_bytes"]
    return {
        "used_bytes": used,
        "engine_share": engine_share,
        "fits": used + engine_share * speed.memory <= speed.memory,
        "model_flops": model_flops,
        "exchange_seconds": exchange,
        "forecast_seconds": seconds,
        "forecast_mfu": model_flops / devices / speed.peak / seconds,
    }


def header(target: str) -> list[str]:
    """Say what a forecast assumes of a target, and name the columns."""
    speed, machine = SPEEDS[target.partition(":")[0]], machine_of(target)
    return [
        f"\n{target}: {machine.name}, a forecast. Matrix products reach {speed.reached:.0%} of"
        f" {speed.peak / 1e12:g} TFLOP/s (bfloat16) and kernels for attention"
        f" {speed.attention:.0%}, or else their bytes' time; kernels move bytes"
        f" at {machine.bandwidth / 1e12:g} TB/s, none is shorter than {machine.launch * 1e6:g} us,"
        f" devices send {speed.sent_per_second(chip_count(target)) / 1e9:g} GB/s beside the"
        " kernels between an exchange's start and its end. MFU counts what loss and"
        " gradient need, and nothing twice. Memory is per device, of"
        f" {speed.memory / 1e9:.0f} GB.",
        "| model | compiled in | arguments | temporaries | aliased | fits | layout kept | whole"
        " logits, scores | sent per device | launches | products / attention / others / waiting |"
        " forecast | MFU |",
        "| --- " * 13 + "|",
    ]


def sentence_of(record: dict[str, Any]) -> str:
    """Say what was measured of an update, and what was forecast if anything was."""
    measured, name = record["measured"], f"{record['model']} on {record['target']}"
    if "error" in measured:
        return f"{name}: failed: {measured['error']}"
    was = ""
    if "forecast_seconds" in record:
        was = f"; forecast: {record['forecast_seconds']:.2f} s, {record['forecast_mfu']:.0%}"
    attention = measured["attention"]
    shares = ", ".join(
        f"{kind} {one['share']:.0%}" if "share" in one else f"{kind} failed: {one['error']}"
        for kind, one in attention.items()
        if isinstance(one, dict)
    )
    return (
        f"{name}: {measured['seconds']:.2f} s an update on {measured['device']}, MFU"
        f" {measured['mfu']:.0%} (compiled in {measured['compile_seconds']:.0f} s, peak of memory"
        f" {measured['peak_bytes'] / 1e9:.1f} GB{was}). Attention's share of the peak: {shares};"
        f" difference to float32: {attention['difference']:.4f}"
    )


def row(record: dict[str, Any]) -> str:
    """Write one update as a row of a Markdown table."""
    if "error" in record:
        return f"| {record['model']} | failed: {record['error']} |" + " |" * 11
    sent = ", ".join(
        f"{record['collectives'][kind]:,} {kind} {size / 1e9:,.1f} GB"
        for kind, size in sorted(record["sent_bytes"].items())
    )
    gigabytes = [
        f"{record[f'{name}_bytes'] / 1e9:,.1f} GB" for name in ("argument", "temporary", "aliased")
    ]
    parts = " / ".join(
        f"{record[f'{name}_seconds']:,.2f}" for name in ("product", "attention", "other", "waiting")
    )
    cells = [
        record["model"],
        f"{record['compile_seconds']:.0f} s",
        *gigabytes,
        *("yes" if record[name] else "no" for name in ("fits", "layout_kept")),
        ", ".join(str(len(found)) for found in record["forbidden"].values()),
        sent,
        f"{record['launches']:,}",
        f"{parts} s",
        f"{record['forecast_seconds']:,.2f} s",
        f"{record['forecast_mfu']:.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
