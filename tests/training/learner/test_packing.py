"""Completions packed into rows behind shared prompts: every token is in its place."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from training.learner import grpo
from training.learner.batching import Sequences, pad_sequences
from training.learner.packing import PackedGroups, count_copies, pack_groups, scatter_to_targets
from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder

CONFIG = DecoderConfig(40, 24, 40, 2, 4, 2, head_dim=8, initializer_range=0.3)
NUM_PROMPTS, NUM_COMPLETIONS, ROW_WIDTH = 8, 4, 12


@dataclasses.dataclass
class Rollout:
    """Random prompts and completions with their rollout data."""

    prompts: list[list[int]]
    completions: list[list[int]]
    logprobs: list[np.ndarray]
    is_trained: np.ndarray
    advantages: np.ndarray

    sources: np.ndarray | None = None  # int (P * n,), each one's source; None: no copies

    @property
    def copies(self) -> np.ndarray:
        """Number of copies per completion, counted at the first one, int32 (P, n)."""
        if self.sources is None:
            return self.is_trained.astype(np.int32)
        return count_copies(self.sources.tolist(), self.is_trained)

    def copy_sources(self, sources: np.ndarray) -> None:
        """Make each completion a copy of one of its group, int (P * n,), or of itself."""
        self.sources = sources
        self.completions = [self.completions[i] for i in sources]
        self.logprobs = [self.logprobs[i] for i in sources]
        self.advantages = self.advantages.reshape(-1)[sources].reshape(self.is_trained.shape)

    def pack(self, **options: Any) -> PackedGroups:
        defaults = {"bundles": 4, "minibatches": 1, "micro_batch_bundles": 1, "width": ROW_WIDTH}
        options = {**defaults, "bucket": 5, "pad_id": 0, **options}
        return pack_groups(self.prompts, self.completions, self.copies > 0, **options)

    def make_batch(self, **options: Any) -> grpo.GrpoBatch:
        groups = self.pack(**options)
        flat_advantages = np.append(self.advantages.reshape(-1), 0)
        return grpo.GrpoBatch(
            groups=groups,
            sampler_logprobs=scatter_to_targets(self.logprobs, groups),
            old_logprobs=np.full(groups.completions.shape, np.nan, np.float32),
            advantages=flat_advantages[groups.completions].astype(np.float32),
            copies=np.append(self.copies, 0)[groups.completions].astype(np.float32),
        )

    def pad_separately(self) -> Sequences:
        """Return the completions to learn from, each with its own prompt."""
        indices = np.flatnonzero(self.is_trained)
        prompts = [self.prompts[i // NUM_COMPLETIONS] for i in indices]
        return pad_sequences(prompts, [self.completions[i] for i in indices], bucket=1, pad_id=0)


def make_rollout(seed: int) -> Rollout:
    """Some completions fill a row, some are left out, two groups have nothing to learn from."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, ROW_WIDTH + 1, NUM_PROMPTS * NUM_COMPLETIONS)
    lengths[rng.integers(len(lengths), size=3)] = ROW_WIDTH
    is_trained = rng.random((NUM_PROMPTS, NUM_COMPLETIONS)) < 0.85
    is_trained[rng.choice(NUM_PROMPTS, 2, replace=False)] = False
    prompt_lengths = (1, *rng.integers(2, 12, NUM_PROMPTS - 1))
    return Rollout(
        prompts=[rng.integers(0, 40, n).tolist() for n in prompt_lengths],
        completions=[rng.integers(0, 40, n).tolist() for n in lengths],
        logprobs=[rng.normal(-3, 1, n).astype(np.float32) for n in lengths],
        is_trained=is_trained,
        advantages=rng.normal(size=is_trained.shape).astype(np.float32),
    )


def draw_sources(seed: int) -> np.ndarray:
    """Return the source of each completion: itself or an earlier one of its group, int (P * n,)."""
    is_source = np.random.default_rng(seed).random((NUM_PROMPTS, NUM_COMPLETIONS)) < 0.5
    is_source[:, 0] = True
    indices = np.arange(is_source.size).reshape(is_source.shape)
    return np.maximum.accumulate(np.where(is_source, indices, 0), axis=1).reshape(-1)


def make_random_model(config: DecoderConfig, **options: Any) -> tuple[nnx.GraphDef, Any]:
    """Norms too are random: ones would hide a norm in the wrong place."""
    model = Decoder(config, rngs=nnx.Rngs(3), **options)
    for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        if "norm" in str(path[-1]):
            leaf[...] += 0.3 * jax.random.normal(jax.random.key(4), leaf.shape)
    return nnx.split(model)


def test_copies_count_at_their_first_occurrence() -> None:
    completions = ["a", "b", "a", "a", "b", "a", "b", "b", "c", "c", "c", "d"]
    is_trained = np.ones((3, 4), bool)
    is_trained[1, 2], is_trained[2, 0] = False, False
    copies = count_copies(completions, is_trained)
    np.testing.assert_array_equal(copies, [[3, 1, 0, 0], [2, 1, 0, 0], [0, 2, 0, 1]])


@pytest.mark.parametrize("bundles", [1, 2, 4, 8])
def test_learned_tokens_have_one_position(bundles: int) -> None:
    rollout = make_rollout(2)
    groups = rollout.pack(bundles=bundles)
    for index, tokens in enumerate(rollout.completions):
        mask = groups.completions == index
        if not rollout.is_trained.reshape(-1)[index]:
            assert not mask.any()
            continue
        np.testing.assert_array_equal(groups.target_ids[mask], tokens)
        bundle_indices, row_indices, columns = np.nonzero(mask)
        assert len({*zip(bundle_indices, row_indices, strict=True)}) == 1
        np.testing.assert_array_equal(np.diff(columns), 1)
        prompt = rollout.prompts[index // NUM_COMPLETIONS]
        prompt_index = (bundle_indices[0], groups.row_prompts[bundle_indices[0], row_indices[0]])
        context = groups.prompt_ids[prompt_index][groups.prompt_mask[prompt_index]]
        np.testing.assert_array_equal([*context, *groups.input_ids[mask]], [*prompt, *tokens[:-1]])
        np.testing.assert_array_equal(groups.positions[mask], len(context) + np.arange(len(tokens)))
    values = scatter_to_targets(rollout.logprobs, groups)
    for index in np.flatnonzero(rollout.is_trained):
        np.testing.assert_array_equal(values[groups.completions == index], rollout.logprobs[index])
    assert not values[~groups.is_target].any()


def test_minibatches_have_equally_many_groups() -> None:
    rollout = make_rollout(3)
    groups = rollout.pack(bundles=8, minibatches=2, micro_batch_bundles=2)
    is_used = groups.prompt_mask.any(axis=2) | groups.is_target.any(axis=(1, 2))[:, None]
    is_filled = groups.is_target.any(axis=(1, 2)).reshape(2, 2, 2)  # minibatch, micro-batch, bundle
    assert is_used.sum() == is_filled.sum() == np.count_nonzero(rollout.is_trained.any(axis=1)) == 6
    np.testing.assert_array_equal(is_filled.sum(axis=(1, 2)), 3)
    np.testing.assert_array_equal(is_filled[:, 0], True)


def list_completions_by_row(groups: PackedGroups) -> list[list[list[int]]]:
    """Return the completions of each row that is not empty, in order, per bundle."""
    rows = [
        [list(dict.fromkeys(row[row >= 0].tolist())) for row in completion]
        for completion in groups.completions
    ]
    return [[row for row in bundle if row] for bundle in rows]


def test_packing_is_first_fit_decreasing() -> None:
    """A row has room for 12 tokens: 9 and 3, 7 and 5, 6 and 5; 12; 4, 4 and 4; 1."""
    rollout = make_rollout(0)
    rollout.prompts = rollout.prompts[:2]
    rollout.completions = [[1] * n for n in (5, 9, 3, 6, 7, 5)]
    rollout.completions += [[2] * n for n in (4, 12, 4, 4, 8, 1)]
    rollout.is_trained = np.ones((2, 6), bool)
    rollout.is_trained[1, 4] = False
    expected_rows = [[1, 2], [4, 0], [3, 5], [7], [6, 8, 9], [11]]
    assert list_completions_by_row(rollout.pack(bundles=1)) == [expected_rows]


def test_packing_rejects_unpackable_batches() -> None:
    rollout = make_rollout(0)
    with pytest.raises(ValueError, match="completions must have at most 11 tokens, got 12"):
        rollout.pack(width=11)
    rollout.prompts[3] = []
    with pytest.raises(ValueError, match="prompts must not be empty"):
        rollout.pack()


def test_packing_without_learnable_tokens_has_no_targets() -> None:
    rollout = make_rollout(0)
    rollout.is_trained[:] = False
    groups = rollout.pack()
    assert not groups.is_target.any()
    assert not scatter_to_targets(rollout.logprobs, groups).any()
