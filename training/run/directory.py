"""The files of a run's directory, with their paths and data models."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from engineer import Attempt, Configuration
from engineer.scoring.reading import ReadingReport
from jaxlake.files import (
    clear_unused_folder,
    is_in_unused_folder,
    require_plain_files,
    write_text_if_absent,
)
from training.errors import UserError
from training.run import records
from training.run.digest_list import DigestList
from training.run.digests import file_digest
from training.run.typed_files import File, JsonFile, JsonLinesFile, JsonLog, TextFile
from training.schema import RunConfig, dump, load, parse_yaml, read_yaml

T = TypeVar("T")

_CONFIGURATION: TypeAdapter[Configuration] = TypeAdapter(records.StoredConfiguration)
_METRICS: TypeAdapter[records.Metrics] = TypeAdapter(records.Metrics)

# Keys that may change when a run is resumed, because they affect rounding at most.
_MUTABLE_KEYS = (
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

    def __init__(
        self, path: Path, weights: Path | None = None, digests: DigestList | None = None
    ) -> None:
        """Define the files without reading or writing them.

        Args:
            path: The stage's folder.
            weights: The folder of the stage's weights; the default is `path`.
            digests: The digests of the run's files.
        """

        def text_file(name: str) -> TextFile:
            return TextFile(path / name, digests=digests)

        def json_file(name: str, content: TypeAdapter[T]) -> JsonFile[T]:
            return JsonFile(path / name, content, digests=digests)

        def json_lines_file(name: str, line: TypeAdapter[T]) -> JsonLinesFile[T]:
            return JsonLinesFile(path / name, line, digests=digests)

        self.path = path
        # Stage 0 only: the history of the run that this run started from.
        self.start = json_file("start.json", TypeAdapter(records.StartRecord))
        # The configuration that the stage trained on; stage 0 has none.
        self.configuration = json_file("configuration.json", _CONFIGURATION)
        # The policy's results on the pool from which the stage's boards were selected, if any.
        self.picks = json_file("picks.json", TypeAdapter(records.PicksRecord))
        # Unfilled requests for boards, and statistics of the training instances by group.
        shortfalls = TypeAdapter(list[records.DrawReport])
        self.shortfalls = json_file("shortfalls.json", shortfalls)
        statistics = TypeAdapter(dict[str, dict[str, float]])
        self.environment = json_file("environment.json", statistics)
        # The answers to the validation set, written at the end of the Validate phase.
        self.episodes = json_lines_file("episodes.jsonl", TypeAdapter(records.EpisodeRecord))
        # The gate's decision whether to roll the stage back.
        self.gate = json_file("gate.json", TypeAdapter(records.GateRecord))
        # Folder of the final weights, in the Hugging Face layout.
        self.policy = (weights or path) / "policy"
        # Folder of the final adapters, if the run trains adapters (`model.lora`).
        self.adapters = (weights or path) / "adapters"
        # The policy's measured success at many configurations, if the engineer uses an atlas.
        self.atlas = json_file("atlas.json", TypeAdapter(records.AtlasRecord))
        # The engineer's first prompt, and all of its prompts and answers.
        self.context = text_file("context.txt")
        self.answers = json_lines_file("answers.jsonl", TypeAdapter(Attempt))
        # Updates in which the policy learned from its own designs, if any.
        self.design_learning = json_lines_file(
            "design_learning.jsonl", TypeAdapter(records.DesignUpdateRecord)
        )
        # How well the weights in force understand compact contexts, if measured.
        self.reading = json_file("reading.json", TypeAdapter(ReadingReport))
        # The engineer's notes for the next stage (its Summary block), and the prompt for them.
        self.notes = text_file("summary.txt")
        self.notes_prompt = text_file("summary_prompt.txt")
        # The configuration of the next stage, written last in the Design phase.
        self.decision = json_file("decision.json", TypeAdapter(records.DecisionRecord))
        # Digests of these files, written when the stage is complete (training/audit).
        self.digests = json_file("digests.json", TypeAdapter(records.StageDigests))

    def records(self) -> list[File]:
        """Return all files except weights, whether they exist or not."""
        return [value for value in vars(self).values() if isinstance(value, File)]

    def training_files(self) -> list[File]:
        """Return the files that the Train and Validate phases wrote, except weights."""
        return [self.configuration, self.shortfalls, self.environment, self.picks, self.episodes]

    def design_files(self) -> list[File]:
        """Return the files that depend on the weights used in the Design phase."""
        answers: list[File] = [self.design_learning, self.context, self.answers]
        notes: list[File] = [self.reading, self.notes, self.notes_prompt]
        return [*answers, *notes, self.decision, self.digests]


_GLOB_CHARACTERS = "*?[\\"


def require_literal_path(path: Path) -> None:
    """Raise a `UserError` if Orbax would interpret a path as a pattern and lose checkpoints."""
    special_characters = [letter for letter in str(path.absolute()) if letter in _GLOB_CHARACTERS]
    if special_characters:
        raise UserError(
            f"{path.absolute()}: the path must not contain any of {' '.join(_GLOB_CHARACTERS)}, "
            f"which Orbax interprets as patterns, got {special_characters[0]!r}"
        )


class RunDirectory:
    """The files of a run: its stages, its logs and its folders of weights."""

    def __init__(self, path: Path, weights: Path | None = None) -> None:
        """Define the files of the run in `path`, with weights below `weights` (default: `path`)."""
        self.path = path
        self._weights = weights = weights or path
        self.config_file = path / "config.yaml"
        self.digests = digests = DigestList(path)
        self.metrics = JsonLog(path / "metrics.jsonl", _METRICS, digests=digests)
        self.timings = JsonLog(
            path / "timings.jsonl", TypeAdapter(records.TimingRecord), digests=digests
        )
        self.checkpoints = weights / "checkpoints"
        self.prefetched = path / "prefetched"
        self.initial_policy = weights / "initial"  # created from scratch, or from another run
        self.engine = weights / "engine"  # the model folder that vLLM starts from
        self.tensorboard = path / "tensorboard"
        self.wandb_id = TextFile(path / "wandb.id")  # the run's id on Weights & Biases
        self.profile = path / "profile"  # traces of updates, by number
        self.summary = JsonFile(
            path / "summary.json", TypeAdapter(records.SummaryRecord), digests=digests
        )
        self.report = path / "report.html"

    def stage(self, number: int) -> StageDirectory:
        """Return the files of a stage; stage 0 precedes training."""
        folder = Path("stages") / str(number)
        return StageDirectory(self.path / folder, self._weights / folder, self.digests)

    def report_atlas(self, stage: int) -> JsonFile[records.AtlasRecord]:
        """Return the atlas that was measured for the report (`engineer.atlas.after_last`)."""
        file = self.path / "atlases" / f"{stage}.json"
        return JsonFile(file, TypeAdapter(records.AtlasRecord), digests=self.digests)

    def stage_numbers(self) -> list[int]:
        """Return the stages that have a folder, ascending."""
        folders = (self.path / "stages").glob("*")
        return sorted(
            int(folder.name) for folder in folders if re.fullmatch("[0-9]{1,9}", folder.name)
        )

    def complete_stages(self) -> list[int]:
        """Return the stages that have digests, ascending."""
        return [number for number in self.stage_numbers() if self.stage(number).digests.exists()]

    def weights_after(self, stage: int) -> int:
        """Return the stage whose weights are in force after a stage, considering rollbacks."""
        gate = self.stage(stage).gate
        is_rolled_back = gate.exists() and gate.read().restored == "checkpoint"
        return gate.read().reference if is_rolled_back else stage

    def finished(self) -> bool:
        """Return whether the run is complete."""
        return self.summary.exists()

    def config(self) -> RunConfig:
        """Return the run's configuration; raise a `UserError` if it can't be read."""
        if not self.config_file.exists():
            reason = "it has no config.yaml" if self.path.exists() else "it does not exist"
            raise UserError(f"{self.path}: is not a run's directory: {reason}")
        require_plain_files(self.path)
        TextFile(self.config_file, digests=self.digests).read()  # compare it with its digest
        return load(self.config_file)

    def sealed_files(self) -> list[Path]:
        """Return the existing files that must have digests.

        These are the configuration, the records and the initial policy.
        """
        stages = [self.stage(number) for number in self.stage_numbers()]
        files = [file.path for stage in stages for file in stage.records()]
        atlases = sorted((self.path / "atlases").glob("*.json"))
        weights = sorted(self.initial_policy.glob("[!.]*"))
        paths = [self.config_file, *files, *atlases, self.summary.path, *weights]
        return [path for path in paths if path.is_file()]

    def require_intact(self) -> None:
        """Compare the files with their digests; a run without a list of digests passes.

        Raises:
            UserError: A file is missing or was changed, or a link points outside the directory.
        """
        if (entries := self.digests.entries()) is None:
            return
        paths = self.sealed_files()
        if not self.digests.has_folder(self.initial_policy):
            # The run was killed before it recorded the initial policy, which it creates again.
            paths = [path for path in paths if path.parent != self.initial_policy]
        self.digests.require_intact(entries, paths)

    def write_digest_list(self) -> None:
        """Write the digests of the current files."""
        self.digests.create(self.sealed_files())

    def seal_logs(self) -> None:
        """Record the digests of the completed logs."""
        for path in (self.metrics.path, self.timings.path):
            if path.exists():
                self.digests.record(path, file_digest(path))

    def log_digests(self, *files: Path) -> dict[str, tuple[int, str]]:
        """Return the size in bytes and the digest of each log and of `files`, by name."""
        return {
            path.relative_to(self.path).as_posix(): (path.stat().st_size, file_digest(path))
            for path in (self.metrics.path, self.timings.path, *files)
            if path.exists()
        }

    def require_unchanged_logs(self, digests: Mapping[str, Sequence[Any]]) -> None:
        """Raise a `UserError` if a file does not start with the content that was hashed.

        `digests` is a result of `log_digests`. Lines that were appended later are ignored.
        """
        for name, (size, digest) in digests.items():
            path = self.path / name
            try:
                with path.open("rb") as file:
                    content = file.read(size)
            except OSError as error:
                raise UserError(
                    f"{path}: can't be read: {error.strerror}; restore the file"
                ) from error
            if hashlib.sha256(content).hexdigest() != digest:
                raise UserError(
                    f"{path}: has changed since the newest checkpoint was saved; restore the file, "
                    "or remove the run's directory to start again"
                )

    def updates(self, stage: int | None = None) -> list[records.UpdateMetrics]:
        """Return the logged updates of a stage, or of all stages if `stage` is None."""
        return [
            record
            for record in self.metrics.read()
            if isinstance(record, records.UpdateMetrics) and stage in (None, record.stage)
        ]

    def rewind(self, step: int) -> None:
        """Drop log entries after `step`; a resumed run writes them again."""
        for log in (self.metrics, self.timings):
            self.digests.forget(log.path)
        if self.metrics.exists():
            self.metrics.write([record for record in self.metrics.read() if record.step <= step])
        if self.timings.exists():
            self.timings.write([timing for timing in self.timings.read() if timing.step <= step])

    def remove_dependent_files(self, stage: int, *, keep_validation: bool = False) -> bool:
        """Remove the files of a stage and of all later stages that depend on lost weights.

        Args:
            stage: The first stage whose results are lost. Its training records are kept.
            keep_validation: Whether to keep this stage's validation, gate and atlas too.

        Returns:
            Whether a file was removed.
        """
        folder = self.stage(stage)
        files = folder.design_files()
        if not keep_validation:
            files += [folder.episodes, folder.gate, folder.atlas, self.report_atlas(stage)]
        for number in self.stage_numbers():
            if number > stage:
                files += [*self.stage(number).records(), self.report_atlas(number)]
        existing_files = [file for file in files if file.exists()]
        for file in existing_files:
            file.remove()
        return bool(existing_files)

    def require_same_config(self, config: RunConfig) -> bool:
        """Return True for a run of this configuration, and False for an empty directory.

        The keys in `_MUTABLE_KEYS` may differ. If the policy learns to design, `model.mesh` must
        be equal, because every device adds a group of designs.

        Raises:
            UserError: The directory contains a run of another configuration, unrelated files, a
                pipe, or a link that points outside.
        """
        require_plain_files(self.path)
        if not self.config_file.exists():
            # Another process may have claimed the directory between these two checks.
            if not is_in_unused_folder(self.config_file) and not self.config_file.exists():
                raise UserError(
                    f"{self.path}: is not empty and contains no run; choose another --run-dir"
                )
            return False
        stored_tree = read_yaml(self.config_file)
        requested_tree = parse_yaml(dump(config))
        for tree in (stored_tree, requested_tree):
            for key in _MUTABLE_KEYS:
                if key != "model.mesh" or config.engineer.learning is None:
                    _remove_key(tree, key)
        if stored_tree != requested_tree:
            raise UserError(
                f"{self.path}: contains a run of another configuration, which differs in "
                f"{', '.join(differing_keys(stored_tree, requested_tree))}; choose another "
                "--run-dir, or remove it"
            )
        return True

    def claim(self, config: RunConfig) -> bool:
        """Claim the directory for this configuration; return whether it was already claimed.

        Raises:
            UserError: See `require_same_config`, or config.yaml can't be written.
        """
        if self.require_same_config(config):
            return True
        clear_unused_folder(self.config_file)
        try:
            is_first = write_text_if_absent(self.config_file, dump(config))
        except OSError as error:
            raise UserError(f"{self.config_file}: can't be written: {error.strerror}") from error
        return False if is_first else self.claim(config)


def _remove_key(tree: dict[Any, Any], key: str) -> None:
    """Remove a dotted key from a tree of mappings."""
    *parents, leaf = key.split(".")
    for parent in parents:
        subtree = tree.get(parent)
        tree = subtree if isinstance(subtree, dict) else {}
    tree.pop(leaf, None)


def differing_keys(stored: Any, requested: Any, key: str = "") -> list[str]:
    """Return the dotted keys in which two trees of mappings differ, each with both values."""
    if isinstance(stored, dict) and isinstance(requested, dict):
        differences = []
        for name in dict.fromkeys([*stored, *requested]):
            child = f"{key}.{name}" if key else str(name)
            differences += differing_keys(stored.get(name), requested.get(name), child)
        return differences
    return [] if stored == requested else [f"{key} ({stored!r} there, {requested!r} here)"]
