"""Contexts are cut in a fixed order until they fit the token limit."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engineer import BLOCKS, BlockName, ContextStyle, FailedCase, StageView, build_context
from engineer.context import STYLES, ContextTooLongError
from engineer.context.token_limit import estimate_tokens
from engineer.evidence import GroupEvidence, Tally


@pytest.fixture
def full_view(view: StageView) -> StageView:
    """Return a view with every part that can be cut."""
    cases = tuple(
        FailedCase(group="4", failure="hole", time=n, completion=f"RIGHT {n}") for n in range(6)
    )
    history = [view.history[0].model_copy(update={"stage": n}) for n in range(1, 9)]
    assert view.evidence.training is not None
    rollouts = {"3": Tally(count=8, valid=3, failures={"hole": 5})}
    training = view.evidence.training.model_copy(update={"rollouts": rollouts})
    return replace(
        view,
        evidence=view.evidence.model_copy(update={"failed_cases": cases, "training": training}),
        history=[*history, view.history[1].model_copy(update={"stage": 9})],
        notice="The valid rate fell.",
        refusal="3.hole_ratio is missing",
    )


Cut = tuple[str | None, StageView, tuple[BlockName, ...]]


def cut_step_by_step(view: StageView, blocks: tuple[BlockName, ...]) -> Iterator[Cut]:
    """Yield the views and blocks of successive cuts, made without a budget."""
    yield None, view, blocks

    def replace_evidence(**changes: object) -> StageView:
        return replace(view, evidence=view.evidence.model_copy(update=changes))

    def remove_block(name: BlockName) -> tuple[BlockName, ...]:
        return tuple(block for block in blocks if block != name)

    for count in (3, 2, 1, 0):
        view = replace_evidence(failed_cases=view.evidence.failed_cases[:count])
        yield "failed cases, one at a time", view, blocks
    for count in (5, 4, 3, 2, 1):
        view = replace(view, history=view.history[-count:])
        yield "history beyond the latest stage, oldest first", view, blocks
    blocks = remove_block("summary")
    yield "the summary", view, blocks
    blocks = remove_block("environment_statistics")
    yield "environment statistics", view, blocks
    validation = {
        group: GroupEvidence(**tally.model_dump(exclude={"slices"}))
        for group, tally in view.evidence.validation.items()
    }
    view = replace_evidence(validation=validation)
    yield "rates by slices", view, blocks
    blocks = remove_block("training_details")
    blocks = remove_block("rl_details")
    yield "training details", view, blocks
    blocks = remove_block("guideline")
    yield "the guideline", view, blocks
    blocks = remove_block("history")
    yield "the rest of the history", view, blocks
    view = replace(view, refusal="")
    yield "why the last answer was refused", view, blocks


def expected_texts(
    view: StageView, blocks: tuple[BlockName, ...], style: ContextStyle
) -> list[tuple[str, tuple[str, ...]]]:
    """Return all texts that a budget can give, longest first, with the names of their cuts."""
    texts: list[tuple[str, tuple[str, ...]]] = []
    for name, cut_view, cut_blocks in cut_step_by_step(view, blocks):
        text = build_context(cut_view, blocks=cut_blocks, style=style).text
        if not texts:
            texts.append((text, ()))
        elif text != texts[-1][0]:
            cuts = texts[-1][1]
            texts.append((text, cuts if cuts[-1:] == (name,) else (*cuts, str(name))))
    return texts


def count_words(text: str) -> int:
    return len(text.split())


TOKEN_COUNTERS: list[Callable[[str], int]] = [len, estimate_tokens, count_words]


@pytest.mark.parametrize("count_tokens", TOKEN_COUNTERS)
@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_build_context_returns_longest_fitting_text(full_view, style, count_tokens, data):
    blocks = tuple(data.draw(st.lists(st.sampled_from(BLOCKS), unique=True)))
    texts = expected_texts(full_view, blocks, style)
    min_tokens, full_tokens = (count_tokens(texts[index][0]) for index in (-1, 0))
    max_tokens = data.draw(st.integers(min_tokens, full_tokens + 10))
    context = build_context(
        full_view, blocks=blocks, style=style, max_tokens=max_tokens, count_tokens=count_tokens
    )
    fitting_texts = [(text, cut) for text, cut in texts if count_tokens(text) <= max_tokens]
    assert (context.text, context.cut) == fitting_texts[0]
    assert context.tokens == count_tokens(context.text) <= max_tokens


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("count_tokens", TOKEN_COUNTERS)
def test_build_context_rejects_too_small_budget(full_view, style, count_tokens):
    min_tokens = count_tokens(expected_texts(full_view, BLOCKS, style)[-1][0])
    for max_tokens in (0, 1, min_tokens - 1):
        message = rf"max_tokens: got {max_tokens}, .* alone need {min_tokens}$"
        with pytest.raises(ContextTooLongError, match=message):
            build_context(full_view, style=style, max_tokens=max_tokens, count_tokens=count_tokens)
