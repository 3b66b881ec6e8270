"""The files of a pretraining: plain files, each with one model.

```
config.yaml         the resolved configuration
metrics.jsonl       losses, every few steps
evaluations.jsonl   what held-out contexts and boards say
plans.jsonl         prompts and optimal plans: drawing them takes minutes
checkpoints/        Orbax: weights, optimizer state, progress
initial/            the model with random weights, and its tokenizer
engine/             what vLLM starts from
model/              the result: weights in bfloat16, tokenizer, card (Hugging Face layout)
.lock               who works here now (training/run/lock.py); empty if nobody does
```

In `model/` stands how it was made, too, so that it can be checked wherever it goes: copies of
`config.yaml` (as `pretraining.yaml`), `metrics.jsonl` and `evaluations.jsonl`, the license that the
card names, and `SHA256SUMS`, the hashes of all its files as `sha256sum --check` reads them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import Field, TypeAdapter

from jaxlake.files import has_room, make_room
from training.errors import UserError
from training.policy.model_folders import SHIPPED
from training.pretraining.schema import PretrainConfig
from training.run.digests import write_digests
from training.run.directory import differing_keys
from training.run.records import Count, Rate, Record
from training.run.typed_files import JsonLinesFile, JsonLog, TextFile
from training.schema import dump, parse_yaml, read_yaml

LICENSE = "LICENSE"


class StepMetrics(Record):
    """A line of `metrics.jsonl`: means since the line before."""

    step: Count
    plan_loss: float = Field(description="nats per token of a plan")
    design_loss: float = Field(description="nats per token of a design")
    learning_rate: float


class Evaluation(Record):
    """A line of `evaluations.jsonl`."""

    step: Count
    edits_right: Rate = Field(description="share of edits that equal the rule's")
    flips: dict[str, Rate] = Field(description="by fact: share of edits that change with it")
    turned: dict[str, Count] | None = Field(
        None, description="by fact: of how many edits that is the share; null: not counted"
    )
    valid: dict[str, Rate] | None = Field(
        description="by cell: valid rate at temperature 1; null: not asked at this step"
    )


class PretrainDirectory:
    """Where the files of a pretraining stand."""

    def __init__(self, path: Path) -> None:
        """Name the files; nothing is read or written yet."""
        self.path = path
        self.config_file = path / "config.yaml"
        self.metrics = JsonLog(path / "metrics.jsonl", TypeAdapter(StepMetrics))
        self.evaluations = JsonLog(path / "evaluations.jsonl", TypeAdapter(Evaluation))
        self.plans = JsonLinesFile(path / "plans.jsonl", TypeAdapter(tuple[str, str]))
        self.checkpoints = path / "checkpoints"
        self.initial = path / "initial"
        self.engine = path / "engine"
        self.model = path / "model"
        self.records = {  # name in a model's folder: the file
            "pretraining.yaml": self.config_file,
            "metrics.jsonl": self.metrics.path,
            "evaluations.jsonl": self.evaluations.path,
        }

    def belongs_to(self, config: PretrainConfig) -> bool:
        """Whether the directory is this configuration's; False if it is nobody's yet.

        A `UserError` says that it holds something else.
        """
        if self.config_file.exists():
            theirs, ours = read_yaml(self.config_file), parse_yaml(dump(config))
            if theirs != ours:
                raise UserError(
                    f"{self.path}: holds a pretraining of another configuration, which differs in"
                    f" {', '.join(differing_keys(theirs, ours))}; choose another --run-dir, or"
                    " remove it"
                )
            return True
        if not has_room(self.config_file):
            raise UserError(
                f"{self.path}: is not empty and holds no pretraining; choose another --run-dir"
            )
        return False

    def claim(self, config: PretrainConfig) -> bool:
        """Make the directory this configuration's, and say whether it was (see `belongs_to`)."""
        if self.belongs_to(config):
            return True
        make_room(self.config_file)
        TextFile(self.config_file).write(dump(config))
        return False

    def write_records(self, folder: Path) -> None:
        """Write into a model's folder how it was made, and then the hashes of all its files."""
        for name, file in self.records.items():
            shutil.copyfile(file, folder / name)
        shutil.copyfile(SHIPPED["jaxlake-base"] / LICENSE, folder / LICENSE)
        write_digests(folder)

    def rewind(self, step: int) -> None:
        """Drop what is logged beyond `step`: it is written again."""
        self.metrics.write([one for one in self.metrics.read() if one.step <= step])
        self.evaluations.write([one for one in self.evaluations.read() if one.step <= step])
