"""One GRPO update with a scripted sampler: the weights follow the rewards."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlake.language.prompts import target
from tests.paths import TINY
from tests.training.small_lakes import draw_small_lakes, write_untrained_policy
from training.errors import UserError
from training.learner.grpo_step import make_grpo_optimizer
from training.learner.optimizer import LearnerState, initial_state
from training.phases.grpo_update import make_rollout_batch, resample, take_update
from training.policy.lora import get_trainable
from training.policy.policy import Policy, load_run_policy
from training.rollout.instances import InstanceSet
from training.rollout.rollout import roll_out, rollout_request
from training.run.active_run import ActiveRun
from training.run.directory import RunDirectory
from training.run.throughput import UpdateWork
from training.sampling.sampler import Completion, SamplingRequest
from training.schema import load
from training.schema.model_sections import ScratchModelConfig


class ScriptedSampler:
    """Answers half of each group with the optimal plan, the other half with the prompt's end."""

    def __init__(self, policy: Policy, boards: InstanceSet) -> None:
        self._plans = [policy.encode_answer(target(plan)) for plan in boards.solutions.plan]
        self.weights: dict[str, np.ndarray] = {}
        self.weight_version = "0" * 8

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        return [
            [
                Completion(tuple(ids), np.full(len(ids), -3, np.float32), truncated=False)
                for ids in ([plan, prompt[-4:]] * request.n)[: request.n]
            ]
            for prompt, plan in zip(request.prompts, self._plans, strict=True)
        ]

    def sync(self, tensors: Any) -> None:
        self.weights = {name: np.asarray(tensor) for name, tensor in tensors}


@pytest.fixture(scope="module")
def boards() -> InstanceSet:
    return draw_small_lakes(8)


@pytest.fixture(scope="module")
def folder(boards: InstanceSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_untrained_policy(tmp_path_factory.mktemp("policy"), boards)


def open_run(
    folder: Path, boards: InstanceSet, run_dir: Path, *options: str
) -> tuple[Any, LearnerState]:
    """Return a run with these boards and settings, and the initial state of its learner."""
    config = load(TINY, ["prompt.max_tokens=40", *options])
    policy, params = load_run_policy(folder, config)
    run = ActiveRun(config, RunDirectory(run_dir), None, policy, boards)  # type: ignore[arg-type]
    return run, initial_state(params, make_grpo_optimizer(config.grpo, config.grpo_steps))


def update(
    run: Any, state: LearnerState, sampler: Any, *, seed: int = 0, step: int = 0, **options: Any
) -> tuple[LearnerState, dict[str, Any]]:
    """Take an update on the boards of a run."""
    boards, options = run.validation, {"seconds": {}} | options
    request = rollout_request(run, boards, seed=seed)
    return take_update(run, state, sampler, boards, request, step=step, **options)


MakeRun = Callable[..., tuple[Any, LearnerState]]


@pytest.fixture
def make_run(folder: Path, boards: InstanceSet, tmp_path: Path) -> MakeRun:
    return partial(open_run, folder, boards, tmp_path)


@pytest.mark.parametrize("minibatches", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_update_moves_the_weights(minibatches: int, boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run(f"grpo.minibatches={minibatches}")
    policy, sampler = run.policy, ScriptedSampler(run.policy, boards)
    answers = [
        policy.encode_board(board) + plan
        for board, plan in zip(boards, sampler._plans, strict=True)
    ]
    before = [scores.sum() for scores in policy.logprobs(state.params, answers)]
    seconds: dict[str, float] = {}
    for seed in range(2):
        step, work = seed * minibatches, UpdateWork()
        state, metrics = update(
            run, state, sampler, seed=seed, step=step, seconds=seconds, work=work
        )
    after = [scores.sum() for scores in policy.logprobs(state.params, answers)]
    assert np.mean(after) > np.mean(before) + 0.5
    assert int(state.steps) == 2 * minibatches
    assert metrics["zero_variance_share"] == 0.0
    assert metrics["valid_rate"] == metrics["optimal_rate"] == 0.5
    assert metrics["by_group"]["3"].learnability == 0.25
    assert metrics["by_group"]["3"].failures == {"parse_error": 16}
    assert work.generated_tokens == sum(2 * len(plan) + 2 * 4 for plan in sampler._plans)
    assert seconds.keys() == {"rollout", "verify", "update", "sync"}
    for name, tensor in policy.tensors(state.params):
        np.testing.assert_array_equal(sampler.weights[name], tensor)


def slow_flops(
    shape: ScratchModelConfig,
    vocabulary: int,
    prompts: Sequence[int],
    lengths: Sequence[Sequence[int]],
) -> float:
    """Count token by token: multiply and add for each weight, once forwards and twice backwards."""
    D, F, hd = shape.hidden_size, shape.intermediate_size, shape.head_dim
    H, K = shape.num_attention_heads, shape.num_key_value_heads
    layer = D * (H + 2 * K) * hd + H * hd * D + 3 * D * F
    total = 0
    for prompt, answers in zip(prompts, lengths, strict=True):
        for position in range(prompt):
            total += shape.num_hidden_layers * (layer + 2 * H * hd * (position + 1))
        for answer in answers:
            for position in range(prompt, prompt + answer):
                total += shape.num_hidden_layers * (layer + 2 * H * hd * (position + 1))
                total += D * vocabulary
    return 2 * 3 * total


@pytest.mark.parametrize(
    ("schedule", "last"), [("constant", 1.0), ("cosine", 0.1), ("linear", 0.1)]
)
def test_rate_follows_its_schedule(schedule: str, last: float) -> None:
    config = load(TINY, [f"grpo.schedule={schedule}", "grpo.warmup_updates=2"])
    assert config.grpo_steps == 8  # of which the first two rise
    optimizer = make_grpo_optimizer(config.grpo, config.grpo_steps)
    weights = {"kernel": jnp.ones(1)}
    state, moves = optimizer.init(weights), []
    for _ in range(config.grpo_steps):
        move, state = optimizer.update({"kernel": jnp.full(1, 0.5)}, state, weights)
        moves.append(-float(move["kernel"][0]) / config.grpo.learning_rate)
    assert moves[2] == pytest.approx(1.0, abs=1e-5)
    assert moves[config.grpo_steps - 1] == pytest.approx(last, abs=1e-3)
    assert moves[:2] == pytest.approx([1 / 3, 2 / 3], abs=1e-4)
    assert all(later <= earlier + 1e-5 for earlier, later in pairwise(moves[2:]))
    if schedule == "linear":
        assert np.diff(moves[2:]) == pytest.approx(-0.18, abs=1e-3)


@pytest.mark.parametrize(("schedule", "rate"), [("linear", 1 - 0.9 * 7 / 11), ("constant", 1.0)])
def test_new_state_keeps_rate(
    schedule: str, rate: float, boards: InstanceSet, make_run: MakeRun
) -> None:
    """The state has taken no step, as after a rollback. A constant rate warms up again."""
    run, state = make_run(f"grpo.schedule={schedule}", "stages.count=4", "stages.instances=24")
    assert run.config.grpo_steps == 12
    assert [run.optimizer_step(*place) for place in ((1, 1), (1, 3), (3, 2))] == [0, 2, 7]
    before = jax.tree.map(np.array, state.params)
    state, _ = update(run, state, ScriptedSampler(run.policy, boards), step=7)
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(state.params), strict=True)
    largest_change = max(float(np.abs(np.asarray(new) - old).max()) for old, new in pairs)
    # Adam's first step moves a weight by the rate, whatever its gradient is.
    assert largest_change / run.config.grpo.learning_rate == pytest.approx(rate, abs=2e-3)


class UnevenSampler(ScriptedSampler):
    """Answers some prompts always with the plan: their rewards are all equal."""

    def __init__(self, policy: Policy, boards: InstanceSet, same: set[int]) -> None:
        super().__init__(policy, boards)
        self._same = {tuple(policy.encode_board(list(boards)[row])) for row in same}
        self._plan_of = {
            tuple(policy.encode_board(board)): plan
            for board, plan in zip(boards, self._plans, strict=True)
        }
        self.request_counts: list[int] = []
        self.seeds: list[int] = []

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        self.request_counts.append(len(request.prompts))
        self.seeds.append(request.seed)
        self._plans = [self._plan_of[tuple(prompt)] for prompt in request.prompts]
        groups = super().sample(request)
        return [
            [group[0]] * request.n if tuple(prompt) in self._same else group
            for prompt, group in zip(request.prompts, groups, strict=True)
        ]


@pytest.mark.parametrize(
    ("rounds", "request_counts", "replaced"), [(0, [8], 0), (1, [8, 4], 2), (3, [8, 4, 2], 4)]
)
def test_resample_replaces_boards(
    rounds: int, request_counts: list[int], replaced: int, folder: Path, tmp_path: Path
) -> None:
    many = draw_small_lakes(14)
    run, _ = open_run(folder, many, tmp_path, f"grpo.resamples={rounds}")
    policy = run.policy
    spare = many.take(range(8, 14))
    order = np.random.default_rng([5, 1]).permutation(6) + 8
    same = {0, 2, 3, 7, *order[[1, 2]].tolist()}  # two of the first four spare ones
    other_batch, first, second = [], [], []
    for results, seed in ((other_batch, 6), (first, 5), (second, 5)):
        sampler = UnevenSampler(policy, many, same)
        eight_boards = many.take(range(8))
        rollout = roll_out(
            run, sampler, eight_boards, rollout_request(run, eight_boards, seed=seed), seconds={}
        )
        learned, counts = resample(run, sampler, rollout, spare, seed=seed, seconds={})  # type: ignore[arg-type]
        results += [sampler.seeds, learned.prompts, learned.rewards.tolist(), counts]
        results.append(sampler.request_counts)
    assert first == second
    # No answers are drawn with the random numbers of others, in a round or in another update.
    assert len({*first[0], *other_batch[0]}) == len(first[0]) + len(other_batch[0])
    assert sampler.request_counts == request_counts
    assert counts == {"resampled_boards": sum(request_counts) - 8, "replaced_boards": replaced}
    varies = learned.rewards.std(axis=1) > 0
    assert varies.sum() == 4 + replaced
    # Kept groups stay in place; a replaced group has the board, answers and scores of its
    # replacement.
    for index, prompt in enumerate(learned.prompts):
        assert list(prompt) == policy.encode_board(list(learned.boards)[index])
        if index not in same:
            assert prompt == rollout.prompts[index]
        rows = slice(index * 4, index * 4 + 4)
        rewards = np.asarray(learned.scores.valid[rows]) * 1.0
        np.testing.assert_array_equal(learned.rewards[index] > 0, rewards)
        texts = {policy.decode(completion.token_ids) for completion in learned.completions[rows]}
        assert sampler._plan_of[tuple(prompt)] in [
            list(completion.token_ids) for completion in learned.completions[rows]
        ]
        assert len(texts) == 1 + varies[index]


class CutSampler(ScriptedSampler):
    """Says of some of its answers that the token limit has cut them."""

    def __init__(self, policy: Policy, boards: InstanceSet, cut: np.ndarray) -> None:
        super().__init__(policy, boards)
        self._cut = cut  # bool (prompts, completions)

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        groups = super().sample(request)
        return [
            [
                replace(completion, truncated=bool(cut))
                for completion, cut in zip(group, row, strict=True)
            ]
            for group, row in zip(groups, self._cut, strict=True)
        ]


@pytest.mark.parametrize("masked", [False, True])
def test_cut_answers_may_be_masked(masked: bool, boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run(f"grpo.mask_truncated={str(masked).lower()}")
    policy = run.policy
    cut = np.zeros((8, 4), bool)
    cut[0, 1] = cut[2, 3] = cut[3, [1, 3]] = cut[4, 2] = True
    sampler: Any = CutSampler(policy, boards, cut)
    rollout = roll_out(run, sampler, boards, rollout_request(run, boards, seed=0), seconds={})
    batch = make_rollout_batch(run, state.params, rollout)
    learned = set(np.unique(batch.groups.completions).tolist()) - {-1}
    counted = {row: batch.copies[batch.groups.completions == row].tolist() for row in learned}
    expected = {first: 2 for start in range(0, 32, 4) for first in (start, start + 1)}
    if masked:  # 1, 11, 13, 15 and 18 were cut
        del expected[1], expected[13]
        expected |= {3: 1, 9: 1, 16: 1}
    assert {row: set(counts) for row, counts in counted.items()} == {
        row: {count} for row, count in expected.items()
    }
    # Answers are compared with the mean of their whole group: rewards 1, 0, 1, 0.
    for row in learned:
        at = batch.groups.completions == row
        assert batch.groups.target_ids[at].tolist() == list(rollout.completions[row].token_ids)
        np.testing.assert_allclose(batch.advantages[at], -1.0 if row % 2 else 1.0)
    lengths = [
        [len(rollout.completions[row].token_ids) for row in sorted(learned) if row // 4 == group]
        for group in range(8)
    ]
    prompts = [len(prompt) for prompt in rollout.prompts]
    work = UpdateWork()
    update(run, state, sampler, work=work)
    expected = slow_flops(run.config.model.scratch, len(policy.tokenizer), prompts, lengths)
    assert work.model_flops == pytest.approx(expected, rel=1e-12)


class WaveringSampler(ScriptedSampler):
    """Has other log-probabilities for the third answer to each prompt than for the first."""

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        groups = super().sample(request)
        for group in groups:
            group[2] = replace(group[2], logprobs=np.nextafter(group[2].logprobs, np.float32(0)))
        return groups


@pytest.mark.parametrize("sampler_type", [ScriptedSampler, WaveringSampler])
def test_equal_answers_merge(
    sampler_type: type[ScriptedSampler], boards: InstanceSet, make_run: MakeRun
) -> None:
    run, state = make_run()
    sampler: Any = sampler_type(run.policy, boards)
    rollout = roll_out(run, sampler, boards, rollout_request(run, boards, seed=0), seconds={})
    rollout.rewards[1] = [1, 0, 1, 0.5]  # the same answers, paid otherwise
    batch = make_rollout_batch(run, state.params, rollout)
    plans = {0: 2} if sampler_type is ScriptedSampler else {0: 1, 2: 1}
    expected = {4 * group + index: n for group in range(8) for index, n in (plans | {1: 2}).items()}
    expected |= {5: 1, 7: 1}
    merged = {
        row: set(batch.copies[batch.groups.completions == row].tolist())
        for row in np.unique(batch.groups.completions)[1:].tolist()
    }
    assert merged == {row: {n} for row, n in expected.items()}
    lengths = [len(completion.token_ids) for completion in rollout.completions]
    assert batch.counts.sum() == sum(lengths)


def test_update_of_cut_answers_takes_no_step(boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run("grpo.mask_truncated=true")
    before = jax.tree.map(np.array, state.params)
    after, metrics = update(run, state, CutSampler(run.policy, boards, np.ones((8, 4), bool)))
    assert int(after.steps) == 0
    jax.tree.map(np.testing.assert_array_equal, after.params, before)
    assert (metrics["truncated_share"], metrics["zero_variance_share"]) == (1.0, 0.0)
    assert (metrics["loss"], metrics["grad_norm"]) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"rank": 8, "alpha": 64.0}])
def test_kl_holds_the_weights(
    lora: dict[str, float] | None, boards: InstanceSet, folder: Path, make_run: MakeRun
) -> None:
    distances, measured = [], []
    for coefficient in (1e-6, 3.0):
        adapters = [f"model.lora={lora}"] if lora else []
        run, state = make_run(f"grpo.kl_coefficient={coefficient}", *adapters)
        policy, sampler = run.policy, ScriptedSampler(run.policy, boards)
        _, reference = load_run_policy(folder, run.config)
        # A run with adapters keeps only these; their initial values give the base model.
        run = replace(run, reference=get_trainable(reference))
        divergences = []
        for seed in range(3):
            state, metrics = update(run, state, sampler, seed=seed)
            divergences.append(metrics["kl"])
        answers = [policy.encode_board(board) for board in boards]
        trained, initial = (
            np.concatenate(policy.logprobs(weights, answers))
            for weights in (state.params, reference)
        )
        distances.append(np.abs(trained - initial).mean())
        measured.append(divergences)
    free, held = measured
    assert free[0] == pytest.approx(0, abs=1e-6)  # the first update is of the reference
    assert 0 < free[1] < free[2]
    assert held[2] < free[2]
    assert distances[1] < 0.8 * distances[0]


def test_nonfinite_update_is_rejected_before_sync(boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run()
    sampler, norm = ScriptedSampler(run.policy, boards), state.params["norm"]
    broken = state.params | {"norm": jax.tree.map(lambda leaf: leaf * jnp.nan, norm)}
    state = replace(state, params=broken)
    with pytest.raises(UserError, match=r"must be finite, got .*loss nan.*learning_rate"):
        update(run, state, sampler)
    assert sampler.weights == {}
