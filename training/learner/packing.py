"""Packing of completions into rows that share prompts, with few static shapes.

A group is a prompt and its completions. A bundle contains the prompts of a few groups, each once,
and rows of the maximum completion length.
"""

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

    Each token of a completion has one position in its row: the target is the token itself, and the
    input is the token before it. The last token of a prompt is therefore an input in the rows and
    not part of `prompt_ids`, and the last token of a completion is never an input.
    """

    prompt_ids: Any  # int32 (B, G, P), padded on the right
    prompt_mask: Any  # bool (B, G, P), True on tokens, False on padding
    row_prompts: Any  # int32 (B, R), each row's prompt, 0 to G - 1
    input_ids: Any  # int32 (B, R, W)
    target_ids: Any  # int32 (B, R, W)
    positions: Any  # int32 (B, R, W), index of each input in prompt + completion
    completions: Any  # int32 (B, R, W), index of the completion in the rollout; -1 at padding

    @property
    def is_target(self) -> Any:
        """The tokens to learn from, bool (B, R, W); False at padding."""
        return self.completions >= 0


def count_copies(completions: Sequence[Hashable], mask: np.ndarray) -> np.ndarray:
    """Count identical completions within each group.

    Args:
        completions: P * n values, group by group.
        mask: bool (P, n), which completions to train on. The others are ignored.

    Returns:
        int32 (P, n): the number of copies at the first of identical completions, 0 elsewhere.
    """
    copies = np.zeros(mask.shape, np.int32)
    group_size = mask.shape[1]
    for group, row in enumerate(mask):
        first_index: dict[Hashable, int] = {}
        for index in np.flatnonzero(row).tolist():
            completion = completions[group * group_size + index]
            copies[group, first_index.setdefault(completion, index)] += 1
    return copies


def pack_groups(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    mask: np.ndarray,
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
        completions: Token ids of P * n completions, prompt by prompt.
        mask: Which completions to train on, bool (P, n). The others are left out.
        bundles: Total number of bundles. Each has room for P / bundles groups.
        minibatches: Number of minibatches, with equal numbers of bundles. Groups with completions
            to train on are distributed evenly over them.
        micro_batch_bundles: Bundles per micro-batch. A minibatch fills its first micro-batches,
            with a similar number of rows per bundle, and leaves the others empty.
        width: Tokens per row (W).
        bucket: Prompts are padded to a multiple of this.
        pad_id: Token id at padding.

    Returns:
        NumPy arrays. The number of rows per bundle is the smallest sufficient multiple of
        P / bundles.

    Raises:
        ValueError: A prompt is empty, or a completion to train on is longer than `width`.
    """
    lengths = np.array([len(tokens) for tokens in completions]).reshape(mask.shape)
    if not all(prompts):
        raise ValueError("prompts must not be empty")
    if (max_length := lengths[mask].max(initial=0)) > width:
        raise ValueError(f"completions must have at most {width} tokens, got {max_length}")
    rows = {}  # indices of the completions in each row of each group with any
    for group in range(len(prompts)):
        if packed_rows := _pack_first_fit(lengths[group] * mask[group], width):
            first_index = group * mask.shape[1]
            rows[group] = [first_index + np.array(members) for members in packed_rows]
    capacity = len(prompts) // bundles
    layout: list[list[int]] = []  # the groups of each bundle
    for minibatch in range(minibatches):
        sizes = {group: len(rows[group]) for group in list(rows)[minibatch::minibatches]}
        num_used = round_up(-(-len(sizes) // capacity), micro_batch_bundles)
        num_unused = bundles // minibatches - num_used
        layout += _assign_to_bundles(sizes, num_used, capacity) + [[] for _ in range(num_unused)]
    max_rows = max(sum(len(rows[group]) for group in bundle) for bundle in layout)
    packed_groups = _make_padding(
        (bundles, capacity, round_up(max(len(prompt) - 1 for prompt in prompts) or 1, bucket)),
        (bundles, round_up(max_rows or 1, capacity), width),
        pad_id,
    )
    for bundle, groups in enumerate(layout):
        row = 0
        for slot, group in enumerate(groups):
            prompt_inputs = prompts[group][:-1]
            packed_groups.prompt_ids[bundle, slot, : len(prompt_inputs)] = prompt_inputs
            packed_groups.prompt_mask[bundle, slot, : len(prompt_inputs)] = True
            for members in rows[group]:
                packed_groups.row_prompts[bundle, row] = slot
                _fill_row(packed_groups, (bundle, row), prompts[group], completions, members)
                row += 1
    return packed_groups


def scatter_to_targets(values: Sequence[np.ndarray], groups: PackedGroups) -> np.ndarray:
    """Arrange one value per completion token in the layout of the targets.

    `values` has one float32 array, (tokens,), per completion of the rollout. The result is float32
    (B, R, W), 0 at padding.
    """
    completions = np.ravel(groups.completions)
    # The tokens of a completion are in order, so a stable sort keeps their order.
    order = np.argsort(completions, kind="stable")
    order = order[completions[order] >= 0]
    target_values = np.zeros(completions.size, np.float32)
    target_values[order] = np.concatenate(
        [np.zeros(0, np.float32), *(values[index] for index in np.unique(completions[order]))]
    )
    return target_values.reshape(groups.completions.shape)


def _make_padding(prompts: tuple[int, ...], rows: tuple[int, ...], pad_id: int) -> PackedGroups:
    """Return empty groups with shapes (B, G, P) and (B, R, W)."""
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
    packed_groups: PackedGroups,
    index: tuple[int, int],
    prompt: Sequence[int],
    completions: Sequence[Sequence[int]],
    members: np.ndarray,
) -> None:
    """Write the completions `members` of a prompt into the row with index (bundle, row)."""
    end = 0
    for member in members.tolist():
        tokens = completions[member]
        span = (*index, slice(end, end := end + len(tokens)))
        packed_groups.input_ids[span] = [prompt[-1], *tokens[:-1]]
        packed_groups.target_ids[span] = tokens
        packed_groups.positions[span] = np.arange(len(tokens)) + len(prompt) - 1
        packed_groups.completions[span] = member


def _pack_first_fit(lengths: np.ndarray, width: int) -> list[list[int]]:
    """Assign lengths above 0 to rows by first-fit decreasing; return the indices per row."""
    rows: list[list[int]] = []
    for index in np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)].tolist():
        candidates = (row for row in rows if lengths[row].sum() + lengths[index] <= width)
        row = next(candidates, None)
        if row is None:
            rows.append(row := [])
        row.append(index)
    return rows


def _assign_to_bundles(sizes: dict[int, int], bundles: int, capacity: int) -> list[list[int]]:
    """Assign groups, largest first, to the bundle with the smallest total, up to `capacity`."""
    layout: list[list[int]] = [[] for _ in range(bundles)]
    for group in sorted(sizes, key=lambda group: -sizes[group]):
        open_bundles = [bundle for bundle in layout if len(bundle) < capacity]
        min(open_bundles, key=lambda bundle: sum(sizes[member] for member in bundle)).append(group)
    return layout
