"""Answers of an engineer as JSON lines: `jaxlake engineer apply` reviews them."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from engineer import Guard, review_answer
from engineer.attempt import escape_surrogates
from engineer.lake import LakeConfiguration
from training.commands.json_lines import Answers, Record, RecordError, read_records
from training.errors import UserError, problems_of
from training.schema import RunConfig, read_yaml

MAX_CHARACTERS = 1_000_000
"""Longest answer that is reviewed; a line beyond it is an error."""


def read_configuration(path: Path, config: RunConfig) -> LakeConfiguration:
    """Read a configuration in the layout of `configuration.yaml` or `configuration.json`.

    Raises:
        UserError: The file can't be read, is no configuration, or leaves the run's bounds.
    """
    try:
        configuration = LakeConfiguration.model_validate(read_yaml(path))
    except ValidationError as error:
        raise UserError(f"{path}: {next(problems_of(error))}") from error
    if violation := config.environment.bounds.violation(configuration):
        raise UserError(f"{path}: {violation}")
    return configuration


def apply_lines(lines: Iterable[bytes], config: RunConfig, current: LakeConfiguration) -> Answers:
    """Review answers: `{"id", "answer"}` in, `{"id", "decision", ...}` out.

    Args:
        lines: JSON in UTF-8, one record each; blank lines are skipped.
        config: gives the bounds, the number of agents and the largest step.
        current: the configuration in force, which is kept where an answer is not used.

    Yields:
        For each record, in order, its line number from 1 and the answer: `id`, `decision`,
        `repairs`, `reason` and `configuration`. For an invalid line, `id` and `error`.
    """
    guard = Guard(max_step=config.engineer.max_step)
    for number, record in read_records(lines, _read_answer):
        if isinstance(record, RecordError):
            yield number, record.answer
            continue
        decision = review_answer(record["answer"], current, config.domain, guard)
        configuration = decision.configuration or current
        yield (
            number,
            {
                "id": record.get("id"),
                "decision": "kept" if decision.configuration is None else decision.kind,
                "repairs": [repair.model_dump(mode="json") for repair in decision.repairs],
                "reason": escape_surrogates(decision.reason),
                "configuration": configuration.model_dump(mode="json"),
            },
        )


def _read_answer(record: Record) -> Record:
    id, answer = record.get("id"), record.get("answer")
    if "answer" not in record:
        raise RecordError("answer: missing, a string is needed", id)
    if not isinstance(answer, str):
        raise RecordError(f"answer: got {type(answer).__name__}, a string is needed", id)
    if len(answer) > MAX_CHARACTERS:
        raise RecordError(
            f"answer: got {len(answer)} characters, at most {MAX_CHARACTERS} are allowed", id
        )
    return record
