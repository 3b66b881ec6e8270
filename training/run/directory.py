"""A run's directory: plain files, each with one data model, one reader and one writer."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from engineer import Attempt, Configuration
from engineer.scoring.reading import ReadingReport
from jaxlake.files import (
    clean_empty_parent,
    has_empty_parent,
    require_plain_files,
    write_text_if_absent,
)
from training.errors import UserError
from training.run import records
from training.run.digests import file_digest
from training.run.digest_list import DigestList
from training.run.typed_files import File, JsonFile, JsonLinesFile, JsonLog, TextFile
from training.schema import RunConfig, dump, load, parse_yaml, read_yaml

_CONFIGURATION: TypeAdapter[Configuration] = TypeAdapter(records.StoredConfiguration)
_METRICS: TypeAdapter[records.Metrics] = TypeAdapter(records.Metrics)

# Keys that may change when a run is resumed: they affect at most rounding.
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

    def __init__(self, path: Path, weights: Path | None = None, digest_list: DigestList | None = None) -> None:
        """Define the files without reading or writing them.

        Args:
            path: The stage's folder.
            weights: The folder of its weights, if it is another one.
            digest_list: The digests of the run's files.
        """
        self.path = path
        # Stage 0 only: the history of the run that this run started from.
        self.start = JsonFile(path / "start.json", TypeAdapter(records.StartRecord), digest_list=digest_list)
        # The configuration that the stage trained on; stage 0 has none.
        self.configuration = JsonFile(path / "configuration.json", _CONFIGURATION, digest_list=digest_list)
        # The answers to the pool from which its instances were picked, if any.
        self.picks = JsonFile(path / "picks.json", TypeAdapter(records.PicksRecord), digest_list=digest_list)
        # Requests that could not be filled, and statistics of its instances by group.
        shortfalls = TypeAdapter(list[records.RequestOutcome])
        self.shortfalls = JsonFile(path / "shortfalls.json", shortfalls, digest_list=digest_list)
        statistics = TypeAdapter(dict[str, dict[str, float]])
        self.environment = JsonFile(path / "environment.json", statistics, digest_list=digest_list)
        # The answers to the validation set, written at the end of the Validate phase.
        self.episodes = JsonLinesFile(
            path / "episodes.jsonl", TypeAdapter(records.EpisodeRecord), digest_list=digest_list
        )
        # The gate's decision whether to roll the stage back.
        self.gate = JsonFile(path / "gate.json", TypeAdapter(records.GateRecord), digest_list=digest_list)
        # Folder of the final weights, in the Hugging Face layout.
        self.policy = (weights or path) / "policy"
        # Folder of the final adapters, if the run trains adapters (`model.lora`).
        self.adapters = (weights or path) / "adapters"
        # The engineer's measurements before its design, if it uses an atlas.
        self.atlas = JsonFile(path / "atlas.json", TypeAdapter(records.AtlasRecord), digest_list=digest_list)
        # The engineer's first prompt, and all of its prompts and answers.
        self.context = TextFile(path / "context.txt", digest_list=digest_list)
        self.answers = JsonLinesFile(path / "answers.jsonl", TypeAdapter(Attempt), digest_list=digest_list)
        # Updates in which the policy learned from its own designs, if any.
        self.design_learning = JsonLinesFile(
            path / "design_learning.jsonl", TypeAdapter(records.DesignUpdateRecord), digest_list=digest_list
        )
        # How well the weights in force read compact contexts, if measured.
        self.reading = JsonFile(path / "reading.json", TypeAdapter(ReadingReport), digest_list=digest_list)
        # The engineer's notes for the next stage (its Summary block), and the prompt for them.
        self.notes = TextFile(path / "summary.txt", digest_list=digest_list)
        self.notes_prompt = TextFile(path / "summary_prompt.txt", digest_list=digest_list)
        # The configuration of the next stage, written last in the Design phase.
        self.decision = JsonFile(
            path / "decision.json", TypeAdapter(records.DecisionRecord), digest_list=digest_list
        )
        # Digests of these files, written when the stage is complete (training/audit).
        self.digests = JsonFile(path / "digests.json", TypeAdapter(records.StageDigests), digest_list=digest_list)

    def records(self) -> list[File]:
        """Return all files except weights, whether they exist or not."""
        return [part for part in vars(self).values() if isinstance(part, File)]

    def training_files(self) -> list[File]:
        """Return the files of a trained stage that don't depend on the engineer."""
        trained: list[File] = [self.configuration, self.shortfalls, self.environment]
        return [*trained, self.picks, self.episodes]

    def design_files(self) -> list[File]:
        """Return the files that depend on the weights used in the Design phase."""
        exchange: list[File] = [self.design_learning, self.context, self.answers]
        notes: list[File] = [self.reading, self.notes, self.notes_prompt]
        return [*exchange, *notes, self.decision, self.digests]


_PATTERN = "*?[\\"


def require_literal_path(path: Path) -> None:
    """Raise a `UserError` if Orbax would interpret a path as a pattern and lose checkpoints."""
    special = [letter for letter in str(path.absolute()) if letter in _PATTERN]
    if special:
        raise UserError(
            f"{path.absolute()}: the path contains {special[0]!r}, which Orbax interprets as a "
            f"pattern; allowed are paths without {' '.join(_PATTERN)}"
        )


class RunDirectory:
    """The files of a run: those of its stages, its logs and its folders of weights."""

    def __init__(self, path: Path, weights: Path | None = None) -> None:
        """Define the files of the run in `path`; its weights are below `weights` if given."""
        self.path = path
        self._weights = weights = weights or path
        self.config_file = path / "config.yaml"
        self.digest_list = digest_list = DigestList(path)
        self.metrics = JsonLog(path / "metrics.jsonl", _METRICS, digest_list=digest_list)
        self.timings = JsonLog(path / "timings.jsonl", TypeAdapter(records.TimingRecord), digest_list=digest_list)
        self.checkpoints = weights / "checkpoints"
        self.prefetched = path / "prefetched"
        self.initial_policy = weights / "initial"  # created from scratch, or from another run
        self.engine = weights / "engine"  # the model folder that vLLM starts from
        self.tensorboard = path / "tensorboard"
        self.wandb_id = TextFile(path / "wandb.id")  # the run's id on Weights & Biases
        self.profile = path / "profile"  # traces of updates, by number
        self.summary = JsonFile(
            path / "summary.json", TypeAdapter(records.SummaryRecord), digest_list=digest_list
        )
        self.report = path / "report.html"

    def stage(self, number: int) -> StageDirectory:
        """Return the files of a stage; stage 0 precedes training."""
        place = Path("stages") / str(number)
        return StageDirectory(self.path / place, self._weights / place, self.digest_list)

    def report_atlas(self, stage: int) -> JsonFile[records.AtlasRecord]:
        """Return the atlas that was measured for the report (`engineer.atlas.after_last`)."""
        file = self.path / "atlases" / f"{stage}.json"
        return JsonFile(file, TypeAdapter(records.AtlasRecord), digest_list=self.digest_list)

    def stage_numbers(self) -> list[int]:
        """Return the stages that have a folder, ascending."""
        folders = (self.path / "stages").glob("*")
        return sorted(
            int(folder.name) for folder in folders if re.fullmatch("[0-9]{1,9}", folder.name)
        )

    def weights_after(self, stage: int) -> int:
        """Return the stage whose weights are in force after a stage, considering rollbacks."""
        gate = self.stage(stage).gate
        taken_back = gate.exists() and gate.read().restored == "checkpoint"
        return gate.read().reference if taken_back else stage

    def finished(self) -> bool:
        """Return whether the run is complete."""
        return self.summary.exists()

    def config(self) -> RunConfig:
        """Return the run's configuration; raise a `UserError` if it can't be read."""
        if not self.config_file.exists():
            why = "it has no config.yaml" if self.path.exists() else "it does not exist"
            raise UserError(f"{self.path}: is not a run's directory, {why}")
        require_plain_files(self.path)
        TextFile(self.config_file, digest_list=self.digest_list).read()  # as the run wrote it
        return load(self.config_file)

    def sealed_files(self) -> list[Path]:
        """Return the existing files that have digests: records, configuration, first policy."""
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
        if (entries := self.digest_list.entries()) is None:
            return
        # The first policy is created again if the run was killed before its digests were written.
        unfinished = self.initial_policy if not self.digest_list.has_folder(self.initial_policy) else ""
        self.digest_list.require_intact(
            entries, [path for path in self.sealed_files() if path.parent != unfinished]
        )

    def write_digest_list(self) -> None:
        """Write the digests of the current files."""
        self.digest_list.create(self.sealed_files())

    def seal_logs(self) -> None:
        """Add the digests of the logs, which are complete."""
        for path in (self.metrics.path, self.timings.path):
            if path.exists():
                self.digest_list.record(path, file_digest(path))

    def log_digests(self, *others: Path) -> dict[str, tuple[int, str]]:
        """Return the current sizes (bytes) and digests of the logs and of `others` by name."""
        paths = [path for path in (self.metrics.path, self.timings.path, *others) if path.exists()]
        return {
            path.relative_to(self.path).as_posix(): (path.stat().st_size, file_digest(path))
            for path in paths
        }

    def require_unchanged_logs(self, digests: Mapping[str, Sequence[Any]]) -> None:
        """Raise a `UserError` unless files start with the contents hashed by `log_digests`."""
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
        """Return the logged updates of a stage, or of all stages if `stage` is None."""
        updates = (one for one in self.metrics.read() if isinstance(one, records.UpdateMetrics))
        return [update for update in updates if stage in (None, update.stage)]

    def rewind(self, step: int) -> None:
        """Drop log entries after `step`; a resumed run writes them again."""
        for log in (self.metrics, self.timings):
            self.digest_list.forget(log.path)
        if self.metrics.exists():
            self.metrics.write([record for record in self.metrics.read() if record.step <= step])
        if self.timings.exists():
            self.timings.write([timing for timing in self.timings.read() if timing.step <= step])

    def remove_dependent_files(self, stage: int, *, designed: bool = False) -> bool:
        """Remove the files that depend on lost weights, in a stage and all later ones.

        Args:
            stage: The first stage concerned. Its files from validation on are removed.
            designed: Whether to keep the stage's validation and remove only its Design phase.

        Returns:
            Whether a file was removed.
        """
        first = self.stage(stage)
        files: list[File] = [] if designed else [first.episodes, first.gate, first.atlas]
        files += first\.design_files()
        for number in self.stage_numbers():
            if number > stage:
                files += [*self.stage(number).records(), self.report_atlas(number)]
        if not designed:
            files.append(self.report_atlas(stage))
        existing = [file for file in files if file.exists()]
        for file in existing:
            file.remove()
        return bool(existing)

    def require_same_config(self, config: RunConfig) -> bool:
        """Return whether the directory holds a run of this configuration; False if it is empty.

        Keys of `_MAY_CHANGE` may differ, except `model.mesh` if the policy learns to design, since
        every device adds a group then.

        Raises:
            UserError: It holds a run of another configuration, unrelated files, a pipe, or a link
                that points outside.
        """
        require_plain_files(self.path)
        if not self.config_file.exists():
            # Another process may have claimed it between these two checks.
            if not has_empty_parent(self.config_file) and not self.config_file.exists():
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
        """Claim the directory for this configuration; return whether it was already claimed.

        Raises:
            UserError: See `require_same_config`; or config.yaml can't be written.
        """
        if self.require_same_config(config):
            return True
        clean_empty_parent(self.config_file)
        try:
            first = write_text_if_absent(self.config_file, dump(config))
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
    """Return the dotted keys in which two trees of mappings differ, each with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [
            difference
            for name in dict.fromkeys([*theirs, *ours])
            for difference in differing_keys(
                theirs.get(name), ours.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if theirs == ours else [f"{key} ({theirs!r} there, {ours!r} here)"]
