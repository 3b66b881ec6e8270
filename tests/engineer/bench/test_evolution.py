"""Evolution strategies and the engineer trained by them."""

import numpy as np

from engineer import scripted_engineer
from engineer.bench import Prior, draw_learners, train_learners
from engineer.bench.evolution import DOMAIN, START, compute_final_rates, evolve, train
from engineer.bench.vectorised import Features
from engineer.engineers.learned import Parameters, decide, learned_parameters

LEARNERS = draw_learners(Prior(), DOMAIN, 32, 3, (7,))


def test_evolve_finds_maximum_of_noisy_objective():
    optimum, scale = np.array([1.0, -20.0]), np.array([1.0, 10.0])

    def objective(candidates, rng):
        squared_distance = np.sum(((candidates - optimum) / scale) ** 2, axis=1)
        return rng.normal(0.0, 0.1, len(candidates)) - squared_distance

    solution = evolve(objective, np.array([0.0, 10.0]), scale, generations=150)
    assert np.all(np.abs(solution - optimum) < 0.1 * scale)


def test_decide_matches_documented_formula():
    features = Features(
        valid=np.array([0.2, 0.8]),
        trend=np.array([0.1, 0.0]),
        learnability=np.array([0.25, 0.0]),
        shares=np.array([0.3, 0.7]),
        levels=np.array([[0.0, 1.0], [0.5, 0.5]]),
        progress=np.array([0.5]),
    )
    weights, levels = decide(Parameters(1.0, 2.0, 3.0, 0.5, 0.1, 0.5, 0.2), features)
    logits = 1.0 + 0.4 + 0.3 + 0.3, 0.0 + 1.6 + 0.0 + 0.7
    assert np.isclose(weights[0] / weights[1], np.exp(logits[0] - logits[1]))
    assert np.allclose(levels, [[0.2, 0.4], [0.6, 0.6]])
    weights, levels = decide(START, features)
    assert np.allclose(weights, 1.0)
    assert np.allclose(levels, features.levels)


def test_learned_beats_its_shuffled_control_and_fixed():
    final_rates = {
        name: train_learners(
            lambda run, name=name: scripted_engineer(name, run), LEARNERS, DOMAIN
        ).final_rates
        for name in ("learned", "shuffled:learned", "fixed")
    }
    for baseline in ("shuffled:learned", "fixed"):
        gain = final_rates["learned"] - final_rates[baseline]
        assert gain.mean() > 2.0 * gain.std() / np.sqrt(len(gain))
    assert np.allclose(
        compute_final_rates(learned_parameters(), LEARNERS), final_rates["learned"], atol=1e-4
    )


def test_train_improves_the_objective():
    parameters = train(generations=10, num_learners=32, batch_size=16)
    gain = compute_final_rates(parameters, LEARNERS) - compute_final_rates(START, LEARNERS)
    assert gain.mean() > 0.005
