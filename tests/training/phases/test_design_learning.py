"""Learning to design: answers with a higher score in the atlas become more probable."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from engineer import AtlasCell, Costs, DesignAtlas, StepLimit
from tests.paths import TINY
from tests.training.fake_run import KilledError, interrupt_at, raise_killed, without_vllm
from training import loop
from training.environments.catalogue import get_domain
from training.learner.grpo_step import make_grpo_optimizer
from training.learner.optimizer import initial_state
from training.phases import design_learning as phase
from training.phases.design_learning import compute_learning_cost, learn_to_design, score_design
from training.phases.rehearsal import make_design_examples
from training.policy.policy import load_run_policy, write_random_policy
from training.run.active_run import ActiveRun
from training.run.checkpoints import Checkpoints, RunProgress
from training.run.directory import RunDirectory
from training.run.records import DesignUpdateRecord
from training.sampling.sampler import Completion, SamplingRequest
from training.schema import RunConfig

LEARNING = {"updates": 3, "designs": 8}
CONTEXT = "stage first\nn3 valid5 goal none ? ? data5 ? hole0 ? wait0 ?\nedits\n"


def make_config(**settings: Any) -> RunConfig:
    tree = yaml.safe_load(TINY.read_text())
    is_text_model = settings.get("style") == "full"
    defaults = {"kind": "checkpoint", "style": "compact", "learning": LEARNING}
    tree["engineer"] |= {"atlas": {"levels": 2, "boards_per_cell": 4, "answers": 4}}
    tree["engineer"] |= defaults | settings
    tree["grpo"]["learning_rate"] = 3e-3
    if is_text_model:
        tree["sampling"]["max_model_len"] = 4096
    else:
        tree["rehearsal"] = {"contexts": 4, "weight": 0.1}
    return RunConfig.model_validate(tree)


def make_atlas(config: RunConfig, count_valid: Any) -> DesignAtlas:
    """Return an atlas in which `count_valid(group, hole_ratio)` of 4 answers are valid."""
    groups = get_domain(config).space.groups
    cells = [
        AtlasCell(
            group=group,
            knobs={"hole_ratio": hole_ratio, "wait_ratio": wait_ratio},
            boards=tuple(10 * (k == count_valid(group, hole_ratio)) for k in range(5)),
        )
        for group, hole_ratio, wait_ratio in product(groups, (0.0, 1.0), (0.0, 1.0))
    ]
    return DesignAtlas(cells=tuple(cells))


def make_edits(config: RunConfig, sign: str) -> str:
    return "\n".join(f"n{group} = {sign} =" for group in get_domain(config).space.groups)


def test_design_reward_equals_the_atlas_learnability():
    config = make_config()
    view = SimpleNamespace(current=config.environment.initial, domain=get_domain(config))
    atlas = make_atlas(config, lambda group, hole_ratio: 2)
    # Of 4 answers 2 are valid: k(n-k) / n(n-1) = 1/3 of the boards' pairs differ.
    score = score_design(make_edits(config, "+"), view, StepLimit(), atlas)
    assert score == pytest.approx(4 * 4 / 12)
    counts = dict.fromkeys(("stage", "update", "designs", "usable", "tokens"), 1)
    counts |= dict.fromkeys(("atlas_rollouts", "rehearsed_designs"), 1)
    floats = dict.fromkeys(("rehearsal_loss", "grad_norm", "sampler_gap"), 0.1)
    record = DesignUpdateRecord(**counts, **floats, reward_mean=score, reward_best=score)
    assert record.reward_best == score  # above 1, for the estimate has no bias
    unsolved_atlas = make_atlas(config, lambda group, hole_ratio: 0)
    assert score_design(make_edits(config, "+"), view, StepLimit(), unsolved_atlas) == 0.0
    hole_atlas = make_atlas(config, lambda group, hole_ratio: 2 if hole_ratio else 0)
    scores = [
        score_design(make_edits(config, sign), view, StepLimit(), hole_atlas) for sign in "-=+"
    ]
    assert scores[0] < scores[1] < scores[2]
    assert score_design("n3 up up up", view, StepLimit(), atlas) is None
    empty_atlas = DesignAtlas(
        cells=tuple(cell.model_copy(update={"boards": (0,) * 5}) for cell in atlas.cells)
    )
    assert score_design(make_edits(config, "+"), view, StepLimit(), empty_atlas) is None


def make_design_text(config: RunConfig, hole_ratio: float) -> str:
    """Return an answer of a text model: some reasoning and a configuration."""
    knobs = {"data_ratio": 0.5, "hole_ratio": hole_ratio, "wait_ratio": 0.1}
    return "Diagnosis: easy.\n" + json.dumps(dict.fromkeys(get_domain(config).space.groups, knobs))


class ScriptedDesigner:
    """Answers half of each group with harder boards, the other half with easier ones."""

    def __init__(self, policy: Any, texts: list[str]) -> None:
        self._answers = [tuple(policy.encode_answer(text)) for text in texts]
        self.calls: list[SamplingRequest] = []
        self.weights: dict[str, np.ndarray] = {}

    def sample(self, request: SamplingRequest) -> list[list[Completion]]:
        self.calls.append(request)
        answers = (self._answers * request.n)[: request.n]
        return [
            [Completion(ids, np.full(len(ids), -3, np.float32), truncated=False) for ids in answers]
            for _ in request.prompts
        ]

    def sync(self, tensors: Any) -> None:
        self.weights = {name: np.asarray(tensor) for name, tensor in tensors}

    def drop_cache(self) -> None:
        pass


@pytest.fixture
def learning_run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any, DesignAtlas]:
    """A run whose engineer is shown `CONTEXT`, its weights, and an atlas that prefers holes."""
    config, folder = make_config(**getattr(request, "param", {})), tmp_path / "initial"
    designs = [text for example in make_design_examples(config, 200) for text in example]
    texts = [*designs, CONTEXT, *(make_design_text(config, ratio) for ratio in (0.0, 0.1))]
    write_random_policy(folder, config.model, texts, max_len=512, seed=0)
    policy, params = load_run_policy(folder, config)
    run: Any = ActiveRun(config, RunDirectory(tmp_path / "run"), None, policy, None)
    run.directory.path.mkdir()
    atlas = make_atlas(config, lambda group, hole_ratio: 2 if hole_ratio else 0)
    view = SimpleNamespace(current=config.environment.initial, domain=get_domain(config))
    settings = SimpleNamespace(step_limit=StepLimit())
    monkeypatch.setattr(phase, "check_rollout", lambda *_: None)
    monkeypatch.setattr(phase, "get_or_measure_atlas", lambda *_: SimpleNamespace(atlas=atlas))
    monkeypatch.setattr(phase, "make_stage_view", lambda *_: view)
    monkeypatch.setattr(phase, "make_design_settings", lambda *_: settings)
    monkeypatch.setattr(phase, "build_stage_context", lambda *_: SimpleNamespace(text=CONTEXT))
    return run, params, atlas


AFTER_STAGE_1: Any = [None, SimpleNamespace(stage=1)]


def compute_preference(policy: Any, weights: Any, sequences: list[list[int]]) -> float:
    """Return the log-probability of the harder design minus that of the easier one."""
    harder, easier = (logprob.sum() for logprob in policy.logprobs(weights, sequences))
    return float(harder - easier)


@pytest.mark.slow
def test_learning_raises_the_probability_of_good_designs(learning_run):
    run, params, atlas = learning_run
    config, policy = run.config, run.policy
    view = phase.make_stage_view(config, AFTER_STAGE_1, 1)
    texts = [make_edits(config, "+"), make_edits(config, "-"), "n3 up up up"]
    sampler: Any = ScriptedDesigner(policy, texts)
    prompt = policy.encode_prompt(CONTEXT)
    sequences = [[*prompt, *policy.encode_answer(text)] for text in texts[:2]]
    preference = compute_preference(policy, params, sequences)
    state = initial_state(params, make_grpo_optimizer(config.grpo, config.grpo_steps))
    state = learn_to_design(run, sampler, state, AFTER_STAGE_1)
    assert compute_preference(policy, state.params, sequences) > preference + 0.5
    assert int(state.steps) == 3
    for name, tensor in policy.tensors(state.params):
        np.testing.assert_array_equal(sampler.weights[name], tensor)
    assert [call.prompts for call in sampler.calls] == [(tuple(prompt),)] * 3
    assert len({call.seed for call in sampler.calls}) == 3
    assert {call.temperature for call in sampler.calls} == {config.sampling.temperature}

    records = run.directory.stage(1).design_learning.read()
    assert [record.update for record in records] == [1, 2, 3]
    assert {(record.designs, record.usable) for record in records} == {(8, 6)}
    best_score = score_design(texts[0], view, StepLimit(), atlas)
    assert records[0].reward_best == pytest.approx(best_score, rel=1e-5)
    worst_score = score_design(texts[1], view, StepLimit(), atlas)
    assert records[0].reward_mean == pytest.approx((3 * best_score + 3 * worst_score) / 8, rel=1e-5)
    tokens = sum(len(sampler._answers[index % 3]) for index in range(8))
    assert compute_learning_cost(records) == Costs(
        engineer_tokens=3 * tokens, probe_rollouts=atlas.rollouts, rehearsed_designs=12
    )


TEXT_MODEL = {"style": "full", "reasoning_tokens": 60, "blocks": ["failure_breakdown"]}


@pytest.mark.slow
@pytest.mark.parametrize("learning_run", [TEXT_MODEL], indirect=True)
def test_learn_to_design_rewards_whole_texts(learning_run):
    run, params, _ = learning_run
    config, policy = run.config, run.policy
    texts = [make_design_text(config, 0.1), make_design_text(config, 0.0), "Diagnosis: easy."]
    sampler: Any = ScriptedDesigner(policy, texts)
    prompt = policy.encode_prompt(CONTEXT)
    sequences = [[*prompt, *policy.encode_answer(text)] for text in texts[:2]]
    preference = compute_preference(policy, params, sequences)
    state = initial_state(params, make_grpo_optimizer(config.grpo, config.grpo_steps))
    state = learn_to_design(run, sampler, state, AFTER_STAGE_1)
    assert compute_preference(policy, state.params, sequences) > preference + 0.5
    assert {(call.max_tokens, call.form) for call in sampler.calls} == {(60 + 120, None)}
    records = run.directory.stage(1).design_learning.read()
    counts = {(row.usable, row.rehearsed_designs, row.rehearsal_loss) for row in records}
    assert counts == {(6, 0, None)}


@pytest.mark.slow
@pytest.mark.parametrize("learning_run", [TEXT_MODEL], indirect=True)
def test_learn_to_design_keeps_weights_if_no_text_is_usable(learning_run):
    run, params, _ = learning_run
    template = "{{ messages[0]['content'] }}<think>"
    run.policy.tokenizer.chat_template = template
    chat_prompt = run.policy.prompt.model_copy(update={"chat": True})
    run = replace(run, policy=replace(run.policy, prompt=chat_prompt))
    tensors = [np.array(tensor) for _, tensor in run.policy.tensors(params)]
    # Thinking that the chat template opened and the token limit cut off holds no answer.
    sampler: Any = ScriptedDesigner(run.policy, [make_design_text(run.config, 0.1)])
    state = initial_state(params, make_grpo_optimizer(run.config.grpo, run.config.grpo_steps))
    state = learn_to_design(run, sampler, state, AFTER_STAGE_1)
    assert int(state.steps) == 0
    for tensor, (_, new_tensor) in zip(tensors, run.policy.tensors(state.params), strict=True):
        np.testing.assert_array_equal(tensor, new_tensor)
    records = run.directory.stage(1).design_learning.read()
    results = {(record.usable, record.reward_best, record.grad_norm) for record in records}
    assert results == {(0, 0, 0)}


@pytest.mark.slow
def test_run_learns_to_design_in_words(tmp_path: Path):
    config = make_config(style="full", reasoning_tokens=300, max_tokens=300, blocks=[])
    with without_vllm():
        loop.run(config, tmp_path, stop_after=1)
    stage = RunDirectory(tmp_path).stage(1)
    records = stage.design_learning.read()
    assert [(record.designs, record.rehearsed_designs) for record in records] == [(8, 0)] * 3
    assert min(record.tokens for record in records) > 8 * 20  # whole texts
    (answer,) = stage.answers.read()
    assert answer.reasoning.startswith("Diagnosis: too easy.\n{")
    assert answer.kind in ("accepted", "repaired")


@pytest.mark.parametrize("settings", [{"kind": "rule"}, {"kind": "shuffled:checkpoint"}])
def test_only_a_checkpoint_learns_to_design(settings):
    with pytest.raises(ValueError, match="learning must be null unless kind is checkpoint, got"):
        make_config(**settings)


@pytest.mark.slow
def test_learning_is_checkpointed_and_charged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = make_config()
    grpo = config.grpo.model_copy(update={"checkpoint_every": 1})
    config = config.model_copy(update={"grpo": grpo})
    checkpoints: list[RunProgress] = []
    save = Checkpoints.save

    def record_save(manager: Checkpoints, state: Any, progress: RunProgress) -> None:
        checkpoints.append(progress)
        save(manager, state, progress)

    monkeypatch.setattr(Checkpoints, "save", record_save)
    with without_vllm():
        loop.run(config, tmp_path)
    # Existing checkpoint numbers are not written again, so each checkpoint needs its own number:
    # the warm start's, each stage's four updates, and then learning to design.
    assert [record.number for record in checkpoints] == [10, 20, 30, *range(31, 41)]
    design_numbers = [record.number for record in checkpoints if record.phase == "learn_to_design"]
    assert design_numbers == [35, 40]
    stage = RunDirectory(tmp_path).stage(1)
    records, spent = stage.design_learning.read(), stage.decision.read().spent
    assert len(records) == 3
    assert spent.probe_rollouts == stage.atlas.read().atlas.rollouts > 0
    assert spent.rehearsed_designs == 12 + 4 * 4  # and those of the stage's updates
    assert spent.engineer_tokens > sum(record.tokens for record in records)


@pytest.mark.slow
def test_resumed_design_does_not_learn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On devices that sum in any order, learning again would give other weights."""
    config = make_config()

    with without_vllm():
        with interrupt_at("design", raise_killed), pytest.raises(KilledError):
            loop.run(config, tmp_path)
        records = RunDirectory(tmp_path).stage(1).design_learning.path.read_bytes()

        def fail(*_: Any) -> Any:
            pytest.fail("it learns to design again")

        with monkeypatch.context() as patch:
            patch.setattr(loop, "learn_to_design", fail)
            loop.run(config, tmp_path, stop_after=1)
        assert RunDirectory(tmp_path).stage(1).decision.exists()
        assert RunDirectory(tmp_path).stage(1).design_learning.path.read_bytes() == records
