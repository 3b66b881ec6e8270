"""Learning to design: GRPO on the policy's own designs, scored by the stage's measured atlas.

In style compact, simultaneous imitation of the rule preserves the format of designs. In style full,
policies learn from rewards alone, on their whole text including reasoning.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from engineer import Costs, DesignAtlas, StageView, StepLimit, review_answer
from engineer.context import ContextTooLongError
from engineer.design import build_stage_context
from training.errors import UserError
from training.learner.batching import split_rows
from training.learner.grpo_step import get_schedule_step, make_grpo_step
from training.learner.optimizer import LearnerState
from training.phases.atlas import get_or_measure_atlas
from training.phases.grpo_update import (
    SKIPPED_STEP_METRICS,
    make_grpo_batch,
    require_finite_metrics,
)
from training.phases.rehearsal import Rehearsal
from training.phases.stage_results import StageResult, make_design_settings, make_stage_view
from training.phases.weight_sync import check_rollout
from training.run.active_run import ActiveRun
from training.run.progress import track
from training.run.records import DesignUpdateRecord, make_record, six_digits
from training.sampling.sampler import Sampler, SamplingRequest
from training.schema import RehearsalConfig

MAX_LEARNABILITY = 0.25
"""The maximum of p(1-p)."""


def learn_to_design(
    run: ActiveRun, sampler: Sampler, state: LearnerState, results: Sequence[StageResult]
) -> LearnerState:
    """Take the updates of `engineer.learning` after the last of `results`, and log them.

    The caller must save the returned state immediately, so that a resumed run does not take the
    updates twice. The engine must hold the weights of `state`, whose buffers are donated. On
    return, it holds the new weights.

    Raises:
        UserError: The context exceeds the limit even after truncation.
    """
    engineer, learning = run.config.engineer, run.config.engineer.learning
    if learning is None:
        return state
    stage, fsdp = results[-1].stage, run.config.model.mesh.fsdp
    atlas = get_or_measure_atlas(run, sampler, state, results).atlas
    view = make_stage_view(run.config, results, stage)
    settings = make_design_settings(run.config)
    prompts = _encode_context(run, results)
    rehearsal_config = run.config.rehearsal or RehearsalConfig()
    rehearsal = Rehearsal(run, rehearsal_config.contexts) if engineer.style == "compact" else None
    take_step = make_grpo_step(
        run.policy.graphdef,
        run.config.grpo.model_copy(update={"completions": learning.designs}),
        rehearsal_config if rehearsal else None,
        run.config.sampling.temperature,
        run.config.grpo_steps,
    )
    # Use the learning rate of the run's next step; these updates don't count as steps of the run.
    schedule_step = get_schedule_step(run.config.grpo, run.optimizer_step(stage + 1, 1))
    records = []
    sampler.drop_cache()  # as in a run that resumes here
    with (
        run.log_duration("learn_to_design", stage),
        track(f"stage {stage}: learn to design", learning.updates, unit="updates") as advance,
    ):
        for number in range(1, learning.updates + 1):
            request = SamplingRequest(
                prompts=prompts,
                n=learning.designs,
                temperature=run.config.sampling.temperature,
                max_tokens=engineer.text_tokens,
                stop_token_ids=run.policy.stop_ids,
                seed=run.seed("design_learning", stage, number),
            )
            groups = sampler.sample(request)
            completions = [completion for group in groups for completion in group]
            texts = [run.policy.decode(design.token_ids, prompts[0]) for design in completions]
            scores = [score_design(text, view, settings.step_limit, atlas) for text in texts]
            rewards = np.array([score or 0.0 for score in scores], np.float32).reshape(fsdp, -1)
            batch = make_grpo_batch(
                run,
                state.params,
                prompts,
                completions,
                rewards,
                width=engineer.text_tokens,
                bundles=fsdp,
                minibatches=1,
            )
            metrics: Mapping[str, Any] = SKIPPED_STEP_METRICS
            if rehearsal or batch.groups.is_target.any():
                examples = rehearsal and rehearsal.batch(
                    "design_learning", stage, run.config.updates_per_stage + number
                )
                state, metrics = take_step(state, split_rows(batch, 1), examples, schedule_step)
            require_finite_metrics(jax.device_get(metrics))
            sampler.sync(run.policy.tensors(state.params))
            check_rollout(run.config.sampling, float(metrics["sampler_gap"]))
            usable_scores = [score for score in scores if score is not None]
            record = make_record(
                DesignUpdateRecord,
                stage=stage,
                update=number,
                designs=len(scores),
                usable=len(usable_scores),
                reward_mean=six_digits(rewards.mean()),
                reward_best=six_digits(max(usable_scores, default=0.0)),
                tokens=sum(len(completion.token_ids) for completion in completions),
                atlas_rollouts=atlas.rollouts if number == 1 else 0,
                rehearsed_designs=rehearsal_config.contexts if rehearsal else 0,
                rehearsal_loss=six_digits(metrics["rehearsal_loss"]) if rehearsal else None,
                grad_norm=six_digits(metrics["grad_norm"]),
                sampler_gap=six_digits(metrics["sampler_gap"]),
            )
            records.append(record)
            advance(number, f"reward {record.reward_mean:.3f}  usable {len(usable_scores)}")
    run.directory.stage(stage).design_learning.write(records)
    return state


def _encode_context(run: ActiveRun, results: Sequence[StageResult]) -> list[list[int]]:
    """Return the token ids of the context after the last of `results`, once per fsdp device.

    With reasoning, this is the prompt of the first call of a design.
    """
    view = make_stage_view(run.config, results, results[-1].stage)
    settings = make_design_settings(run.config)
    try:
        context = build_stage_context(view, settings, run.policy.count_tokens)
    except ContextTooLongError as error:
        raise UserError(f"engineer.max_context_tokens: {error}") from error
    thinking = run.config.engineer.reasoning_tokens > 0
    prompt = run.policy.encode_prompt(context.text, thinking=thinking)
    return [prompt] * run.config.model.mesh.fsdp


def score_design(
    text: str, view: StageView, step_limit: StepLimit, atlas: DesignAtlas
) -> float | None:
    """Return the score of a design: the expected mean p(1-p), divided by its maximum.

    The result lies in [0, 1]. It is None if the review rejects the answer, or the atlas has no
    boards of the requested cells.
    """
    review = review_answer(text, view.current, view.domain, step_limit)
    if review.configuration is None:
        return None
    learnability = atlas.expected_learnability(review.configuration)
    return None if learnability is None else learnability / MAX_LEARNABILITY


def compute_learning_cost(updates: Sequence[DesignUpdateRecord]) -> Costs:
    """Return the total cost of a stage's updates."""
    return Costs(
        engineer_tokens=sum(update.tokens for update in updates),
        probe_rollouts=sum(update.atlas_rollouts for update in updates),
        rehearsed_designs=sum(update.rehearsed_designs for update in updates),
    )
