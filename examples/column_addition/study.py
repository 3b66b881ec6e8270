"""`python -m examples.column_addition.study`: engineers compared over many seeds, in minutes.

The plan is benchmarks/results/plans/1_column_addition.md. The result file holds each answer's
verdict, so that every number can be computed again; `--report` prints them from a file. Runs are
added to a file only if its settings, engineers and example code are the same.
"""

import argparse
import gzip
import hashlib
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import engineer
from engineer import SCRIPTED_ENGINEERS, Engineer, RunSettings, scripted_engineer
from engineer.engineers.baselines import FixedEngineer
from examples.column_addition.__main__ import SPACE, Experiment, addition, run_stages
from examples.column_addition.environment import check_answer
from jaxlake.files import write_bytes_atomic

CONSTANTS = {
    "constant:short": addition(d1=(0.8, 0.0), d2=(0.1, 0.0), d3=(0.1, 0.0)),
    "constant:long": addition(d1=(0.1, 1.0), d2=(0.1, 1.0), d3=(0.8, 1.0)),
    "constant:even": addition(d1=(0.4, 0.5), d2=(0.3, 0.5), d3=(0.3, 0.5)),
    "constant:middle": addition(d1=(0.1, 0.5), d2=(0.8, 0.5), d3=(0.1, 0.5)),
}
SHUFFLED = ("shuffled:rule", "shuffled:learnability")
ARMS = (*SCRIPTED_ENGINEERS, *SHUFFLED, *CONSTANTS)
CONTRASTS = (
    ("best constant", "worst constant"),
    ("rule", "shuffled:rule"),
    ("learnability", "shuffled:learnability"),
)
NUM_RESAMPLES = 10_000
SCHEMA = 2
"""Version of the result file; schema 1 lacks the settings of its runs."""

Results = dict[str, Any]


def get_run_settings() -> Results:
    """Return the JSON values that determine a run apart from its arm and seed.

    They include a digest of the code of the engineers and of this example.
    """
    code = hashlib.sha256()
    for folder in (Path(engineer.__file__).parent, Path(__file__).parent):
        for file in sorted(folder.rglob("*.py")):
            code.update(file.read_bytes())
    experiment = asdict(Experiment())
    del experiment["seed"]
    constants = {name: configuration.values() for name, configuration in CONSTANTS.items()}
    settings = {"experiment": experiment, "constants": constants, "code": code.hexdigest()}
    return dict(json.loads(json.dumps(settings)))


def find_mismatch(results: Results) -> str | None:
    """Return why runs can't be added to these results, or None if they can."""
    if results.get("schema") != SCHEMA:
        return f"schema must be {SCHEMA}, got {results.get('schema')!r}"
    stored_settings = results["settings"]
    keys = [key for key, value in get_run_settings().items() if stored_settings.get(key) != value]
    if not keys:
        return None
    return f"settings: its runs have other {', '.join(keys)}"


def make_engineer(arm: str, experiment: Experiment) -> Engineer:
    """Return the engineer of an arm."""
    if arm in CONSTANTS:
        return FixedEngineer(CONSTANTS[arm], name=arm)
    settings = RunSettings(SPACE, experiment.initial(), experiment.stages, experiment.seed)
    return scripted_engineer(arm, settings)


def run_arm(arm: str, seed: int) -> Results:
    """Run one engineer with one seed: verdicts per held-out sum, and the configurations."""
    experiment = Experiment(seed=seed)
    *_, last_outcome = outcomes = list(run_stages(experiment, make_engineer(arm, experiment)))
    held_out = experiment.held_out()
    valid = [
        check_answer(problem, text)[0] is None
        for problem, text in zip(held_out, last_outcome.answers, strict=True)
    ]
    return {
        "valid": "".join(map(str, map(int, valid))),
        "configurations": [
            outcome.configuration.values() for outcome in outcomes if outcome.configuration
        ],
    }


def run_study(
    arms: Sequence[str], seeds: Sequence[int], results: Results, path: Path
) -> Iterator[str]:
    """Run the missing arms seed by seed, save the results after each, and yield messages."""
    for seed in seeds:
        missing_arms = [arm for arm in arms if str(seed) not in results["runs"].setdefault(arm, {})]
        for arm in missing_arms:
            results["runs"][arm][str(seed)] = run_arm(arm, seed)
        if missing_arms:
            write_bytes_atomic(path, gzip.compress(json.dumps(results).encode(), mtime=0))
            yield f"seed {seed}: {len(missing_arms)} runs"


def compute_rates(runs: Mapping[str, Results], seeds: Sequence[str]) -> np.ndarray:
    """Return the valid rate of each seed, float (S,)."""
    return np.array([np.mean([int(c) for c in runs[seed]["valid"]]) for seed in seeds])


def bootstrap_interval(differences: np.ndarray) -> tuple[float, float, float]:
    """Return the mean over seeds and its 95% percentile interval by a bootstrap of the seeds."""
    rng = np.random.default_rng(0)
    resamples = rng.integers(len(differences), size=(NUM_RESAMPLES, len(differences)))
    low, high = np.quantile(differences[resamples].mean(axis=1), [0.025, 0.975])
    return float(differences.mean()), float(low), float(high)


def format_report(results: Results) -> str:
    """Write the table of arms and the contrasts, in points."""
    runs = results["runs"]
    seeds = sorted(set.intersection(*map(set, runs.values())) if runs else (), key=int)
    if len(seeds) < 2:
        return "fewer than two seeds are complete"
    rates = {arm: 100 * compute_rates(arm_runs, seeds) for arm, arm_runs in runs.items()}
    baseline_arm = "fixed" if "fixed" in rates else next(iter(rates))
    baseline, title = rates[baseline_arm], f"minus {baseline_arm}"
    lines = [f"{len(seeds)} seeds; valid rates in per cent, differences in points", ""]
    lines.append(f"{'arm':<32}{'valid':>7}{title:>14}   95% interval")
    for arm in sorted(rates, key=lambda arm: -rates[arm].mean()):
        lines.append(f"{arm:<32}{rates[arm].mean():>7.1f}" + _format_line(rates[arm], baseline))
    constants = [arm for arm in rates if arm in CONSTANTS]
    extremes = {
        "best constant": max(constants, key=lambda arm: rates[arm].mean(), default=""),
        "worst constant": min(constants, key=lambda arm: rates[arm].mean(), default=""),
    }
    lines += ["", "contrasts"]
    for pair in CONTRASTS:
        arm_1, arm_2 = (extremes.get(name, name) for name in pair)
        if arm_1 in rates and arm_2 in rates:
            name = f"{arm_1} - {arm_2}"
            lines.append(f"{name:<39}" + _format_line(rates[arm_1], rates[arm_2]))
    return "\n".join(lines)


def _format_line(rates: np.ndarray, baseline: np.ndarray) -> str:
    mean, low, high = bootstrap_interval(rates - baseline)
    return f"{mean:>+14.2f}   [{low:+.2f}, {high:+.2f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run or resume the study, and print its table."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.column_addition.study", description=__doc__
    )
    parser.add_argument("--json", metavar="FILE.gz", type=Path, required=True)
    parser.add_argument("--seeds", metavar="N", type=int, default=32, help="seeds 0 to N - 1 (32)")
    parser.add_argument("--arms", metavar="A,B", help=f"among {', '.join(ARMS)} (all)")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    arms = options.arms.split(",") if options.arms else list(ARMS)
    if unknown_arms := [arm for arm in arms if arm not in ARMS]:
        parser.error(f"--arms must be among {', '.join(ARMS)}, got {', '.join(unknown_arms)}")
    if options.seeds < 2:
        parser.error(f"--seeds must be at least 2, got {options.seeds}")
    results: Results = {"schema": SCHEMA, "python": platform.python_version(), "runs": {}}
    results["settings"] = get_run_settings()
    if options.json.exists():
        results = json.loads(gzip.decompress(options.json.read_bytes()))
    if not options.report:
        seeds = map(str, range(options.seeds))
        is_complete = all(seed in results["runs"].get(arm, {}) for seed in seeds for arm in arms)
        if not is_complete and (mismatch := find_mismatch(results)):
            parser.error(f"--json: {options.json}: {mismatch}; give another file, or use --report")
        for line in run_study(arms, range(options.seeds), results, options.json):
            print(line, file=sys.stderr, flush=True)
    print(format_report(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
