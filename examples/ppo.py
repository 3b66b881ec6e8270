"""PPO in one file: two agents learn 4x4 lakes and are tested on held-out boards.

    python examples/ppo.py
    python examples/ppo.py --seeds 2 --updates 40

Environment, policy and updates are one compiled program, as in PureJaxRL (Lu et al. 2022), and
`--seeds` vmaps over it. All agents share one network. Each agent observes the board centred on its
own cell. Actions that lead off the board or onto a hole are masked. The algorithm is PPO with
generalised advantage estimation (Schulman et al. 2017, 2016).
"""

import argparse
import time
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import jaxlake
from jaxlake.environment import (
    AgentCentred,
    Box,
    EnvParams,
    EnvState,
    LakeEnvironment,
    Transition,
    env_params,
)
from jaxlake.environment.step_rewards import team_reward

MAX_STEPS = 20
"""Time limit of an episode; two agents on 4x4 seldom need half of it."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    updates: int = 140
    environments: int = 512
    steps: int = 16  # per environment and update
    epochs: int = 3
    minibatches: int = 8
    width: int = 96
    learning_rate: float = 5e-3  # falls to 0 linearly
    discount: float = 0.97
    gae_lambda: float = 0.9
    clip: float = 0.2
    entropy: float = 0.001
    value: float = 0.5


class Batch(NamedTuple):
    """Samples of all agents; leaves (..., K)."""

    observation: jax.Array  # float32 (..., K, D)
    action: jax.Array  # int8
    log_probability: jax.Array  # float32, of the action under the sampling policy
    advantage: jax.Array  # float32
    target: jax.Array  # float32, regression target of the value


@dataclass(frozen=True)
class Surroundings:
    """A custom observation: the fields of `AgentCentred` as one vector per agent.

    With radius 3 (W = 7), an agent sees all of a 4x4 board from any cell. The last six numbers are
    its action mask and the remaining fraction of the episode's steps.
    """

    radius: int = 3

    def __call__(self, state: EnvState, params: EnvParams) -> jax.Array:
        """Return one vector per agent, float32 (K, 4 * W * W + 8), in [-1, 1]."""
        view = AgentCentred(self.radius)(state, params)
        K, reach = len(view.to_goal), view.window.shape[1] // 2
        time_left = (view.steps_left / params.max_steps).astype(jnp.float32)
        fields = (view.window, view.to_goal / reach, view.action_mask, jnp.full(K, time_left))
        vectors = [values.reshape(K, -1).astype(jnp.float32) for values in fields]
        return jnp.concatenate(vectors, axis=-1)

    def space(self, params: EnvParams) -> Box:
        """Return the observation space: a `Box` from -1 to 1."""
        K = params.instances.agent_mask.shape[-1]
        return Box(-1, 1, (K, 4 * (2 * self.radius + 1) ** 2 + 8), jnp.float32)


def shaped_reward(transition: Transition) -> jax.Array:
    """Return the team's reward with a shaping term per agent, float32 (K,).

    A step that reduces the Manhattan distance to the goal adds 0.1. Each step that does not end on
    the goal costs 0.05.
    """

    def distance(positions: jax.Array) -> jax.Array:
        return jnp.sum(jnp.abs(positions - transition.goals), axis=-1).astype(jnp.float32)

    progress = distance(transition.before) - distance(transition.after)
    return team_reward(transition) + 0.1 * progress - 0.05 * (distance(transition.after) > 0)


ENVIRONMENT = LakeEnvironment(observation=Surroundings(), reward=shaped_reward)


def initial_network(key: jax.Array, inputs: int, width: int) -> list[tuple[jax.Array, jax.Array]]:
    """Initialise two hidden layers and an output layer with five logits and the value."""
    sizes = [(inputs, width, 2.0**0.5), (width, width, 2.0**0.5), (width, 6, 0.01)]
    return [
        (_orthogonal(layer_key, rows, columns, scale), jnp.zeros(columns))
        for layer_key, (rows, columns, scale) in zip(jax.random.split(key, 3), sizes, strict=True)
    ]


def _orthogonal(key: jax.Array, rows: int, columns: int, scale: float) -> jax.Array:
    """Draw orthogonal weights, one matrix at a time even under vmap.

    On CPUs, batched QR decompositions of jaxlib 0.10 can deadlock if two of them run at once.
    """
    draw = jax.nn.initializers.orthogonal(scale)
    return jax.custom_batching.sequential_vmap(lambda key: draw(key, (rows, columns)))(key)


def policy_and_value(network: Any, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the log-probabilities (..., 5) and the value (...) of observations (..., D)."""
    hidden = observation
    for weights, bias in network[:-1]:
        hidden = jax.nn.relu(hidden @ weights + bias)
    weights, bias = network[-1]
    outputs = hidden @ weights + bias
    action_mask = observation[..., -6:-1] > 0
    return jax.nn.log_softmax(jnp.where(action_mask, outputs[..., :5], -1e9)), outputs[..., 5]


def collect(
    key: jax.Array,
    network: Any,
    states: Any,
    observation: jax.Array,
    pool: EnvParams,
    settings: Settings,
) -> tuple[Any, jax.Array, Batch, jax.Array]:
    """Return the states and observations after T steps, a batch (T, B, K) and the success rate."""

    def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
        states, observation = carry
        key_act, key_step = jax.random.split(key)
        logits, value = policy_and_value(network, observation)
        action = jax.random.categorical(key_act, logits).astype(jnp.int8)
        log_probability = _gather_action(logits, action)
        keys = jax.random.split(key_step, settings.environments)
        next_observation, states, reward, terminated, truncated, info = jax.vmap(
            ENVIRONMENT.step, (0, 0, 0, None)
        )(keys, states, action, pool)
        is_end = terminated | truncated
        record = (observation, action, log_probability, value, reward, is_end, info["solved"])
        return (states, next_observation), record

    (states, next_observation), record = jax.lax.scan(
        step, (states, observation), jax.random.split(key, settings.steps)
    )
    observations, action, log_probability, value, reward, is_end, is_solved = record
    # The time limit is part of the task and the observation contains the remaining time, so a
    # truncation is not bootstrapped. Without the time in the observation, the value of
    # info["final_observation"] must be added (Pardo et al. 2018).
    not_done = 1.0 - is_end[..., None].astype(jnp.float32)

    def accumulate(carry: Any, inputs: Any) -> tuple[Any, jax.Array]:
        advantage, next_value = carry
        reward, value, not_done = inputs
        td_error = reward + settings.discount * next_value * not_done - value
        advantage = td_error + settings.discount * settings.gae_lambda * not_done * advantage
        return (advantage, value), advantage

    last_value = policy_and_value(network, next_observation)[1]
    _, advantage = jax.lax.scan(
        accumulate,
        (jnp.zeros_like(last_value), last_value),
        (reward, value, not_done),
        reverse=True,
    )
    batch = Batch(observations, action, log_probability, advantage, advantage + value)
    return states, next_observation, batch, jnp.sum(is_solved) / jnp.maximum(jnp.sum(is_end), 1)


def loss(network: Any, batch: Batch, settings: Settings) -> jax.Array:
    """Return PPO's clipped loss with value error and entropy bonus, float32 ()."""
    logits, value = policy_and_value(network, batch.observation)
    ratio = jnp.exp(_gather_action(logits, batch.action) - batch.log_probability)
    advantage = batch.advantage
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped_ratio = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped_ratio * advantage).mean()
    entropy = -jnp.sum(jnp.exp(logits) * logits, axis=-1).mean()
    value_error = jnp.square(value - batch.target).mean()
    return policy_loss + settings.value * value_error - settings.entropy * entropy


@partial(jax.jit, static_argnames="settings")
def train(key: jax.Array, pool: EnvParams, settings: Settings) -> tuple[Any, jax.Array]:
    """Train a new network on a pool of boards; return it and the success rate per update."""
    key, key_network, key_start = jax.random.split(key, 3)
    keys = jax.random.split(key_start, settings.environments)
    observation, states = jax.vmap(ENVIRONMENT.reset, (0, None))(keys, pool)
    network = initial_network(key_network, observation.shape[-1], settings.width)
    gradient_steps = settings.updates * settings.epochs * settings.minibatches
    schedule = optax.linear_schedule(settings.learning_rate, 0.0, gradient_steps)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(schedule, eps=1e-5))

    def gradient_step(carry: Any, batch: Batch) -> tuple[Any, None]:
        network, optimizer_state = carry
        gradient = jax.grad(loss)(network, batch, settings)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state)
        return (optax.apply_updates(network, updates), optimizer_state), None

    def update(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        learner, states, observation = carry
        key_play, key_order = jax.random.split(key)
        states, observation, batch, success = collect(
            key_play, learner[0], states, observation, pool, settings
        )
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batch)

        def epoch(learner: Any, key: jax.Array) -> tuple[Any, None]:
            order = jax.random.permutation(key, settings.steps * settings.environments)
            order = order.reshape(settings.minibatches, -1)
            shuffle = partial(jax.tree.map, lambda leaf: leaf[order], rows)
            return jax.lax.scan(gradient_step, learner, shuffle())

        learner, _ = jax.lax.scan(epoch, learner, jax.random.split(key_order, settings.epochs))
        return (learner, states, observation), success

    start = ((network, optimizer.init(network)), states, observation)
    (learner, _, _), success = jax.lax.scan(update, start, jax.random.split(key, settings.updates))
    return learner[0], success


@jax.jit
def evaluate(
    key: jax.Array, network: Any, boards: jaxlake.Instance, solutions: jaxlake.Solution
) -> jaxlake.Outcome:
    """Play boards (B, ...) once with sampled actions, and verify the plans."""

    def play(
        key: jax.Array, board: jaxlake.Instance, solution: jaxlake.Solution
    ) -> jaxlake.Outcome:
        single_board = env_params(board, max_steps=MAX_STEPS)  # a pool of one board
        observation, state = ENVIRONMENT.reset(key, single_board)

        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            observation, state = carry
            action = jax.random.categorical(key, policy_and_value(network, observation)[0]).astype(
                jnp.int8
            )
            observation, state, *_ = ENVIRONMENT.step_env(key, state, action, single_board)
            return (observation, state), action

        keys = jax.random.split(key, MAX_STEPS)
        (_, state), plan = jax.lax.scan(step, (observation, state), keys)
        return jaxlake.verify(board, plan, state.time, solution=solution)

    return jax.vmap(play)(jax.random.split(key, len(boards.size)), boards, solutions)


def _gather_action(values: jax.Array, action: jax.Array) -> jax.Array:
    """Return the entries (...) of values (..., 5) at the actions (...)."""
    return jnp.take_along_axis(values, action[..., None].astype(jnp.int32), axis=-1)[..., 0]


def generate_boards(count: int, held_out: int) -> tuple[jaxlake.Generated, jaxlake.Generated]:
    """Generate distinct solvable 4x4 boards with two agents; a quarter of them need a wait."""
    params = jaxlake.lake_params(size=4, hole_ratio=0.2, wait_ratio=0.25, num_agents=2)
    lakes = jaxlake.generate(jax.random.key(0), params, count + held_out)
    order = jax.random.permutation(jax.random.key(1), count + held_out)

    def select(rows: jax.Array) -> jaxlake.Generated:
        return jax.tree.map(lambda leaf: leaf[rows], lakes)

    return select(order[:count]), select(order[count:])


def main(arguments: list[str] | None = None) -> None:
    """Train, and print the valid rates on held-out boards before and after."""
    args = _parse_arguments(arguments)
    settings = Settings(updates=args.updates)
    stopwatch = Stopwatch()
    train_boards, test_boards = jax.block_until_ready(generate_boards(args.boards, args.held_out))
    stopwatch.lap(f"{args.boards:,} + {args.held_out:,} boards made and solved")
    pool = env_params(train_boards.instances, max_steps=MAX_STEPS, filled=train_boards.filled)
    keys = jax.random.split(jax.random.key(2), args.seeds)
    compiled_train = (
        jax.jit(jax.vmap(partial(train, settings=settings), (0, None))).lower(keys, pool).compile()
    )
    stopwatch.lap("training compiled")
    networks, curves = jax.block_until_ready(compiled_train(keys, pool))
    steps = settings.updates * settings.environments * settings.steps
    stopwatch.lap(
        f"{args.seeds} x {steps:,} steps trained, {settings.environments} environments at once"
    )

    print("\nshare of episodes that end at all goals, while training (actions are drawn)")
    for update in sorted({max(0, settings.updates * k // 8 - 1) for k in range(9)}):
        print(f"  update {update + 1:4d}  {float(curves[:, update].mean()):6.1%}")
    print(f"\none try each on {args.held_out:,} boards that were never trained on")
    print("             valid  optimal  needs a wait: valid")
    inputs = ENVIRONMENT.observation_space(pool).shape[-1]
    print_rates("untrained", initial_network(keys[0], inputs, settings.width), test_boards)
    for seed in range(args.seeds):
        network = jax.tree.map(itemgetter(seed), networks)
        print_rates(f"seed {seed}", network, test_boards)


def print_rates(name: str, network: Any, boards: jaxlake.Generated) -> None:
    """Print a network's valid and optimal rates."""
    outcome = evaluate(jax.random.key(3), network, boards.instances, boards.solutions)
    is_filled, needs_wait = boards.filled, boards.filled & boards.solutions.needs_wait
    shares = [
        float(jnp.sum(flags & mask) / jnp.maximum(jnp.sum(mask), 1))
        for flags, mask in (
            (outcome.valid, is_filled),
            (outcome.optimal_sum_of_costs, is_filled),
            (outcome.valid, needs_wait),
        )
    ]
    print(f"  {name:9s}  {shares[0]:6.1%}  {shares[1]:6.1%}  {shares[2]:6.1%}")


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name, default, description in (
        ("seeds", 1, "networks to train at once"),
        ("updates", Settings.updates, "updates of each"),
        ("boards", 32_768, "boards to train on"),
        ("held-out", 2_048, "boards to test on"),
    ):
        help_text = f"{description} (default: {default:,})"
        parser.add_argument(
            f"--{name}", metavar="N", type=parse_positive, default=default, help=help_text
        )
    return parser.parse_args(arguments)


def parse_positive(text: str) -> int:
    """Parse an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


class Stopwatch:
    """Print the wall time and the CPU time of each phase."""

    def __init__(self) -> None:
        self.start_times = time.perf_counter(), time.process_time()

    def lap(self, label: str) -> None:
        """Print the seconds since the last lap."""
        times = time.perf_counter(), time.process_time()
        wall_seconds, cpu_seconds = (b - a for a, b in zip(self.start_times, times, strict=True))
        print(f"{wall_seconds:6.1f} s ({cpu_seconds:6.1f} s of processors)  {label}", flush=True)
        self.start_times = times


if __name__ == "__main__":
    main()
