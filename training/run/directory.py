"""A run's directory: plain files anyone can read, each with one model and one reader and writer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from engineer import Attempt, Configuration
from engineer.scoring.reading import Reading
from jaxlake.files import has_room, make_room, write_text_first
from training.errors import UserError
from training.run import records
from training.run.digests import file_digest
from training.run.sums import Sums, require_no_links_out
from training.run.typed_files import File, JsonFile, JsonLinesFile, JsonLog, TextFile
from training.schema import RunConfig, dump, load, parse_yaml, read_yaml

_CONFIGURATION: TypeAdapter[Configuration] = TypeAdapter(records.StoredConfiguration)
_METRICS: TypeAdapter[records.Metrics] = TypeAdapter(records.Metrics)

# Keys that may change when a run is resumed: they decide rounding at most.
_MAY_CHANGE = (
    "model.mesh",
    "model.remat",
    "model.attention",
    "grpo.micro_batch_size",
    "sampling.max_num_seqs",
    "sampling.gpu_memory_utilization",
    "sampling.tensor_parallel_size",
    "sampling.data_parallel_size",
    "sampling.devices",
    "sampling.gap_tolerance",
    "sampling.server",
    "engineer.atlas.after_last",
    "tracking",
)


class StageDirectory:
    """The files of one stage, in the order in which the loop writes them."""

    def __init__(self, path: Path, weights: Path | None = None, sums: Sums | None = None) -> None:
        """Name the files; nothing is read or written yet. Its policy may stand in `weights`."""
        self.path = path
        # What stage 0 of a run that started from another one knows of that run.
        self.start = JsonFile(path / "start.json", TypeAdapter(records.StartRecord), sums=sums)
        # What the stage trained on; stage 0 has none.
        self.configuration = JsonFile(path / "configuration.json", _CONFIGURATION, sums=sums)
        # What its instances were picked by, if the policy answered a pool for that.
        self.picks = JsonFile(path / "picks.json", TypeAdapter(records.PicksRecord), sums=sums)
        # Instances that could not be made for it, and what its instances are like, by group.
        shortfalls = TypeAdapter(list[records.RequestOutcome])
        self.shortfalls = JsonFile(path / "shortfalls.json", shortfalls, sums=sums)
        statistics = TypeAdapter(dict[str, dict[str, float]])
        self.environment = JsonFile(path / "environment.json", statistics, sums=sums)
        # The answers to the validation set, written at the end of the Validate phase.
        self.episodes = JsonLinesFile(
            path / "episodes.jsonl", TypeAdapter(records.EpisodeRecord), sums=sums
        )
        # Whether the stage was taken back.
        self.gate = JsonFile(path / "gate.json", TypeAdapter(records.GateRecord), sums=sums)
        # Folder of the weights that it ended with, in the Hugging Face layout.
        self.policy = (weights or path) / "policy"
        # Folder of the adapters among them, if adapters are what is trained (`model.lora`).
        self.adapters = (weights or path) / "adapters"
        # What the engineer measured before it answered, if it is one that does.
        self.atlas = JsonFile(path / "atlas.json", TypeAdapter(records.AtlasRecord), sums=sums)
        # The engineer's first prompt, and all of its prompts and answers.
        self.context = TextFile(path / "context.txt", sums=sums)
        self.answers = JsonLinesFile(path / "answers.jsonl", TypeAdapter(Attempt), sums=sums)
        # What the policy learned from designs of its own, if it did.
        self.design_learning = JsonLinesFile(
            path / "design_learning.jsonl", TypeAdapter(records.DesignUpdateRecord), sums=sums
        )
        # How the weights in force read compact contexts, if that was measured.
        self.reading = JsonFile(path / "reading.json", TypeAdapter(Reading), sums=sums)
        # What it wrote down for the next stage (its Summary block), and what it was asked for that.
        self.notes = TextFile(path / "summary.txt", sums=sums)
        self.notes_prompt = TextFile(path / "summary_prompt.txt", sums=sums)
        # The configuration of the next stage, written last in the Design phase.
        self.decision = JsonFile(
            path / "decision.json", TypeAdapter(records.DecisionRecord), sums=sums
        )
        # Digests of all of this, written when the stage is complete (training/audit).
        self.digests = JsonFile(path / "digests.json", TypeAdapter(records.StageDigests), sums=sums)

    def records(self) -> list[File]:
        """List all files but weights, whether they exist or not."""
        return [part for part in vars(self).values() if isinstance(part, File)]

    def before_design(self) -> list[File]:
        """List the files of a trained stage that don't depend on who designs."""
        trained: list[File] = [self.configuration, self.shortfalls, self.environment]
        return [*trained, self.picks, self.episodes]

    def after_training(self) -> list[File]:
        """List the files that follow from the weights that a trained stage ended with."""
        return [self.episodes, self.gate, self.atlas, *self.designed()]

    def designed(self) -> list[File]:
        """List the files that follow from the weights that designed after a stage."""
        asked: list[File] = [self.design_learning, self.context, self.answers]
        noted: list[File] = [self.reading, self.notes, self.notes_prompt]
        return [*asked, *noted, self.decision, self.digests]


_PATTERN = "*?[\\"


def require_literal_path(path: Path) -> None:
    """Raise a `UserError` if Orbax would read a path as a pattern and lose checkpoint files."""
    used = [letter for letter in str(path.absolute()) if letter in _PATTERN]
    if used:
        raise UserError(
            f"{path.absolute()}: its name or that of a folder above has {used[0]!r}, which Orbax "
            f"reads as a pattern; allowed are names without {' '.join(_PATTERN)}"
        )


class RunDirectory:
    """The files of one run: those of the list above, and two folders of weights beside them."""

    def __init__(self, path: Path, weights: Path | None = None) -> None:
        """Name the files of the run in `path`, whose folders of weights may stand in `weights`."""
        self.path = path
        self._weights = weights = weights or path
        self.config_file = path / "config.yaml"
        self.sums = sums = Sums(path)
        self.metrics = JsonLog(path / "metrics.jsonl", _METRICS, sums=sums)
        self.timings = JsonLog(path / "timings.jsonl", TypeAdapter(records.TimingRecord), sums=sums)
        self.checkpoints = weights / "checkpoints"
        self.prefetched = path / "prefetched"
        self.initial_policy = weights / "initial"  # made from scratch, or another run's
        self.engine = weights / "engine"  # what vLLM starts from
        self.tensorboard = path / "tensorboard"
        self.wandb_id = TextFile(path / "wandb.id")  # of the run on Weights & Biases
        self.profile = path / "profile"  # traces of updates, by their numbers
        self.summary = JsonFile(
            path / "summary.json", TypeAdapter(records.SummaryRecord), sums=sums
        )
        self.report = path / "report.html"

    def stage(self, number: int) -> StageDirectory:
        """The files of a stage; 0 is what stood before the first."""
        place = Path("stages") / str(number)
        return StageDirectory(self.path / place, self._weights / place, self.sums)

    def later_atlas(self, stage: int) -> JsonFile[records.AtlasRecord]:
        """The atlas of a stage that was measured for the report (`engineer.atlas.after_last`)."""
        file = self.path / "atlases" / f"{stage}.json"
        return JsonFile(file, TypeAdapter(records.AtlasRecord), sums=self.sums)

    def stage_numbers(self) -> list[int]:
        """The stages that have a folder, ascending."""
        folders = (self.path / "stages").glob("*")
        return sorted(
            int(folder.name) for folder in folders if re.fullmatch("[0-9]{1,9}", folder.name)
        )

    def weights_after(self, stage: int) -> int:
        """The stage whose weights are in force after a stage: another one if it was taken back."""
        gate = self.stage(stage).gate
        taken_back = gate.exists() and gate.read().restored == "checkpoint"
        return gate.read().reference if taken_back else stage

    def finished(self) -> bool:
        """Whether the run says that it has ended."""
        return self.summary.exists()

    def config(self) -> RunConfig:
        """The run's configuration; a `UserError` if there is none that can be read."""
        if not self.config_file.exists():
            why = "it has no config.yaml" if self.path.exists() else "it does not exist"
            raise UserError(f"{self.path}: is not a run's directory, {why}")
        require_no_links_out(self.path)
        TextFile(self.config_file, sums=self.sums).read()  # as the run wrote it
        return load(self.config_file)

    def sealed_files(self) -> list[Path]:
        """List the files that are there, all but logs, weights and those that nothing reads."""
        stages = [self.stage(number) for number in self.stage_numbers()]
        files = [file.path for stage in stages for file in stage.records()]
        atlases = sorted((self.path / "atlases").glob("*.json"))
        weights = sorted(self.initial_policy.glob("[!.]*"))
        paths = [self.config_file, *files, *atlases, self.summary.path, *weights]
        return [path for path in paths if path.is_file()]

    def require_intact(self) -> None:
        """Compare the files with their digests; a run without a list of digests passes.

        Raises:
            UserError: A file is missing or was changed, or a link leads out of the directory.
        """
        if (entries := self.sums.entries()) is None:
            return
        # The first policy is made again if the run was killed before its digests were there.
        unfinished = self.initial_policy if not self.sums.knows_folder(self.initial_policy) else ""
        self.sums.require_intact(
            entries, [path for path in self.sealed_files() if path.parent != unfinished]
        )

    def make_sums(self) -> None:
        """Write the list of digests of the files as they are."""
        self.sums.create(self.sealed_files())

    def seal_logs(self) -> None:
        """Add the digests of the logs, which do not grow any more."""
        for path in (self.metrics.path, self.timings.path):
            if path.exists():
                self.sums.record(path, file_digest(path))

    def log_digests(self, *others: Path) -> dict[str, tuple[int, str]]:
        """Return the sizes in bytes and the digests of the logs, and of `others`, as they are."""
        paths = [path for path in (self.metrics.path, self.timings.path, *others) if path.exists()]
        return {
            path.relative_to(self.path).as_posix(): (path.stat().st_size, file_digest(path))
            for path in paths
        }

    def require_logs(self, digests: Mapping[str, Sequence[Any]]) -> None:
        """Raise a `UserError` unless files begin with what a checkpoint saw (`log_digests`)."""
        for name, (size, digest) in digests.items():
            path = self.path / name
            try:
                with path.open("rb") as file:
                    content = file.read(size)
            except OSError as error:
                raise UserError(f"{path}: can't be read: {error.strerror}. Restore it") from error
            if hashlib.sha256(content).hexdigest() != digest:
                raise UserError(
                    f"{path}: has other contents than the newest checkpoint was saved with. "
                    "Restore it, or remove the run's directory to begin again"
                )

    def updates(self, stage: int | None = None) -> list[records.UpdateMetrics]:
        """Read what was logged of the updates of a stage, or of all (None)."""
        updates = (one for one in self.metrics.read() if isinstance(one, records.UpdateMetrics))
        return [one for one in updates if stage in (None, one.stage)]

    def rewind(self, step: int) -> None:
        """Drop what is logged beyond `step`: a resumed run writes it again."""
        for log in (self.metrics, self.timings):
            self.sums.forget(log.path)
        if self.metrics.exists():
            self.metrics.write([one for one in self.metrics.read() if one.step <= step])
        if self.timings.exists():
            self.timings.write([one for one in self.timings.read() if one.step <= step])

    def drop_later(self, stage: int, *, designed: bool = False) -> bool:
        """Drop what was made of weights that are gone, of a stage and of all after it.

        Of the stage that is its validation and what followed, or only what was `designed`. Returns
        whether there was anything.
        """
        files = self.stage(stage).designed() if designed else self.stage(stage).after_training()
        for number in self.stage_numbers():
            if number > stage:
                files += [*self.stage(number).records(), self.later_atlas(number)]
        if not designed:
            files.append(self.later_atlas(stage))
        there = [file for file in files if file.exists()]
        for file in there:
            file.remove()
        return bool(there)

    def belongs_to(self, config: RunConfig) -> bool:
        """Whether the directory is this configuration's; False if it is nobody's yet.

        Keys of `_MAY_CHANGE` may differ; `model.mesh` may not if the policy learns to design, since
        every device adds a group.

        Raises:
            UserError: It belongs to another configuration, or holds files of something else.
        """
        if not self.config_file.exists():
            # Another process may have claimed it between these two looks.
            if not has_room(self.config_file) and not self.config_file.exists():
                raise UserError(
                    f"{self.path}: is not empty and holds no run; choose another --run-dir"
                )
            return False
        theirs = read_yaml(self.config_file)
        ours = parse_yaml(dump(config))
        for tree in (theirs, ours):
            for key in _MAY_CHANGE:
                if key != "model.mesh" or config.engineer.learning is None:
                    _pop(tree, key)
        if theirs != ours:
            raise UserError(
                f"{self.path}: holds a run of another configuration, which differs in "
                f"{', '.join(differing_keys(theirs, ours))}; choose another --run-dir, "
                "or remove it"
            )
        return True

    def claim(self, config: RunConfig) -> bool:
        """Make the directory this configuration's, and say whether it already was.

        Raises:
            UserError: see `belongs_to`; or its config.yaml can't be written.
        """
        if self.belongs_to(config):
            return True
        make_room(self.config_file)
        try:
            first = write_text_first(self.config_file, dump(config))
        except OSError as error:
            raise UserError(f"{self.config_file}: can't be written: {error.strerror}") from error
        return False if first else self.claim(config)


def _pop(tree: dict[Any, Any], key: str) -> None:
    """Remove a dotted key from a tree of mappings."""
    *parents, leaf = key.split(".")
    for parent in parents:
        below = tree.get(parent)
        tree = below if isinstance(below, dict) else {}
    tree.pop(leaf, None)


def differing_keys(theirs: Any, ours: Any, key: str = "") -> list[str]:
    """The dotted keys in which two trees of mappings differ, each with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            difference
            for name in dict.fromkeys([*theirs, *ours])
            for difference in differing_keys(
                theirs.get(name), ours.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if theirs == ours else [f"{key} ({theirs!r} there, {ours!r} here)"]
