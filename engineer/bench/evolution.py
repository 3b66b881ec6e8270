"""Train the `learned` engineer by evolution strategies on simulated runs of the lake.

    python -m engineer.bench.evolution engineer/engineers/learned.json   # train, write the file
    python -m engineer.bench.evolution                                   # compare the engineers

Both take minutes on two CPU cores. Training uses learners of `Prior()`. The comparison uses
learners with other seeds and learners of another prior, `SHIFTED`.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engineer.bench.learners import Learners, Prior, draw_learners, select_learners
from engineer.bench.simulation import train_learners
from engineer.bench.vectorised import tabulate_grid, train_with_policy
from engineer.bench.version import STAGES, get_track
from engineer.engineers.catalogue import scripted_engineer
from engineer.engineers.learned import Parameters, decide

DOMAIN = get_track(4).domain
"""The lake of configs/miniature.yaml. Its large edits suit `rule` and `learnability` best."""
TRAINING_SEED, TEST_SEED = (101,), (202,)
_POPULATION = 32
"""Candidates per generation of the evolution strategy."""
START = Parameters(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
"""Initial parameters, which give equal shares and unchanged knobs."""
SCALE = Parameters(1.0, 1.0, 5.0, 1.0, 1.0, 1.0, 1.0)
"""The unit of each parameter. The unit for trends is larger, because trends are small."""
SHIFTED = Prior(
    start=(-0.5, 1.0),
    cost=(3.0, 0.6),
    speed=(0.5, 0.5),
    forgetting=(0.15, 0.3),
    transfer=(0.0, 0.4),
    narrow=(0.0, 1.0),
    count=100,
)
"""Weaker learners that learn faster, transfer and forget less, with fewer validation answers."""


def evolve(
    objective: Callable[[np.ndarray, np.random.Generator], Any],
    start: np.ndarray,
    scale: np.ndarray,
    *,
    generations: int = 300,
) -> np.ndarray:
    """Maximise a noisy objective by evolution strategies (Salimans et al. 2017).

    Each generation evaluates 16 pairs of opposite steps with standard deviation 0.3. The centre
    moves along the rank-weighted steps, with momentum 0.8 and a rate that decays linearly to 0.

    Args:
        objective: Maps candidates (32, D) and a random generator to their scores (32,).
        start: Float (D,), the first centre.
        scale: Float (D,), the unit of each parameter.
        generations: Number of generations, at least 1.

    Returns:
        The final centre, float (D,).
    """
    rng = np.random.default_rng(0)
    centre, momentum = np.zeros(len(start)), np.zeros(len(start))
    for generation in range(generations):
        normals = rng.normal(size=(_POPULATION // 2, len(start)))
        steps = np.concatenate([normals, -normals])
        scores = np.asarray(objective(start + scale * (centre + 0.3 * steps), rng))
        ranks = np.argsort(np.argsort(scores)) / (_POPULATION - 1) - 0.5
        momentum = 0.8 * momentum + 0.2 * (ranks @ steps) / (0.3 * _POPULATION)
        centre = centre + 0.35 * (1.0 - generation / generations) * momentum
    return start + scale * centre


def compute_final_rates(parameters: Any, learners: Learners) -> Any:
    """Return the final valid rate of each learner, float (N,), with parameters (D,)."""
    policy = partial(decide, Parameters(*parameters))
    return train_with_policy(policy, learners, tabulate_grid(DOMAIN))[:, -1]


def train(generations: int, num_learners: int = 2048, batch_size: int = 256) -> Parameters:
    """Train the parameters on random batches of a pool of learners."""
    import jax

    pool = draw_learners(Prior(), DOMAIN, num_learners, STAGES, TRAINING_SEED)

    def mean_final_rate(parameters: Any, sample: Learners) -> Any:
        return compute_final_rates(parameters, sample).mean()

    score_candidates = jax.jit(jax.vmap(mean_final_rate, (0, None)))

    def objective(candidates: np.ndarray, rng: np.random.Generator) -> Any:
        indices = rng.choice(num_learners, batch_size, replace=False)
        return score_candidates(candidates, select_learners(pool, indices))

    centre = evolve(objective, np.array(START), np.array(SCALE), generations=generations)
    return Parameters(*(round(float(value), 3) for value in centre))


def compare(count: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return valid rates and the gains of `learned` over other engineers, by prior.

    Rates and gains are percentages. Standard errors are over the `count` learners.
    """
    baselines = ("rule", "learnability", "shuffled:learned", "fixed")
    table: dict[str, dict[str, dict[str, float]]] = {}
    for prior, name in ((Prior(), "held-out seeds"), (SHIFTED, "another prior")):
        learners = draw_learners(prior, DOMAIN, count, STAGES, TEST_SEED)
        final_rates = {
            engineer: train_learners(
                partial(scripted_engineer, engineer), learners, DOMAIN
            ).final_rates
            for engineer in ("learned", *baselines)
        }
        table[name] = {"learned": {"rate": round(100 * final_rates["learned"].mean(), 2)}}
        for baseline in baselines:
            gains = 100 * (final_rates["learned"] - final_rates[baseline])
            standard_error = gains.std(ddof=1) / np.sqrt(count)
            table[name][baseline] = {
                "rate": round(100 * final_rates[baseline].mean(), 2),
                "difference": round(gains.mean(), 2),
                "standard_error": round(standard_error, 2),
            }
    return table


def main() -> None:
    """Train `learned` and write its file, or compare the engineers."""
    parser = argparse.ArgumentParser(prog="python -m engineer.bench.evolution")
    parser.add_argument("file", type=Path, nargs="?", help="write the trained parameters there")
    parser.add_argument("--generations", type=int, default=300, metavar="N")
    parser.add_argument("--learners", type=int, default=500, metavar="N", help="for the comparison")
    options = parser.parse_args()
    if options.file is None:
        print(json.dumps(compare(options.learners), indent=2))
        return
    content = {
        "command": "python -m engineer.bench.evolution engineer/engineers/learned.json",
        "prior": Prior().model_dump(mode="json"),
        "stages": STAGES,
        "generations": options.generations,
        "parameters": train(options.generations)._asdict(),
    }
    options.file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
