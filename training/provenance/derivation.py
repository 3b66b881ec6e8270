"""What the files of a stage follow from, done again: boards, verdicts, gate, context and review.

Only the configuration, the chain's earlier stages and what can't be derived (the policy's answers,
the engineer's answers, the metrics) are taken as they stand.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from engineer import (
    Budget,
    DesignRecord,
    Engineer,
    EngineerError,
    Guard,
    LakeConfiguration,
    OracleEngineer,
    ProbeResult,
    Proposal,
    Spent,
    Task,
    View,
    configuration_yaml,
    design,
    lake_evidence,
)
from engineer.context.budget import CountTokens
from engineer.context.summary import summary_question
from engineer.engineers.catalogue import SHUFFLED
from engineer.engineers.controls import ShuffledEngineer
from engineer.space import Configuration
from training.config import ORACLE, EngineerChoice, RunConfig
from training.design.shown import first_context, tokens_counter
from training.errors import UserError
from training.instances import InstanceSet
from training.judge import judge
from training.phases import validate
from training.phases.boards import DrawnBoards, draw_boards
from training.phases.context import entropy_for
from training.provenance.differences import Difference, first_difference
from training.provenance.digests import ANSWERS, boards_digest, json_lines, untimed, without_seconds
from training.provenance.links import Link, generator_of
from training.run.directory import RunDirectory, read_json
from training.run.records import (
    NOTES_PROMPT,
    PROBES,
    answers_of,
    configuration_for,
    decision_of,
    gate_record,
    instances_trained_on,
    settings_of,
    view_of,
)

Derived = tuple[Any, Any]
"""What a part must be, and what it is."""


@dataclass(frozen=True)
class RunSource:
    """A run's configuration and files, and the validation set, drawn again when it is needed."""

    config: RunConfig
    directory: RunDirectory

    @cached_property
    def validation(self) -> InstanceSet:
        """The validation set."""
        return validate.boards_for(self.config)


@dataclass(frozen=True)
class Derivation:
    """One stage, derived again from what it follows from."""

    run: RunSource
    link: Link

    @property
    def config(self) -> RunConfig:
        """The run's."""
        return self.run.config

    @property
    def directory(self) -> RunDirectory:
        """The run's."""
        return self.run.directory

    @property
    def stage(self) -> int:
        """Its number."""
        return self.link.stage

    @property
    def folder(self) -> Path:
        """Its files."""
        return self.directory.stage(self.stage)

    @cached_property
    def drawn(self) -> DrawnBoards:
        """The training boards, from the seed and what the last decision says."""
        configuration = configuration_for(self.config, self.directory, self.stage)
        return draw_boards(self.config, self.stage, configuration, self.run.validation)

    @cached_property
    def validated(self) -> dict[str, Any]:
        """What Validate writes, by name, from the texts of `episodes.jsonl` judged again."""
        boards = self.run.validation
        path = self.folder / "episodes.jsonl"
        texts = [episode["text"] for episode in json_lines(path)]
        if len(texts) != len(boards):
            raise UserError(f"{path}: {len(texts)} answers to {len(boards)} boards")
        verdict = judge(boards, texts, self.config.prompt)
        episodes = validate.episodes_of(boards, texts, verdict)
        table = validate.tally(boards, verdict)
        return {
            "episodes.jsonl": episodes,
            "failures.jsonl": validate.failures_of(episodes),
            "evidence.json": lake_evidence(self.stage, table).model_dump(mode="json"),
            "validation.json": {"stage": self.stage, **validate.summarise(table)},
        }

    @cached_property
    def view(self) -> View:
        """What the engineer could be told."""
        return view_of(self.config, self.directory, self.stage)

    @cached_property
    def answers(self) -> list[dict[str, Any]]:
        """What the engineer said, as it stands."""
        return untimed(self.folder / ANSWERS)

    @cached_property
    def count_tokens(self) -> CountTokens:
        """Of the policy's tokenizer, where a context has a budget of its tokens."""
        return tokens_counter(self.config, self.directory, self.stage)

    @property
    def out_of_budget(self) -> bool:
        """Whether fewer answers than allowed may have been asked for, none of them usable."""
        choice = self.config.engineer
        return choice.budget != Budget() and len(self.answers) < choice.attempts

    def _recorded(self, guard: Guard) -> Engineer:
        """An engineer that says what the run's did; the oracle chooses again, by its scores."""
        kind = self.config.engineer.kind
        if kind == ORACLE:
            return _RecordedOracle(self.answers, self._probed, self.config.engineer, guard)
        return _shuffled(kind, _Recorded(self.answers))

    @cached_property
    def _probed(self) -> dict[str, ProbeResult]:
        """What came of the configurations that were tried out, by their JSON."""
        path = self.folder / PROBES
        return {
            LakeConfiguration.model_validate(probe["configuration"]).model_dump_json(): ProbeResult(
                score=probe["valid"] / probe["count"],
                instances=probe["instances"],
                rollouts=probe["rollouts"],
            )
            for probe in (json_lines(path) if path.exists() else [])
        }

    @cached_property
    def record(self) -> DesignRecord:
        """The Design phase, held again with an engineer that says what it said.

        Time and probes can't be spent again: where a budget ended the asking, it ends after as many
        answers.
        """
        settings = settings_of(self.config, self.view)
        budget = Budget()
        if self.out_of_budget:
            budget = Budget() if self.answers else Budget(engineer_tokens=0)
            settings = settings.model_copy(update={"attempts": max(len(self.answers), 1)})
        recorded = self._recorded(settings.guard)
        return design(
            recorded,
            self.view,
            settings.model_copy(update={"budget": budget}),
            seed=lambda attempt: entropy_for(self.config.seed, "design", self.stage, attempt),
            count_tokens=self.count_tokens,
        )


@dataclass(frozen=True)
class _Recorded:
    """An engineer that gives the answers of `answers.jsonl`."""

    answers: Sequence[Mapping[str, Any]]

    def propose(self, task: Task) -> Proposal:
        """The answer to this attempt as it was."""
        return _Said(_attempt(self.answers, task)).propose(task)

    @property
    def name(self) -> str:
        """Of no matter: a decision's own is taken as it stands."""
        return "recorded"


@dataclass(frozen=True)
class _Said:
    """An engineer that says what was said."""

    answer: Mapping[str, Any]
    name: str = "recorded"

    def propose(self, task: Task) -> Proposal:
        """The answer, or the failure, as it was."""
        text, tokens = self.answer["text"], self.answer["tokens"]
        if text is None:
            raise EngineerError(self.answer["reason"], Spent(engineer_tokens=tokens or 0))
        return Proposal(text, seconds=0.0, tokens=tokens)


@dataclass(frozen=True)
class _Missing:
    """A candidate that must have been asked, of which nothing is recorded."""

    name: str

    def propose(self, task: Task) -> Proposal:
        raise UserError(f"{ANSWERS}: what the candidate {self.name} said is missing")


@dataclass(frozen=True)
class _RecordedOracle:
    """An oracle whose candidates say what they said, and whose probes come out as they did."""

    answers: Sequence[Mapping[str, Any]]
    probed: Mapping[str, ProbeResult]
    choice: EngineerChoice
    guard: Guard
    name: str = ORACLE

    def propose(self, task: Task) -> Proposal:
        """Choose again."""
        said = [
            _shuffled(one["engineer"], _Said(one, one["engineer"].removeprefix(SHUFFLED)))
            for one in _attempt(self.answers, task)["candidates"]
        ]
        budget = Budget()
        if self.choice.budget == Budget():
            said += [_Missing(name) for name in self.choice.oracle.candidates[len(said) :]]
        elif self.choice.budget.probe_rollouts is not None:  # it lasted for those that were made
            rollouts = sum(result.rollouts for result in self.probed.values())
            budget = Budget(probe_rollouts=rollouts + 1)
        oracle = OracleEngineer(
            tuple(said),
            self._probe,
            self.choice.oracle.max_probes,
            probe_rollouts=2,  # more than is left once all of them are made again
            guard=self.guard,
        )
        return oracle.propose(replace(task, budget=budget))

    def _probe(self, configuration: Configuration) -> ProbeResult:
        result = self.probed.get(configuration.model_dump_json())
        if result is None:
            raise UserError(f"{PROBES}: a configuration that must have been tried out is missing")
        return result


def _attempt(answers: Sequence[Mapping[str, Any]], task: Task) -> Mapping[str, Any]:
    if task.attempt >= len(answers):
        raise UserError(
            f"{ANSWERS}: holds {len(answers)} answers, none of them usable; there must be another"
        )
    return answers[task.attempt]


def _shuffled(kind: str, engineer: Engineer) -> Engineer:
    """An engineer, asked about shuffled evidence if its kind says so."""
    return ShuffledEngineer(engineer) if kind.startswith(SHUFFLED) else engineer


# The files may hold anything. What can't be read isn't what was derived.
_UNREADABLE = (
    UserError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    MemoryError,
    RuntimeError,  # JAX's too, and where a recursion has no end
    TypeError,
    ValueError,
)


def rederive(run: RunSource, link: Link) -> Iterator[tuple[str, Difference | None]]:
    """Derive again what follows from other files of the run, part by part.

    Returns: (part, the first difference or None) in the order in which they follow from each other.
    """
    derivation = Derivation(run, link)
    for part, derive in (_WARM_START if link.stage == 0 else _ROUND).items():
        yield part, difference_of(functools.partial(derive, derivation))


def difference_of(derive: Callable[[], Derived]) -> Difference | None:
    """Where what there is first differs from what must be; what can't be read differs."""
    try:
        return first_difference(*map(_plain, derive()))
    except _UNREADABLE as error:
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        return "what can be derived", " ".join(f"{kind}{error}".split())


def _plain(value: Any) -> Any:
    """A value as it comes back from a JSON file."""
    return json.loads(json.dumps(value))


def _configuration(it: Derivation) -> Derived:
    expected = configuration_for(it.config, it.directory, it.stage)
    return expected.model_dump(mode="json"), read_json(it.folder / "configuration.json")


def _configuration_for_people(it: Derivation) -> Derived:
    expected = configuration_yaml(configuration_for(it.config, it.directory, it.stage))
    return expected, _text(it.folder / "configuration.yaml")


def _generator(it: Derivation) -> Derived:
    found = it.link.generator
    return (
        generator_of(it.config, it.directory, it.stage),
        None if found is None else found.model_dump(mode="json"),
    )


def _instances(it: Derivation) -> Derived:
    return boards_digest(it.drawn.boards), it.link.instances


def _environment(it: Derivation) -> Derived:
    return it.drawn.environment, read_json(it.folder / "environment.json")


def _shortfalls(it: Derivation) -> Derived:
    return it.drawn.shortfalls, read_json(it.folder / "shortfalls.json")


def _no_boards(it: Derivation) -> Derived:
    generator = it.link.generator
    return [None, None], [
        None if generator is None else generator.model_dump(mode="json"),
        it.link.instances,
    ]


def _validation_set(it: Derivation) -> Derived:
    return boards_digest(it.run.validation), it.link.validation_set


def _validated(name: str) -> Callable[[Derivation], Derived]:
    def derive(it: Derivation) -> Derived:
        path = it.folder / name
        found = json_lines(path) if path.suffix == ".jsonl" else read_json(path)
        return it.validated[name], found

    return derive


def _gate(it: Derivation) -> Derived:
    expected = gate_record(it.config, it.directory, it.stage)
    return expected.model_dump(mode="json"), read_json(it.folder / "gate.json")


def _context(it: Derivation) -> Derived:
    context = first_context(it.config, it.directory, it.stage)
    return context.text if it.answers else "", _text(it.folder / "context.txt")


def _answers(it: Derivation) -> Derived:
    return [without_seconds(_plain(answer)) for answer in answers_of(it.record)], it.answers


def _notes_prompt(it: Derivation) -> Derived:
    path = it.folder / NOTES_PROMPT
    if not path.exists():
        return "", ""
    decided = configuration_for(it.config, it.directory, it.stage + 1)
    return summary_question(it.view, decided, it.config.engineer.style), _text(path)


def _decision(it: Derivation) -> Derived:
    found = read_json(it.folder / "decision.json")
    expected = decision_of(it.record)
    expected["engineer"] = found["engineer"]
    tokens = expected["spent"]["engineer_tokens"]
    if "summary" in it.config.engineer.blocks:
        # Those of the notes come on top, which leave no count of their own.
        tokens = max(tokens, found["spent"]["engineer_tokens"])
    path = it.folder / PROBES
    probes = json_lines(path) if path.exists() else []
    expected["spent"] = {
        **found["spent"],
        "probe_rollouts": sum(probe["rollouts"] for probe in probes),
        "probe_instances": sum(probe["instances"] for probe in probes),
        "training_instances": instances_trained_on(it.view),
        "engineer_tokens": tokens,
    }
    if expected["kind"] == "kept" and it.out_of_budget:
        start = f"kept after {len(it.answers)} attempts, the budget is spent, "
        expected["reason"] = found["reason"] if found["reason"].startswith(start) else start
    return expected, found


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error


_Derive = Callable[[Derivation], Derived]
_VALIDATION: dict[str, _Derive] = {
    "validation_set": _validation_set,
    "episodes.jsonl": _validated("episodes.jsonl"),
    "failures.jsonl": _validated("failures.jsonl"),
    "evidence.json": _validated("evidence.json"),
    "validation.json": _validated("validation.json"),
}
_WARM_START: dict[str, _Derive] = {"instances": _no_boards, **_VALIDATION}
_ROUND: dict[str, _Derive] = {
    "configuration.json": _configuration,
    "configuration.yaml": _configuration_for_people,
    "generator": _generator,
    "instances": _instances,
    "environment.json": _environment,
    "shortfalls.json": _shortfalls,
    **_VALIDATION,
    "gate.json": _gate,
    "context.txt": _context,
    ANSWERS: _answers,
    "decision.json": _decision,
    NOTES_PROMPT: _notes_prompt,
}
