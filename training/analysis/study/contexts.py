"""Check that a token limit truncates the contexts of all engineers of a study equally."""

from pathlib import Path

from engineer import DesignSettings, StageView
from engineer.context import Context, ContextTooLongError
from engineer.context.token_limit import CountTokens, estimate_tokens
from engineer.design import build_stage_context
from engineer.synthetic.longest_view import longest_view
from training.analysis.study.config import Study, StudyRun
from training.environments.catalogue import get_domain
from training.errors import UserError
from training.phases.stage_results import make_design_settings
from training.policy.huggingface import PACKAGED_MODELS, resolve_model
from training.schema import RunConfig
from training.schema.engineer_section import MODELS


def require_equal_contexts(study: Study) -> None:
    """Raise a `UserError` if truncation would affect the engineers of a study differently.

    Contexts with the same settings are truncated equally. With different settings, contexts must
    not be truncated at all, because a limit cuts more from contexts with more blocks.
    """
    count_tokens = make_token_counter(study.warm_start.model.pretrained)
    inputs: dict[str, tuple[DesignSettings, StageView]] = {}
    for engineer in study.config.engineers:
        run = StudyRun(engineer.name, study.config.seeds[0])
        config = study.make_run_config(run, Path("policy"))
        if config.engineer.base_kind in MODELS:
            inputs[engineer.name] = (make_design_settings(config), make_longest_view(config))
    if len({settings for settings, _ in inputs.values()}) < 2:
        return
    contexts = {
        name: build_stage_context(
            view, settings.model_copy(update={"max_context_tokens": None}), count_tokens
        )
        for name, (settings, view) in inputs.items()
    }
    for name, (settings, view) in inputs.items():
        max_tokens = settings.max_context_tokens
        if max_tokens is not None and contexts[name].tokens > max_tokens:
            num_tokens = max(context.tokens for context in contexts.values())
            raise UserError(
                f"{study.config.name}: engineer.max_context_tokens is {max_tokens}; it must be at"
                f" least {num_tokens}, because {name} would lose"
                f" {_describe_cuts(view, settings, count_tokens)} and other engineers less"
            )


def make_longest_view(config: RunConfig) -> StageView:
    """Return the longest possible view of an engineer in a run on the lake."""
    grid = config.validation_grid
    size = max((*config.lake.bounds.sizes, *grid.sizes))
    validation_answers = len(grid.hole_ratios) * len(grid.wait_ratios) * grid.per_cell
    training_answers = config.stages.instances * config.grpo.completions
    return longest_view(
        get_domain(config),
        config.lake.initial,
        config.stages.count,
        [" ".join("F" * size)] * size,
        answers=(validation_answers, training_answers),
        reasoning_tokens=config.engineer.reasoning_tokens,
        can_roll_back=config.engineer.gate.rollback != "off",
    )


def make_token_counter(pretrained: str | None) -> CountTokens:
    """Return the token counter of a model, or an estimate if its tokenizer is not available."""
    if pretrained is None or not (pretrained in PACKAGED_MODELS or Path(pretrained).is_dir()):
        return estimate_tokens
    from training.policy.tokenizer import load_tokenizer  # imports transformers

    tokenizer = load_tokenizer(resolve_model(pretrained))
    return lambda text: len(tokenizer(text, add_special_tokens=False).input_ids)


def _describe_cuts(view: StageView, settings: DesignSettings, count_tokens: CountTokens) -> str:
    try:
        context: Context = build_stage_context(view, settings, count_tokens)
    except ContextTooLongError:
        return "everything that can be cut"
    return ", ".join(context.cut)
