"""The page of prompts, written by the code that `jaxlake run` uses."""

from dataclasses import replace

_PAGE = """\
# Prompts

The prompts that `jaxlake run` writes, without the chat template around them. The policy's is in
`jaxlake/language/prompts.py`, the engineer's in `engineer/context/blocks.py`.

## The policy

`prompt.style: reasoned` with two agents:

```text
{policy}```

## The engineer, after two stages

`engineer.style: full` with the blocks and limits of `configs/paper.yaml`, for four of its eight map
sizes. The numbers come from a simulated run (`engineer.synthetic.simulate_run`). Unlike real runs,
it has no statistics of the boards, and no rates by hole ratio and waits.

```text
{engineer}
```
"""
_SEED = 1316  # larger boards are solved less often, and rewards rise
_SIZES = (3, 4, 5, 6)
_BOARD = ("S F F g", "F H F F", "F F H F", "s F F G")
_ANSWERS = (
    "<answer>\nAgent 0: RIGHT RIGHT DOWN DOWN\nAgent 1: UP UP\n</answer>",
    "<answer>\nAgent 0: DOWN DOWN RIGHT\nAgent 1: UP RIGHT\n</answer>",
    "Agent 0 moves right until column 3. Agent 1 has to wait, because",
)


def make_prompts_page() -> str:
    """Return the page; it imports `training` and so needs its dependencies."""
    import jax
    import numpy as np

    from engineer.design import build_stage_context
    from engineer.lake import lake_domain
    from engineer.synthetic import simulate_run
    from jaxlake import parse_grid, solve
    from jaxlake.language.prompts import render
    from tools.docs_site.pages import ROOT
    from training.phases.stage_results import make_design_settings, make_stage_result
    from training.phases.validate import SampledAnswer, judge_answers
    from training.rollout.instances import InstanceSet
    from training.schema import load

    config = load(ROOT / "configs" / "paper.yaml")
    board = parse_grid(_BOARD, max_size=len(_BOARD), max_agents=2)
    boards = jax.tree.map(lambda leaf: np.stack([leaf] * len(_ANSWERS)), (board, solve(board)))
    answers = [SampledAnswer(text, 0, truncated=False) for text in _ANSWERS]
    failed_answers = judge_answers(config, InstanceSet(*boards), answers)
    cases = make_stage_result(config, 2, None, failed_answers, (), {}).evidence.failed_cases

    domain = lake_domain(config.lake.bounds.model_copy(update={"sizes": _SIZES}))
    view = simulate_run(np.random.default_rng(_SEED), domain, stages=2)[-1]
    view = replace(
        view,
        evidence=view.evidence.model_copy(update={"failed_cases": cases}),
        stages_left=1,
        reasoning_tokens=config.engineer.reasoning_tokens,
    )
    context = build_stage_context(view, make_design_settings(config))
    return _PAGE.format(policy=render(board, "reasoned"), engineer=context.text)
