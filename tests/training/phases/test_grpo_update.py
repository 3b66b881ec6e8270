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


def run_update(
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
    initial_logprobs = [scores.sum() for scores in policy.logprobs(state.params, answers)]
    seconds: dict[str, float] = {}
    for seed in range(2):
        step, work = seed * minibatches, UpdateWork()
        state, metrics = run_update(
            run, state, sampler, seed=seed, step=step, seconds=seconds, work=work
        )
    final_logprobs = [scores.sum() for scores in policy.logprobs(state.params, answers)]
    assert np.mean(final_logprobs) > np.mean(initial_logprobs) + 0.5
    assert int(state.steps) == 2 * minibatches
    assert metrics["zero_variance_share"] == 0.0
    assert metrics["valid_rate"] == metrics["optimal_rate"] == 0.5
    assert metrics["by_group"]["3"].learnability == 0.25
    assert metrics["by_group"]["3"].failures == {"parse_error": 16}
    assert work.generated_tokens == sum(2 * len(plan) + 2 * 4 for plan in sampler._plans)
    assert seconds.keys() == {"rollout", "verify", "update", "sync"}
    for name, tensor in policy.tensors(state.params):
        np.testing.assert_array_equal(sampler.weights[name], tensor)


def count_flops(
    shape: ScratchModelConfig,
    vocabulary: int,
    prompt_lengths: Sequence[int],
    answer_lengths: Sequence[Sequence[int]],
) -> float:
    """Count token by token: multiply and add for each weight, once forwards and twice backwards."""
    width, head_dim = shape.hidden_size, shape.head_dim
    query_width = shape.num_attention_heads * head_dim
    kv_width = shape.num_key_value_heads * head_dim
    num_weights = width * (2 * query_width + 2 * kv_width + 3 * shape.intermediate_size)
    total = 0
    for prompt_length, lengths in zip(prompt_lengths, answer_lengths, strict=True):
        for position in range(prompt_length):
            total += shape.num_hidden_layers * (num_weights + 2 * query_width * (position + 1))
        for answer_length in lengths:
            for position in range(prompt_length, prompt_length + answer_length):
                total += shape.num_hidden_layers * (num_weights + 2 * query_width * (position + 1))
                total += width * vocabulary
    return 2 * 3 * total


@pytest.mark.parametrize(
    ("schedule", "last_rate"), [("constant", 1.0), ("cosine", 0.1), ("linear", 0.1)]
)
def test_learning_rate_follows_its_schedule(schedule: str, last_rate: float) -> None:
    config = load(TINY, [f"grpo.schedule={schedule}", "grpo.warmup_updates=2"])
    assert config.grpo_steps == 8  # of which the first two rise
    optimizer = make_grpo_optimizer(config.grpo, config.grpo_steps)
    weights = {"kernel": jnp.ones(1)}
    state, rates = optimizer.init(weights), []
    for _ in range(config.grpo_steps):
        updates, state = optimizer.update({"kernel": jnp.full(1, 0.5)}, state, weights)
        rates.append(-float(updates["kernel"][0]) / config.grpo.learning_rate)
    assert rates[2] == pytest.approx(1.0, abs=1e-5)
    assert rates[config.grpo_steps - 1] == pytest.approx(last_rate, abs=1e-3)
    assert rates[:2] == pytest.approx([1 / 3, 2 / 3], abs=1e-4)
    assert all(later <= earlier + 1e-5 for earlier, later in pairwise(rates[2:]))
    if schedule == "linear":
        assert np.diff(rates[2:]) == pytest.approx(-0.18, abs=1e-3)


@pytest.mark.parametrize(("schedule", "rate"), [("linear", 1 - 0.9 * 7 / 11), ("constant", 1.0)])
def test_new_state_keeps_learning_rate(
    schedule: str, rate: float, boards: InstanceSet, make_run: MakeRun
) -> None:
    """The state has taken no step, as after a rollback. A constant rate warms up again."""
    run, state = make_run(f"grpo.schedule={schedule}", "stages.count=4", "stages.instances=24")
    assert run.config.grpo_steps == 12
    assert [run.optimizer_step(*position) for position in ((1, 1), (1, 3), (3, 2))] == [0, 2, 7]
    initial_params = jax.tree.map(np.array, state.params)
    state, _ = run_update(run, state, ScriptedSampler(run.policy, boards), step=7)
    pairs = zip(jax.tree.leaves(initial_params), jax.tree.leaves(state.params), strict=True)
    largest_change = max(float(np.abs(np.asarray(new) - old).max()) for old, new in pairs)
    # Adam's first step moves a weight by the rate, whatever its gradient is.
    assert largest_change / run.config.grpo.learning_rate == pytest.approx(rate, abs=2e-3)


class UnevenSampler(ScriptedSampler):
    """Answers some prompts always with the plan: their rewards are all equal."""

    def __init__(self, policy: Policy, boards: InstanceSet, equal_rows: set[int]) -> None:
        super().__init__(policy, boards)
        self._equal_prompts = {tuple(policy.encode_board(list(boards)[row])) for row in equal_rows}
        self._plans_by_prompt = {
            tuple(policy.encode_board(board)): plan
            for board, plan in zip(boards, self._plans, strict=True)
        }
        self.request_sizes: list[int] = []
        self.seeds: list[int] = []

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        self.request_sizes.append(len(request.prompts))
        self.seeds.append(request.seed)
        self._plans = [self._plans_by_prompt[tuple(prompt)] for prompt in request.prompts]
        groups = super().sample(request)
        return [
            [group[0]] * request.n if tuple(prompt) in self._equal_prompts else group
            for prompt, group in zip(request.prompts, groups, strict=True)
        ]


@pytest.mark.parametrize(
    ("num_rounds", "sizes", "num_replaced"), [(0, [8], 0), (1, [8, 4], 2), (3, [8, 4, 2], 4)]
)
def test_resample_replaces_boards(
    num_rounds: int, sizes: list[int], num_replaced: int, folder: Path, tmp_path: Path
) -> None:
    all_boards = draw_small_lakes(14)
    run, _ = open_run(folder, all_boards, tmp_path, f"grpo.resamples={num_rounds}")
    policy = run.policy
    spare_boards = all_boards.take(range(8, 14))
    order = np.random.default_rng([5, 1]).permutation(6) + 8
    equal_rows = {0, 2, 3, 7, *order[[1, 2]].tolist()}  # two of the first four spare ones
    other_results, first_results, second_results = [], [], []
    for results, seed in ((other_results, 6), (first_results, 5), (second_results, 5)):
        sampler = UnevenSampler(policy, all_boards, equal_rows)
        batch = all_boards.take(range(8))
        rollout = roll_out(run, sampler, batch, rollout_request(run, batch, seed=seed), seconds={})
        resampled, counts = resample(run, sampler, rollout, spare_boards, seed=seed, seconds={})  # type: ignore[arg-type]
        results += [sampler.seeds, resampled.prompts, resampled.rewards.tolist(), counts]
        results.append(sampler.request_sizes)
    assert first_results == second_results
    # No answers are drawn with the random numbers of others, in a round or in another update.
    seeds = first_results[0] + other_results[0]
    assert len(set(seeds)) == len(seeds)
    assert sampler.request_sizes == sizes
    assert counts == {"resampled_boards": sum(sizes) - 8, "replaced_boards": num_replaced}
    has_variance = resampled.rewards.std(axis=1) > 0
    assert has_variance.sum() == 4 + num_replaced
    # Kept groups stay in place; a replaced group has the board, answers and scores of its
    # replacement.
    for index, prompt in enumerate(resampled.prompts):
        assert list(prompt) == policy.encode_board(list(resampled.boards)[index])
        if index not in equal_rows:
            assert prompt == rollout.prompts[index]
        rows = slice(index * 4, index * 4 + 4)
        rewards = np.asarray(resampled.scores.valid[rows]) * 1.0
        np.testing.assert_array_equal(resampled.rewards[index] > 0, rewards)
        texts = {policy.decode(completion.token_ids) for completion in resampled.completions[rows]}
        assert sampler._plans_by_prompt[tuple(prompt)] in [
            list(completion.token_ids) for completion in resampled.completions[rows]
        ]
        assert len(texts) == 1 + has_variance[index]


class TruncatingSampler(ScriptedSampler):
    """Says of some of its answers that the token limit has cut them."""

    def __init__(self, policy: Policy, boards: InstanceSet, is_truncated: np.ndarray) -> None:
        super().__init__(policy, boards)
        self._is_truncated = is_truncated  # bool (prompts, completions)

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        groups = super().sample(request)
        return [
            [
                replace(completion, truncated=bool(is_truncated))
                for completion, is_truncated in zip(group, row, strict=True)
            ]
            for group, row in zip(groups, self._is_truncated, strict=True)
        ]


@pytest.mark.parametrize("masked", [False, True])
def test_mask_of_truncated_answers(masked: bool, boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run(f"grpo.mask_truncated={str(masked).lower()}")
    policy = run.policy
    is_truncated = np.zeros((8, 4), bool)
    is_truncated[0, 1] = is_truncated[2, 3] = is_truncated[3, [1, 3]] = is_truncated[4, 2] = True
    sampler: Any = TruncatingSampler(policy, boards, is_truncated)
    rollout = roll_out(run, sampler, boards, rollout_request(run, boards, seed=0), seconds={})
    batch = make_rollout_batch(run, state.params, rollout)
    completions = batch.groups.completions
    used_rows = set(np.unique(completions).tolist()) - {-1}
    copies_by_row = {row: set(batch.copies[completions == row].tolist()) for row in used_rows}
    expected_copies = {first: 2 for start in range(0, 32, 4) for first in (start, start + 1)}
    if masked:  # 1, 11, 13, 15 and 18 were cut
        del expected_copies[1], expected_copies[13]
        expected_copies |= {3: 1, 9: 1, 16: 1}
    assert copies_by_row == {row: {count} for row, count in expected_copies.items()}
    # Answers are compared with the mean of their whole group: rewards 1, 0, 1, 0.
    for row in used_rows:
        mask = completions == row
        assert batch.groups.target_ids[mask].tolist() == list(rollout.completions[row].token_ids)
        np.testing.assert_allclose(batch.advantages[mask], -1.0 if row % 2 else 1.0)
    lengths = [
        [len(rollout.completions[row].token_ids) for row in sorted(used_rows) if row // 4 == group]
        for group in range(8)
    ]
    prompt_lengths = [len(prompt) for prompt in rollout.prompts]
    work = UpdateWork()
    run_update(run, state, sampler, work=work)
    shape, vocabulary = run.config.model.scratch, len(policy.tokenizer)
    expected_flops = count_flops(shape, vocabulary, prompt_lengths, lengths)
    assert work.model_flops == pytest.approx(expected_flops, rel=1e-12)


class InexactSampler(ScriptedSampler):
    """Has other log-probabilities for the third answer to each prompt than for the first."""

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        groups = super().sample(request)
        for group in groups:
            group[2] = replace(group[2], logprobs=np.nextafter(group[2].logprobs, np.float32(0)))
        return groups


@pytest.mark.parametrize("sampler_type", [ScriptedSampler, InexactSampler])
def test_equal_answers_are_merged(
    sampler_type: type[ScriptedSampler], boards: InstanceSet, make_run: MakeRun
) -> None:
    run, state = make_run()
    sampler: Any = sampler_type(run.policy, boards)
    rollout = roll_out(run, sampler, boards, rollout_request(run, boards, seed=0), seconds={})
    rollout.rewards[1] = [1, 0, 1, 0.5]  # the same answers, paid otherwise
    batch = make_rollout_batch(run, state.params, rollout)
    copies = {0: 2, 1: 2} if sampler_type is ScriptedSampler else {0: 1, 1: 2, 2: 1}
    expected_copies = {4 * group + index: n for group in range(8) for index, n in copies.items()}
    expected_copies |= {5: 1, 7: 1}
    copies_by_row = {
        row: set(batch.copies[batch.groups.completions == row].tolist())
        for row in np.unique(batch.groups.completions)[1:].tolist()
    }
    assert copies_by_row == {row: {count} for row, count in expected_copies.items()}
    lengths = [len(completion.token_ids) for completion in rollout.completions]
    assert batch.counts.sum() == sum(lengths)


def test_truncated_answers_give_no_step(boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run("grpo.mask_truncated=true")
    initial_params = jax.tree.map(np.array, state.params)
    sampler = TruncatingSampler(run.policy, boards, np.ones((8, 4), bool))
    state, metrics = run_update(run, state, sampler)
    assert int(state.steps) == 0
    jax.tree.map(np.testing.assert_array_equal, state.params, initial_params)
    assert (metrics["truncated_share"], metrics["zero_variance_share"]) == (1.0, 0.0)
    assert (metrics["loss"], metrics["grad_norm"]) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"rank": 8, "alpha": 64.0}])
def test_kl_limits_weight_changes(
    lora: dict[str, float] | None, boards: InstanceSet, folder: Path, make_run: MakeRun
) -> None:
    distances, divergence_lists = [], []
    for coefficient in (1e-6, 3.0):
        adapters = [f"model.lora={lora}"] if lora else []
        run, state = make_run(f"grpo.kl_coefficient={coefficient}", *adapters)
        policy, sampler = run.policy, ScriptedSampler(run.policy, boards)
        _, reference = load_run_policy(folder, run.config)
        # A run with adapters keeps only these; their initial values give the base model.
        run = replace(run, reference=get_trainable(reference))
        divergences = []
        for seed in range(3):
            state, metrics = run_update(run, state, sampler, seed=seed)
            divergences.append(metrics["kl"])
        answers = [policy.encode_board(board) for board in boards]
        trained_logprobs, initial_logprobs = (
            np.concatenate(policy.logprobs(weights, answers))
            for weights in (state.params, reference)
        )
        distances.append(np.abs(trained_logprobs - initial_logprobs).mean())
        divergence_lists.append(divergences)
    free_divergences, held_divergences = divergence_lists
    assert free_divergences[0] == pytest.approx(0, abs=1e-6)  # the first update is of the reference
    assert 0 < free_divergences[1] < free_divergences[2]
    assert held_divergences[2] < free_divergences[2]
    assert distances[1] < 0.8 * distances[0]


def test_nonfinite_update_is_rejected_before_sync(boards: InstanceSet, make_run: MakeRun) -> None:
    run, state = make_run()
    sampler, norm = ScriptedSampler(run.policy, boards), state.params["norm"]
    nan_params = state.params | {"norm": jax.tree.map(lambda leaf: leaf * jnp.nan, norm)}
    state = replace(state, params=nan_params)
    with pytest.raises(UserError, match=r"must be finite, got .*loss nan.*learning_rate"):
        run_update(run, state, sampler)
    assert sampler.weights == {}
