"""Export of a stage's policy, and the adapters of a run with `model.lora`."""

from typing import Any

from flax import nnx

from training.errors import UserError
from training.policy.lora import (
    adapter_tensors,
    get_frozen,
    get_trainable,
    load_adapters,
    save_adapters,
)
from training.processes import is_first, wait_for_all
from training.run.active_run import ActiveRun
from training.run.directory import RunDirectory
from training.weight_transfer.checksums import compute_version, weight_checksum


def export_stage(run: ActiveRun, params: Any, stage: int) -> None:
    """Write the policy of a stage, and its adapters if it has any."""
    files, lora = run.directory.stage(stage), run.config.model.lora
    if lora is not None:
        tensors = adapter_tensors(get_trainable(params))
        base_name = run.config.model.pretrained or run.config.name
        base_version = compute_base_version(params)
        if is_first():
            save_adapters(tensors, lora, files.adapters, base=base_version, base_name=base_name)
        wait_for_all(f"the adapters of stage {stage}")
    run.policy.export(params, files.policy)


def load_stage_adapters(directory: RunDirectory, params: Any, stage: int) -> Any:
    """Return the adapters of a stage; raise a `UserError` if the frozen weights have changed."""
    folder = directory.stage(stage).adapters
    adapters, base_version = load_adapters(folder, get_trainable(params))
    if base_version != (version := compute_base_version(params)):
        raise UserError(
            f"{folder}: its adapters belong to weights of version {base_version}, but "
            f"model.pretrained has version {version} now; restore the model that the run began with"
        )
    return adapters


def compute_base_version(params: Any) -> str:
    """Return the version of the frozen weights, in eight hexadecimal digits."""
    leaves = nnx.to_flat_state(get_frozen(params))
    checksums = {".".join(map(str, path)): weight_checksum(leaf[...]) for path, leaf in leaves}
    # Checksums are replicated, so the data of one device suffice.
    return compute_version({name: value.addressable_data(0) for name, value in checksums.items()})
