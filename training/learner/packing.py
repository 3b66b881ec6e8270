"""Completions packed into rows beside the prompts that they share, in few and static shapes.

A bundle holds the prompts of a few groups, each once, and rows as wide as the longest completion.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from training.learner.batching import round_up


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PackedGroups:
    """B bundles of G prompts of P tokens, and of R rows of W tokens that continue them.

    In its row a completion has one place per token: there stand the token that comes before it (the
    prompt's last for the first), as input, and the token itself, as target. So a prompt's last
    token is not among its P, and a completion's last is nowhere an input.
    """

    prompt_ids: Any  # int32 (B, G, P), padded on the right
    prompt_mask: Any  # bool (B, G, P), True on tokens, False on padding
    row_prompts: Any  # int32 (B, R), each row's prompt, 0 to G - 1
    input_ids: Any  # int32 (B, R, W)
    target_ids: Any  # int32 (B, R, W)
    positions: Any  # int32 (B, R, W), each input's index in the prompt and its completion joined
    completions: Any  # int32 (B, R, W), index of the completion in the rollout; -1 at padding

    @property
    def targets(self) -> Any:
        """The tokens to learn from, bool (B, R, W): all but padding."""
        return self.completions >= 0


def count_copies(completions: Sequence[Hashable], learned: np.ndarray) -> np.ndarray:
    """Count how often each completion is there: int32 (P, n), at the first of those that are equal.

    `completions` are P * n values, those of the first group first. Only those of one group, and to
    learn from, bool (P, n), are compared. 0 stands at the others and at those not to learn from.
    """
    copies = np.zeros(learned.shape, np.int32)
    per_group = learned.shape[1]
    for group, row in enumerate(learned):
        first: dict[Hashable, int] = {}
        for number in np.flatnonzero(row).tolist():
            same = first.setdefault(completions[group * per_group + number], number)
            copies[group, same] += 1
    return copies


def pack_groups(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    learned: np.ndarray,
    *,
    bundles: int,
    minibatches: int,
    micro_batch_bundles: int,
    width: int,
    bucket: int,
    pad_id: int,
) -> PackedGroups:
    """Pack the completions of P prompts into bundles, on the host.

    Args:
        prompts: Token ids of P prompts.
        completions: Token ids of P * n completions, those of the first prompt first.
        learned: Which completions to learn from, bool (P, n). The others are left out.
        bundles: The number of bundles in all. Each has room for P / bundles groups.
        minibatches: Groups with anything to learn from are dealt over so many equal parts of the
            bundles. Every part gets as many as any other, up to one.
        micro_batch_bundles: Bundles of a micro-batch. A part fills its first micro-batches, with
            about equally many rows in each bundle, and leaves empty those that it does not need.
        width: Tokens per row (W).
        bucket: Prompts are padded to a multiple of it.
        pad_id: The token at padding.

    Returns:
        NumPy arrays. The number of rows per bundle is the smallest multiple of P / bundles that
        holds every bundle's.

    Raises:
        ValueError: A prompt is empty, or a completion to learn from is longer than `width`.
    """
    lengths = np.array([len(tokens) for tokens in completions]).reshape(learned.shape)
    if not all(prompts):
        raise ValueError("a prompt has 0 tokens; allowed is at least 1")
    if (longest := lengths[learned].max(initial=0)) > width:
        raise ValueError(f"a completion has {longest} tokens; allowed are at most {width}")
    rows = {  # of the groups with anything to learn from
        group: [group * len(lengths[group]) + np.array(row) for row in of_group]
        for group in range(len(prompts))
        if (of_group := _first_fit(lengths[group] * learned[group], width))
    }
    capacity = len(prompts) // bundles
    layout: list[list[int]] = []  # the groups of each bundle
    for part in range(minibatches):
        sizes = {group: len(rows[group]) for group in list(rows)[part::minibatches]}
        used = round_up(-(-len(sizes) // capacity), micro_batch_bundles)
        unused = bundles // minibatches - used
        layout += _deal(sizes, used, capacity) + [[] for _ in range(unused)]
    most = max(sum(len(rows[group]) for group in bundle) for bundle in layout)
    packed = _padding(
        (bundles, capacity, round_up(max(len(prompt) - 1 for prompt in prompts) or 1, bucket)),
        (bundles, round_up(most or 1, capacity), width),
        pad_id,
    )
    for bundle, groups in enumerate(layout):
        places = [(place, row) for place, group in enumerate(groups) for row in rows[group]]
        for place, group in enumerate(groups):
            context = prompts[group][:-1]
            packed.prompt_ids[bundle, place, : len(context)] = context
            packed.prompt_mask[bundle, place, : len(context)] = True
        for number, (place, row) in enumerate(places):
            packed.row_prompts[bundle, number] = place
            _fill_row(packed, (bundle, number), prompts[groups[place]], completions, row)
    return packed


def place_on_targets(values: Sequence[np.ndarray], groups: PackedGroups) -> np.ndarray:
    """Put one value per completion token where the token is the target: float32 (B, R, W).

    `values` are those of all completions of the rollout, each float32 (tokens,); 0 at padding.
    """
    owners = np.ravel(groups.completions)
    # A completion's tokens stand in order, so a stable sort brings them together in order.
    order = np.argsort(owners, kind="stable")
    order = order[owners[order] >= 0]
    placed = np.zeros(owners.size, np.float32)
    placed[order] = np.concatenate(
        [np.zeros(0, np.float32), *(values[owner] for owner in np.unique(owners[order]))]
    )
    return placed.reshape(groups.completions.shape)


def _padding(prompts: tuple[int, ...], rows: tuple[int, ...], pad_id: int) -> PackedGroups:
    """Return groups of shapes (B, G, P) and (B, R, W) that hold nothing yet."""
    return PackedGroups(
        prompt_ids=np.full(prompts, pad_id, np.int32),
        prompt_mask=np.zeros(prompts, bool),
        row_prompts=np.zeros(rows[:2], np.int32),
        input_ids=np.full(rows, pad_id, np.int32),
        target_ids=np.full(rows, pad_id, np.int32),
        positions=np.zeros(rows, np.int32),
        completions=np.full(rows, -1, np.int32),
    )


def _fill_row(
    packed: PackedGroups,
    place: tuple[int, int],
    prompt: Sequence[int],
    completions: Sequence[Sequence[int]],
    members: np.ndarray,
) -> None:
    """Write a prompt's completions, by their indices, into the row (bundle, number)."""
    end = 0
    for member in members.tolist():
        tokens = completions[member]
        span = (*place, slice(end, end := end + len(tokens)))
        packed.input_ids[span] = [prompt[-1], *tokens[:-1]]
        packed.target_ids[span] = tokens
        packed.positions[span] = np.arange(len(tokens)) + len(prompt) - 1
        packed.completions[span] = member


def _first_fit(lengths: np.ndarray, width: int) -> list[list[int]]:
    """Put the indices of lengths above 0 into the first row with room, the longest first."""
    rows: list[list[int]] = []
    for index in np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)].tolist():
        free = (row for row in rows if lengths[row].sum() + lengths[index] <= width)
        row = next(free, None)
        if row is None:
            rows.append(row := [])
        row.append(index)
    return rows


def _deal(sizes: dict[int, int], bundles: int, capacity: int) -> list[list[int]]:
    """Deal groups over bundles of at most `capacity`, the largest first, to where is least."""
    dealt: list[list[int]] = [[] for _ in range(bundles)]
    for group in sorted(sizes, key=lambda group: -sizes[group]):
        free = [bundle for bundle in dealt if len(bundle) < capacity]
        min(free, key=lambda bundle: sum(sizes[other] for other in bundle)).append(group)
    return dealt
