"""The PPO example learns in a short run, and the verifier scores its plans."""

import re
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from examples.ppo import MAX_STEPS, Settings, evaluate, initial_network, train
from jaxlake.environment import env_params
from jaxlake.solver.solution import unknown_solution
from tests.jaxlake.solver.boards import draw_pool
from tests.paths import ROOT

SETTINGS = replace(Settings(), updates=16, environments=128, epochs=2, minibatches=4, width=64)


@pytest.mark.slow
def test_ppo_learns_two_seeds_at_once():
    _, boards = draw_pool(1, 256, [2], [2], 2, 2, hole_ratio=0.0)
    pool = env_params(boards, max_steps=MAX_STEPS)
    keys = jax.random.split(jax.random.key(0), 2)
    networks, success = jax.jit(jax.vmap(lambda key: train(key, pool, SETTINGS)))(keys)
    assert success.shape == (2, SETTINGS.updates)
    unknown_solutions = jax.vmap(lambda _: unknown_solution(MAX_STEPS, 2))(boards.size)
    new_network = initial_network(keys[0], 204, SETTINGS.width)
    rates = [
        float(np.mean(evaluate(jax.random.key(1), network, boards, unknown_solutions).valid))
        for network in (new_network, *(jax.tree.map(lambda x, i=i: x[i], networks) for i in (0, 1)))
    ]
    assert rates[0] < 0.5
    assert min(rates[1:]) > 0.75
    assert rates[1] != rates[2]


@pytest.mark.slow
def test_ppo_command_prints_results_and_time():
    options = ["--updates", "12", "--boards", "2048", "--held-out", "256"]
    process = subprocess.run(
        [sys.executable, "examples/ppo.py", *options], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    rates = dict(re.findall(r"^  (untrained|seed 0) +([\d.]+)%", process.stdout, re.MULTILINE))
    assert float(rates["untrained"]) < 15
    assert float(rates["seed 0"]) > 35
    assert "1 x 98,304 steps" in process.stdout
