"""See whether a device answered what this machine does.

The command line is `python -m benchmarks.accelerators.answers`.

What `python -m benchmarks.accelerators --measure` wrote of each program on a GPU or a TPU holds a
digest of every array that it gave. The same programs run here, on the same arguments, and each
array has to be the same in every bit.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from benchmarks.accelerators.measuring import digests
from benchmarks.accelerators.programs import makers


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; return the exit status: 0 all are the same, 1 some differ, 2 there is nothing."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerators.answers",
        description="See whether a device answered, bit for bit, what this machine does.",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, required=True, help="of --measure")
    parser.add_argument("--only", nargs="*", default=[], help="programs whose names hold one")
    args = parser.parse_args(argv)
    try:
        held = json.loads(args.json.read_text(encoding="utf-8"))
        found = [
            (target, one["program"], one["measured"])
            for target, part in held["targets"].items()
            for one in part["programs"]
            if "answers" in one.get("measured", {})
        ]
        made = makers(held["boards"], held["environments"], args.only)
    except OSError as error:
        print(f"error: --json: {error}", file=sys.stderr)
        return 2
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        said = f"{type(error).__name__}: {error}"
        print(f"error: --json: {args.json} is no file of --measure ({said})", file=sys.stderr)
        return 2
    found = [one for one in found if one[1] in made]
    if not found:
        print(f"error: --json: {args.json} holds no answers of these programs", file=sys.stderr)
        return 2
    own: dict[str, dict[str, str]] = {}
    same = True
    for target, name, measured in found:
        if name not in own:
            program = made[name]()
            own[name] = digests(jax.jit(program.function)(*program.arguments))
        wrong = differing(measured["answers"], own[name])
        same &= not wrong
        arrays = len(own[name])
        said = f"differ in {', '.join(wrong)}" if wrong else f"are the same, all {arrays} arrays"
        here = jax.devices()[0].device_kind
        print(f"{target} {name}: {measured['device']} and {here} {said}", flush=True)
    return int(not same)


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Name what differs between two results' digests, or is only in one of them."""
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


if __name__ == "__main__":
    sys.exit(main())
