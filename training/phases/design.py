"""Design: the checkpoint reads where it fails and writes the next round's configuration."""

from __future__ import annotations

from typing import Any

import engineer
from engineer import (
    DesignSettings,
    EndpointEngineer,
    Engineer,
    FailedCase,
    GeneratorEngineer,
    LakeConfiguration,
    RuleEngineer,
    StageEvidence,
    StageHistory,
    TrainingEvidence,
    configuration_yaml,
)
from training.phases.context import Run
from training.run.directory import (
    read_json,
    read_json_lines,
    write_json,
    write_json_lines,
    write_text,
)
from training.run.progress import console
from training.sampling.one_shot import generate_elsewhere
from training.sampling.vllm_sampler import VllmSampler

FAILED_CASES = 8  # handed to the engineer's context, which shows as many as it has room for


def configuration_for(run: Run, stage: int) -> LakeConfiguration:
    """What a round trains on: the initial configuration, then what the last Design decided."""
    folder = run.directory.stage(stage)
    if stage == 1:
        configuration = run.config.environment.initial
    else:
        decision = read_json(run.directory.stage(stage - 1) / "decision.json")
        configuration = LakeConfiguration.model_validate(decision["configuration"])
    if not (folder / "configuration.json").exists():
        write_text(folder / "configuration.yaml", configuration_yaml(configuration))
        write_json(folder / "configuration.json", configuration.model_dump(mode="json"))
    return configuration


def design(run: Run, sampler: VllmSampler, stage: int, current: LakeConfiguration) -> None:
    """Ask the engineer for the next configuration, and write all that was said and decided.

    A decision that is there stays.
    """
    folder = run.directory.stage(stage)
    if (folder / "decision.json").exists():
        return
    choice = run.config.engineer
    seconds: dict[str, float] = {}
    with run.clock(seconds, "design"), console.status(f"round {stage}: design"):
        record = engineer.design(
            _engineer(run, sampler, stage),
            evidence_of(run, stage),
            current,
            history_before(run, stage),
            settings=DesignSettings(
                bounds=run.config.environment.bounds,
                attempts=choice.attempts,
                blocks=choice.blocks,
                style=choice.style,
            ),
            num_agents=run.config.environment.num_agents,
        )
    write_text(folder / "context.txt", record.context)
    write_json_lines(
        folder / "answers.jsonl",
        [
            {"attempt": number, **attempt.model_dump(mode="json")}
            for number, attempt in enumerate(record.attempts)
        ],
    )
    write_json(
        folder / "decision.json",
        record.model_dump(mode="json", exclude={"attempts", "seconds"}),
    )
    run.directory.timings.append(
        {
            "phase": "design",
            "stage": stage,
            "step": run.step(stage, run.config.updates_per_round),
            "seconds": seconds,
        }
    )
    changes = ", ".join(f"{one.field} {one.old:g} -> {one.new:g}" for one in record.diff)
    console.print(
        f"round {stage}: design: {record.kind} ({record.engineer}): {changes or 'no change'}",
        soft_wrap=True,
    )


def evidence_of(run: Run, stage: int) -> StageEvidence:
    """What a round showed: its validation, its training, and some of the failed cases."""
    folder = run.directory.stage(stage)
    evidence = StageEvidence.model_validate(read_json(folder / "evidence.json"))
    failures = read_json_lines(folder / "failures.jsonl")
    by_size = [[case for case in failures if case["size"] == size] for size in evidence.validation]
    cases = [case for rank in range(FAILED_CASES) for group in by_size for case in group[rank:][:1]]
    return evidence.model_copy(
        update={
            "training": _training_evidence(run, stage),
            "failed_cases": tuple(
                FailedCase(
                    size=case["size"],
                    failure=case["failure"],
                    time=case["time"],
                    grid=tuple(case["grid"]),
                    completion=case["text"],
                )
                for case in cases[:FAILED_CASES]
            ),
        }
    )


def history_before(run: Run, stage: int) -> list[StageHistory]:
    """The rounds before this one, oldest first."""
    past = []
    for earlier in range(1, stage):
        before, after = (
            {row["size"]: row["valid"] / row["count"] for row in read_json(path)["rows"]}
            for path in (
                run.directory.stage(earlier - 1) / "validation.json",
                run.directory.stage(earlier) / "validation.json",
            )
        )
        past.append(
            StageHistory(
                stage=earlier,
                configuration=configuration_for(run, earlier),
                decision="initial"
                if earlier == 1
                else read_json(run.directory.stage(earlier - 1) / "decision.json")["kind"],
                valid_before=before,
                valid_after=after,
            )
        )
    return past


def _training_evidence(run: Run, stage: int) -> TrainingEvidence | None:
    records = [
        record
        for record in run.directory.metrics.read()
        if record["phase"] == "train" and record["stage"] == stage
    ]
    if not records:
        return None

    def mean(name: str) -> float:
        return sum(record[name] for record in records) / len(records)

    by_size: dict[int, list[float]] = {}
    for record in records:
        for size, row in record["by_size"].items():
            by_size.setdefault(int(size), []).append(row["learnability"])
    return TrainingEvidence(
        updates=len(records),
        instances=len(records) * run.config.grpo.prompts_per_update,
        reward_first=records[0]["reward_mean"],
        reward_last=records[-1]["reward_mean"],
        groups_without_variance=mean("zero_variance_share"),
        clip_share=mean("clip_share"),
        entropy=mean("entropy"),
        completion_length=mean("completion_length"),
        learnability={size: sum(rows) / len(rows) for size, rows in sorted(by_size.items())},
    )


def _engineer(run: Run, sampler: VllmSampler, stage: int) -> Engineer:
    choice = run.config.engineer
    if choice.kind == "rule":
        return RuleEngineer(run.config.environment.bounds, run.config.environment.num_agents)
    if choice.kind == "endpoint":
        assert choice.base_url is not None
        assert choice.model is not None
        return EndpointEngineer(
            choice.base_url,
            choice.model,
            api_key_env=choice.api_key_env,
            timeout=choice.timeout_seconds,
            max_tokens=choice.max_tokens,
            temperature=choice.temperature,
        )

    def ask_checkpoint(context: str, schema: dict[str, Any], attempt: int) -> str:
        ((completion,),) = sampler.sample(
            [run.policy.encode_prompt(context)],
            n=1,
            temperature=choice.temperature,
            max_tokens=choice.max_tokens,
            stop_token_ids=run.policy.stop_ids,
            seed=run.entropy("design", stage, attempt),
            json_schema=schema,
        )
        return run.policy.decode(completion.token_ids)

    def ask_model(context: str, schema: dict[str, Any], attempt: int) -> str:
        assert choice.model is not None
        return generate_elsewhere(
            choice.model,
            context,
            settings=run.config.sampling,
            choice=choice,
            seed=run.entropy("design", stage, attempt),
            json_schema=schema,
        )

    if choice.kind == "model":
        return GeneratorEngineer(ask_model, name=choice.model or "model")
    return GeneratorEngineer(ask_checkpoint, name="checkpoint", count_tokens=_counter(run))


def _counter(run: Run) -> Any:
    return lambda text: len(run.policy.tokenizer.encode(text, add_special_tokens=False))
