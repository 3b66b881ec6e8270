"""Training Details: reward, zero gradients, clipping, entropy, lengths and learnability."""

from engineer.context.view import Block, Detail, StageView
from engineer.space import percent


def _full(view: StageView, detail: Detail) -> str:
    if not detail.training:
        return ""
    t = view.evidence.training
    if t is None:
        return "## Training details\nThere was no training before this validation."
    lines = [
        "## Training details",
        f"{t.updates} updates on {t.instances} instances. Mean reward {t.reward_first:.2f} at"
        f" first, {t.reward_last:.2f} at last. Groups without variance (they teach nothing):"
        f" {percent(t.groups_without_variance)}%. Clipped tokens: {percent(t.clip_share)}%."
        f" Entropy {t.entropy:.2f} nats a token. Mean answer {t.completion_length:.0f} tokens.",
    ]
    if t.learnability:
        values = ", ".join(
            f"{view.domain.called(group)} {value:.2f}" for group, value in t.learnability.items()
        )
        lines.append(f"Learnability p(1-p) in the training rollouts, at most 0.25: {values}.")
    return "\n".join(lines)


def _compact(view: StageView, detail: Detail) -> str:
    if not detail.training:
        return ""
    t = view.evidence.training
    if t is None:
        return "# training\nnone"
    learn = "".join(f" {group} {percent(value)}" for group, value in t.learnability.items())
    return (
        f"# training\nupdates {t.updates} instances {t.instances}"
        f" reward {percent(t.reward_first)} to {percent(t.reward_last)}"
        f" flat {percent(t.groups_without_variance)} clip {percent(t.clip_share)}"
        f" entropy {percent(t.entropy)} length {t.completion_length:.0f}"
        + (f"\nlearn{learn}" if learn else "")
    )


BLOCK = Block(_full, _compact)
