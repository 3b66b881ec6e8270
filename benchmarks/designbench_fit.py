"""Fit DesignBench's learner to the runs of studies 2 to 5, and compare the ranks of engineers.

    python -m benchmarks.designbench_fit [--json FILE] [--svg FILE]

The fit uses every trained stage of every run in `benchmarks/results/study-*`: its configuration,
and the valid rates by map size before and after. The costs of the knobs come from the answers
before training. The script then simulates every arm whose engineer still exists, from the measured
start and with the fitted parameters, and compares the valid rate after three stages with the real
one. `held out` predicts the runs of a study's world from a fit to the other worlds.
"""

import argparse
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from engineer.bench.learners import Learners, Prior, train_skill
from engineer.bench.simulation import EngineerFactory, train_learners
from engineer.engineers.baselines import FixedEngineer, random_configuration
from engineer.engineers.catalogue import scripted_engineer
from engineer.lake import Bounds, LakeConfiguration, lake_domain
from engineer.synthetic.learner import configuration_arrays
from jaxlake.command_line.json_lines import open_output

RESULTS = Path(__file__).parent / "results"
SIZES = (3, 4, 5, 6)
BOUNDS = Bounds(sizes=SIZES, max_hole_ratio=0.4, max_wait_ratio=0.6, min_share=0.05, edit_steps=6)
DOMAIN = lake_domain(BOUNDS)
VALIDATION = np.array([0.75, 0.5])
"""Mean knob levels of the validation boards, relative to maxima of 40% holes and 60% waits."""
BOARDS_PER_SIZE = 450
"""Validation boards per map size."""
NUM_KINDS = 7
RUNS_PER_ARM = 64
"""Simulated runs per arm."""

# Initial configurations of the studies: data, hole and wait ratio of 3x3 to 6x6.
_STARTS = {
    "easy": ((0.85, 0, 0), (0.05, 0, 0), (0.05, 0, 0), (0.05, 0, 0)),
    "sizes": ((0.45, 0, 0), (0.45, 0, 0), (0.05, 0.2, 0.3), (0.05, 0.2, 0.3)),
    "today": ((0.25, 0.2, 0.3),) * 4,
    "hard": ((0.05, 0.4, 0.6),) * 3 + ((0.85, 0.4, 0.6),),
    "waits": ((0.25, 0, 0.6),) * 4,
    "best_by_atlas": ((0.05, 0.3, 0.6), (0.05, 0.4, 0.6), (0.85, 0.4, 0), (0.05, 0.4, 0)),
}


class World(NamedTuple):
    """A base model and the configuration that runs begin with."""

    name: str
    start: str  # of `_STARTS`
    files: Mapping[str, Sequence[str]]  # arms by file


_CONSTANTS = ("today", "hard", "easy", "waits", "best_by_atlas")
_STUDY_3_ARMS = (
    "checkpoint",
    "shuffled_checkpoint",
    "simulated_checkpoint",
    "random",
    "fixed",
    "today",
)
_STUDY_3 = "study-3-engineers/piece-{}.outcomes.json.gz"
WORLDS = (
    World(
        "42.7% valid, corner",
        "easy",
        {
            _STUDY_3.format(3): _STUDY_3_ARMS,
            _STUDY_3.format(4): (
                *("fixed_random", "easy_to_hard", "random_throughout", "learnability"),
                "sec_bandit",
            ),
            **{_STUDY_3.format(piece): _STUDY_3_ARMS for piece in (6, 7, 8)},
            "study-4-ablation/outcomes.json.gz": ("easy_to_hard", "hard_only"),
            "study-2-headroom/again.outcomes.json.gz": _CONSTANTS,
        },
    ),
    World(
        "53.4% valid, corner",
        "easy",
        {"study-2-headroom/outcomes.json.gz": _CONSTANTS, _STUDY_3.format(1): ("random",)},
    ),
    World("61.3% valid, corner", "easy", {_STUDY_3.format(2): _STUDY_3_ARMS}),
    World("42.7% valid, sizes differ", "sizes", {"study-5-sizes/outcomes.json.gz": _STUDY_3_ARMS}),
)
_CATALOGUE_NAMES = {
    "checkpoint": "rule",  # this checkpoint imitates the rule
    "shuffled_checkpoint": "shuffled:rule",
    "simulated_checkpoint": "simulated:rule",
    "easy": "fixed",
}
"""Catalogue names of study arms."""


@dataclass(frozen=True)
class Run:
    """One run of a study."""

    world: int
    arm: str
    rates: np.ndarray  # float (T + 1, G) valid rates, before training and after each stage
    shares: np.ndarray  # float (T, G)
    levels: np.ndarray  # float (T, G, K)
    cells: Mapping[tuple[int, float, bool], tuple[int, int]]
    """Valid and all answers before training by size, holes and need of a wait."""
    failures: np.ndarray  # float (G, F) shares of the first failures before training


class Fit(NamedTuple):
    """The learner with the best fit to the logs, with least-squares standard errors."""

    speed: float
    forgetting: float
    transfer: float
    narrow: tuple[float, float]  # holes, waits
    errors: tuple[float, ...]
    explained: float  # share of the variance of the stages' changes, at the level of map sizes
    noise: tuple[float, float]  # residual sd, common to all sizes and per size


def logit(rate: Any) -> Any:
    """Return the logit of rates, clipped to half an answer from 0 and 1."""
    clipped_rate = np.clip(rate, 0.5 / BOARDS_PER_SIZE, 1.0 - 0.5 / BOARDS_PER_SIZE)
    return np.log(clipped_rate / (1.0 - clipped_rate))


def read_runs() -> list[Run]:
    """Read the runs of all worlds; arms that no world lists are used only for the fit."""
    runs = []
    for world_index, world in enumerate(WORLDS):
        for file in world.files:
            content = json.loads(gzip.decompress((RESULTS / file).read_bytes()))
            boards = content["boards"]
            runs += [_read_run(world_index, run, boards) for run in content["runs"]]
    return runs


def _read_run(world: int, run: Mapping[str, Any], boards: Sequence[Mapping[str, Any]]) -> Run:
    size = np.array([board["size"] for board in boards])
    valid = np.array([list(row) for row in run["valid"]]) == "1"
    first_failures = np.array(list(map(int, run["kinds"][0])))
    cells: dict[tuple[int, float, bool], tuple[int, int]] = {}
    for board, is_valid in zip(boards, valid[0].tolist(), strict=True):
        key = (SIZES.index(board["size"]), board["hole_tenth"] / 10, board["needs_wait"])
        valid_count, count = cells.get(key, (0, 0))
        cells[key] = (valid_count + is_valid, count + 1)
    configurations = [
        configuration_arrays(BOUNDS, LakeConfiguration.model_validate({"sizes": sizes}))
        for sizes in run["configurations"]
    ]
    return Run(
        world,
        _CATALOGUE_NAMES.get(run["engineer"], run["engineer"]),
        np.stack([valid[:, size == n].mean(axis=1) for n in SIZES], axis=1),
        np.stack([shares for shares, _ in configurations]),
        np.stack([levels for _, levels in configurations]),
        cells,
        np.stack([np.bincount(first_failures[size == n], minlength=NUM_KINDS)[1:] for n in SIZES])
        + 0.5,
    )


def fit_costs(run: Run) -> np.ndarray:
    """Return the logit cost of the full range of holes and of waits before training, (G, K)."""
    costs = np.zeros((len(SIZES), 2))
    for g in range(len(SIZES)):
        cells = [
            (h, w, valid_counts, n)
            for (size, h, w), (valid_counts, n) in run.cells.items()
            if size == g
        ]
        holes, waits, valid_counts, count = np.array(cells).T
        weights = np.sqrt(count)
        features = np.stack([np.ones_like(holes), -holes / 0.4, -waits / 0.6], axis=1)
        logits = np.log((valid_counts + 0.5) / (count - valid_counts + 0.5))
        costs[g] = np.linalg.lstsq(features * weights[:, None], logits * weights, rcond=None)[0][1:]
    return np.maximum(costs, 0.0)


def make_learners(runs: Sequence[Run], fit: Fit | np.ndarray, num_seeds: int = 1) -> Learners:
    """Return `num_seeds` learners per run that start at the run's measured rates."""
    speed, forgetting, transfer, *narrow = (
        fit if isinstance(fit, np.ndarray) else (*fit[:3], *fit.narrow)
    )
    cost = np.repeat([fit_costs(run) for run in runs], num_seeds, axis=0)
    count, groups, knobs = cost.shape
    validation = np.broadcast_to(VALIDATION, cost.shape)
    start = np.repeat([logit(run.rates[0]) for run in runs], num_seeds, axis=0)
    failures = np.repeat([run.failures for run in runs], num_seeds, axis=0)
    num_stages, rng, prior = runs[0].shares.shape[0], np.random.default_rng(0), Prior()
    common_noise, size_noise = fit.noise if isinstance(fit, Fit) else (0.0, 0.0)
    drift = rng.normal(0.0, 1.0, (count, num_stages, 1)) * common_noise
    drift = drift + rng.normal(0.0, 1.0, (count, num_stages, groups)) * size_noise
    return Learners(
        skill=start + np.sum(cost * validation, axis=-1),
        cost=cost,
        failure_shares=failures / failures.sum(axis=-1, keepdims=True),
        speed=np.full(count, speed),
        forgetting=np.full(count, forgetting),
        transfer=np.full(count, transfer),
        narrow=np.broadcast_to(narrow, (count, knobs)),
        validation=validation,
        shares=np.repeat([run.shares[0] for run in runs], num_seeds, axis=0),
        levels=np.repeat([run.levels[0] for run in runs], num_seeds, axis=0),
        drift=drift,
        validation_normals=math.sqrt(prior.repetition)
        * rng.normal(size=(count, 1, *failures.shape[1:]))
        + math.sqrt(1.0 - prior.repetition)
        * rng.normal(size=(count, num_stages + 1, *failures.shape[1:])),
        training_normals=rng.normal(size=(count, num_stages, *failures.shape[1:])),
        uniformity=rng.uniform(*prior.uniformity, (count, num_stages, groups)),
        count=np.full(count, BOARDS_PER_SIZE),
        rollouts=np.full(count, 256),
    )


def fit_learner(runs: Sequence[Run]) -> Fit:
    """Fit speed, forgetting, transfer and narrowness to the change of each size in each stage."""
    start_learners = make_learners(runs, np.zeros(5))
    offset = np.sum(start_learners.cost * start_learners.validation, axis=-1)
    skills = np.stack([logit(run.rates) for run in runs]) + offset[:, None]
    shares, levels = (
        np.stack([getattr(run, name) for run in runs]) for name in ("shares", "levels")
    )
    changes = np.diff(skills, axis=1)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        learners = make_learners(runs, parameters)
        predictions = [
            train_skill(learners, skills[:, s], shares[:, s], levels[:, s], 0.0) - skills[:, s]
            for s in range(changes.shape[1])
        ]
        return changes - np.stack(predictions, axis=1)

    solution = least_squares(
        lambda parameters: residuals(parameters).ravel(), [0.3, 0.3, 0.5, 0.5, 0.5], x_scale=0.1
    )
    residual = residuals(solution.x)
    variance = np.mean(residual**2)
    errors = np.sqrt(np.diag(np.linalg.inv(solution.jac.T @ solution.jac)) * variance)
    speed, forgetting, transfer, holes, waits = solution.x.tolist()
    return Fit(
        speed,
        forgetting,
        transfer,
        (holes, waits),
        tuple(errors.tolist()),
        float(1.0 - variance / np.mean((changes - changes.mean()) ** 2)),
        _estimate_noise(runs),
    )


def _estimate_noise(runs: Sequence[Run]) -> tuple[float, float]:
    """Estimate the noise between runs with the same start and the same first stage.

    Returns:
        Standard deviations in logits: the part common to all sizes, and the rest per size.
    """
    rates_by_start: dict[bytes, list[np.ndarray]] = {}
    for run in runs:
        key = b"".join(array.tobytes() for array in (run.rates[0], run.shares[0], run.levels[0]))
        rates_by_start.setdefault(key, []).append(logit(run.rates[1]))
    groups = [np.unique(np.round(group, 9), axis=0) for group in rates_by_start.values()]
    common_variance = size_variance = 0.0
    num_degrees = 0
    for group in groups:
        deviations = group - group.mean(axis=0)
        mean = deviations.mean(axis=1)
        common_variance += float(np.sum(mean**2))
        size_variance += float(np.sum((deviations - mean[:, None]) ** 2)) / (len(SIZES) - 1)
        num_degrees += len(group) - 1
    size_variance, common_variance = (
        size_variance / max(num_degrees, 1),
        common_variance / max(num_degrees, 1),
    )
    return math.sqrt(max(common_variance - size_variance / len(SIZES), 0.0)), math.sqrt(
        size_variance
    )


class Point(NamedTuple):
    """One arm of one world: its valid rate after three stages, real and simulated."""

    world: str
    arm: str
    runs: int
    real: float
    simulated: float
    held_out: float  # simulated with the fit to the other worlds' runs


def compare_with_simulation(runs: Sequence[Run], fit: Fit) -> list[Point]:
    """Simulate every arm that still exists, and return its simulated and real valid rates."""
    points = []
    for world_index, world in enumerate(WORLDS):
        world_runs = [run for run in runs if run.world == world_index]
        held_out_fit = fit_learner([run for run in runs if run.world != world_index])
        arms = {
            arm: [run for run in world_runs if run.arm == arm]
            for arm in dict.fromkeys(_list_arms(world))
        }
        for arm, arm_runs in arms.items():
            if arm_runs:
                rates = (
                    _simulate_rate(candidate, world, arm, world_runs[0])
                    for candidate in (fit, held_out_fit)
                )
                real_rate = float(np.mean([run.rates[-1].mean() for run in arm_runs]))
                points.append(Point(world.name, arm, len(arm_runs), real_rate, *rates))
    return points


def _list_arms(world: World) -> list[str]:
    return [_CATALOGUE_NAMES.get(arm, arm) for arms in world.files.values() for arm in arms]


def _simulate_rate(fit: Fit, world: World, arm: str, start_run: Run) -> float:
    learners = make_learners([start_run], fit, RUNS_PER_ARM)
    configurations = [
        configuration_arrays(BOUNDS, _make_first_configuration(world, arm, seed))
        for seed in range(RUNS_PER_ARM)
    ]
    shares, levels = (np.stack(column) for column in zip(*configurations, strict=True))
    learners = learners._replace(shares=shares, levels=levels)
    return float(train_learners(_make_engineer_factory(arm), learners, DOMAIN).final_rates.mean())


def _make_first_configuration(world: World, arm: str, seed: int) -> Any:
    if arm in ("fixed_random", "random_throughout"):
        return random_configuration(np.random.default_rng([seed, 99]), DOMAIN)
    rows = _STARTS.get(arm) or _STARTS[world.start]
    knobs = (dict(zip(BOUNDS.knobs, map(float, row), strict=True)) for row in rows)
    return LakeConfiguration.model_validate({"sizes": dict(zip(SIZES, knobs, strict=True))})


def _make_engineer_factory(arm: str) -> EngineerFactory:
    if arm in _STARTS or arm == "fixed_random":
        return lambda run: FixedEngineer(run.initial)
    name = "random" if arm == "random_throughout" else arm
    return lambda run: scripted_engineer(name, run)


def rank_correlations(points: Sequence[Point], *, held_out: bool) -> dict[str, float]:
    """Return Spearman's rank correlation of real and simulated rates by world."""
    correlations = {}
    for world in dict.fromkeys(point.world for point in points):
        world_points = [point for point in points if point.world == world]
        rates = [point.held_out if held_out else point.simulated for point in world_points]
        correlations[world] = float(spearmanr([point.real for point in world_points], rates)[0])
    return correlations


def draw_points(points: Sequence[Point], path: Path) -> None:
    """Draw real rates against simulated rates from the fit to the other worlds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams |= {"svg.hashsalt": "designbench", "svg.fonttype": "none", "font.size": 8}
    figure = Figure(figsize=(7.6, 6.4), layout="constrained")
    correlations = rank_correlations(points, held_out=True)
    for axes, world in zip(figure.subplots(2, 2).flat, correlations, strict=True):
        world_points = [point for point in points if point.world == world]
        coordinates = 100 * np.array([(point.held_out, point.real) for point in world_points])
        axes.axline(coordinates[0].mean() * np.ones(2), slope=1.0, color="0.8", zorder=0)
        axes.scatter(*coordinates.T, s=14)
        for point, position in zip(world_points, coordinates.tolist(), strict=True):
            axes.annotate(point.arm, position, (3, 2), textcoords="offset points", fontsize=6.5)
        axes.set_title(f"{world}: rank correlation {correlations[world]:.2f}", fontsize=8)
        axes.set_xlim(coordinates[:, 0].min() - 1, coordinates[:, 0].max() + 3)
        axes.set_ylim(coordinates[:, 1].min() - 1, coordinates[:, 1].max() + 1)
    figure.supxlabel("simulated valid rate after three stages, %, by the fit to the other worlds")
    figure.supylabel("valid rate on the lake, %")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def list_starts(runs: Sequence[Run]) -> dict[str, dict[str, list[float]]]:
    """Return the start of each base model: logits and costs of holes and waits by map size."""
    run_by_model = {f"{100 * run.rates[0].mean():.1f}% valid": run for run in reversed(runs)}
    return {
        name: {
            "logits": logit(run.rates[0]).tolist(),
            "holes": fit_costs(run)[:, 0].tolist(),
            "waits": fit_costs(run)[:, 1].tolist(),
        }
        for name, run in sorted(run_by_model.items())
    }


def print_report(fit: Fit, points: Sequence[Point]) -> None:
    """Print the fit, all points and the rank correlations."""
    names = ("speed", "forgetting", "transfer", "narrow, holes", "narrow, waits")
    parameters = (*fit[:3], *fit.narrow)
    for name, value, error in zip(names, parameters, fit.errors, strict=True):
        print(f"{name:<15}{value:6.2f} ± {error:.2f}")
    print(f"explained variance of the changes {fit.explained:.2f}; noise {fit.noise}")
    for point in points:
        rates = " ".join(f"{100 * rate:6.1f}" for rate in point[3:])
        print(f"{point.world:<26} {point.arm:<18} {point.runs:2} runs {rates}")
    for held_out in (False, True):
        print(
            "held out" if held_out else "fit to all", rank_correlations(points, held_out=held_out)
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit the learner, print the comparison and write the requested files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="write the fit and the points")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="draw the points")
    args = parser.parse_args(arguments)
    runs = read_runs()
    fit = fit_learner(runs)
    points = compare_with_simulation(runs, fit)
    print_report(fit, points)
    if args.json:
        content = {
            "fit": fit._asdict(),
            "starts": list_starts(runs),
            "points": [point._asdict() for point in points],
            "rank_correlation": rank_correlations(points, held_out=False),
            "rank_correlation_held_out": rank_correlations(points, held_out=True),
        }
        with open_output(args.json) as file:
            json.dump(content, file, indent=1)
            file.write("\n")
    if args.svg:
        draw_points(points, args.svg)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
