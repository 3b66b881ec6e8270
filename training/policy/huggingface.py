"""Read and write Hugging Face model folders: config.json, safetensors and tokenizer files."""

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from huggingface_hub import split_state_dict_into_shards_factory
from jax.sharding import Mesh
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from training.policy.architectures import DecoderConfig
from training.policy.decoder import Decoder
from training.policy.lora import merge_factors
from training.policy.model_folders import (
    CONFIG_FILE,
    TOKENIZER_FILES,
    ModelFolderError,
    replace_folder,
    restore_folder,
)
from training.policy.model_folders import PACKAGED_MODELS as PACKAGED_MODELS
from training.policy.model_folders import resolve_model as resolve_model
from training.policy.parameters import LORA_A, LORA_B, parameter_shapes, parameter_shardings
from training.processes import local_copy, put_on_devices

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
MAX_SHARD_BYTES = 5 * 10**9

_DTYPES = ("F32", "BF16", "F16")
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")

_ATTENTION_NAMES = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
_HEAD = "lm_head.weight"
_EMBEDDINGS = "model.embed_tokens.weight"
_ROWS_PER_READ = 4096


class _Tensor(NamedTuple):
    """A tensor in Hugging Face's layout, and the parameter that it belongs to."""

    name: str
    path: str  # dotted path of the parameter
    layer: int | None  # index of the layer in a stacked parameter
    is_transposed: bool
    shape: tuple[int, ...]


def load(
    folder: str | Path,
    *,
    dtype: DTypeLike = jnp.float32,
    param_dtype: DTypeLike = jnp.float32,
    remat: bool | str = False,
    mesh: Mesh | None = None,
) -> Decoder:
    """Load a decoder from a Hugging Face model folder.

    Peak memory is the size of the model plus its largest parameter. The folder of a tied model may
    contain its embeddings a second time as `lm_head.weight`.

    Args:
        folder: Folder with config.json and model.safetensors, or several shards and their index.
        dtype: dtype of matrix products and activations, see `Decoder`.
        param_dtype: dtype of the parameters; the tensors are converted to it.
        remat: Recomputation in the backward pass, see `Decoder`.
        mesh: Mesh over which each parameter is sharded while it is read. Batch sizes must be
            multiples of its fsdp axis. None uses one device.

    Raises:
        ModelFolderError: A file is missing, truncated or malformed, or requires an unsupported
            feature; or a tensor is missing, unexpected, not finite, or has the wrong shape or
            dtype.
        MeshError: The model can't be sharded over the mesh.
    """
    folder = Path(folder)
    restore_folder(folder)
    config = read_config(folder)
    shardings = {} if mesh is None else parameter_shardings(config, mesh)
    options: dict[str, Any] = {"param_dtype": param_dtype, "dtype": dtype, "remat": remat}
    graphdef, abstract_state = nnx.split(
        nnx.eval_shape(lambda: Decoder(config, rngs=nnx.Rngs(0), **options))
    )

    with contextlib.ExitStack() as stack:
        handles = _open_weights(folder, stack)
        _require_tensors(folder, config, handles)
        tensors_by_path: dict[str, list[_Tensor]] = {}
        for tensor in _list_tensors(config, untied=False):
            tensors_by_path.setdefault(tensor.path, []).append(tensor)

        def read_parameter(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
            name = ".".join(map(str, path))
            buffer = np.empty(leaf.shape, jnp.dtype(param_dtype))
            for tensor in tensors_by_path[name]:
                target = buffer if tensor.layer is None else buffer[tensor.layer]
                try:
                    value = handles[tensor.name].get_tensor(tensor.name)
                except (OSError, SafetensorError) as error:
                    raise ModelFolderError(f"{folder}: tensor {tensor.name}: {error}") from error
                target[...] = value.T if tensor.is_transposed else value
                if not np.isfinite(target).all():
                    raise ModelFolderError(f"{folder}: tensor {tensor.name} must be finite")
            return leaf.replace(put_on_devices(buffer, shardings.get(name)))

        model = nnx.merge(graphdef, nnx.map_state(read_parameter, abstract_state))
    model.mesh = mesh
    return model


def require_weights(folder: str | Path) -> None:
    """Raise the `ModelFolderError` that `load` would raise, without the check for finite values."""
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        _require_tensors(folder, read_config(folder), _open_weights(folder, stack))


def read_config(folder: str | Path) -> DecoderConfig:
    """Return the shape of a model; raise a `ModelFolderError` if it is missing or unsupported."""
    file = Path(folder) / CONFIG_FILE
    fields = read_json(file)
    try:
        return DecoderConfig.from_hf(fields)
    except ValueError as error:
        raise ModelFolderError(f"{file}: {error}") from error


def save(
    model: Decoder,
    folder: str | Path,
    *,
    tokenizer_from: Path | None,
    untied: bool = False,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> Path:
    """Write a model folder that transformers, vLLM and `load` can read, and return its path.

    The folder is replaced atomically (see `replace_folder`). Parameters keep their dtype.

    Args:
        model: The decoder.
        folder: Path of the folder; an existing folder is replaced.
        tokenizer_from: Folder, possibly the same, whose tokenizer files and special token ids are
            copied. None copies nothing.
        untied: Whether to write the head of a tied model as a separate tensor (see
            `vllm_sampler`).
        max_shard_bytes: Maximum size of a weight file in bytes. A single tensor is never split.

    Raises:
        ModelFolderError: `tokenizer_from` has no tokenizer files, `folder` is a file, or the
            weights can't be written.
    """
    folder = Path(folder)
    if folder.is_file():
        raise ModelFolderError(f"model folder {folder} must not be an existing file")
    with replace_folder(folder) as partial_folder:
        _write_weights(model, partial_folder, untied=untied, max_shard_bytes=max_shard_bytes)
        config = model.config.to_hf()
        config["tie_word_embeddings"] = model.config.tie_word_embeddings and not untied
        config["dtype"] = str(model.embed_tokens[...].dtype)
        if tokenizer_from is not None:
            config |= _copy_tokenizer(Path(tokenizer_from), partial_folder)
        _write_json(partial_folder / CONFIG_FILE, config)
    return folder


def state_tensors(model: Decoder, *, untied: bool = False) -> Iterator[tuple[str, jax.Array]]:
    """Yield the weights with Hugging Face's names and orientation (out, in), layer by layer.

    Each array is computed lazily, on the devices of its parameter. Adapters are merged into their
    kernels. In a run of several processes, all of them must iterate together. With `untied`, the
    head of a tied model follows as `lm_head.weight`.
    """
    return _compute_values(model, _list_tensors(model.config, untied=untied))


def params_from_tensors(
    graphdef: nnx.GraphDef, template: Any, tensors: Iterable[tuple[str, Any]], dtype: DTypeLike
) -> Any:
    """Return the parameters of a decoder from the tensors that `state_tensors` yields.

    The result has the structure and sharding of `template`.

    Raises:
        KeyError: A tensor is missing.
    """
    config = nnx.merge(graphdef, template).config
    arrays = dict(tensors)
    layers: dict[str, list[jax.Array]] = {}
    for tensor in _list_tensors(config, untied=False):
        value = arrays[tensor.name]
        layers.setdefault(tensor.path, []).append(value.T if tensor.is_transposed else value)

    def convert(path: tuple[Any, ...], leaf: nnx.Variable) -> nnx.Variable:
        name = ".".join(map(str, path))
        values = layers[name]
        value = jnp.stack(values) if name.startswith("layers.") else values[0]
        return leaf.replace(jnp.array(value, dtype, copy=True))

    return nnx.map_state(convert, template)


def _list_tensors(config: DecoderConfig, *, untied: bool) -> Iterator[_Tensor]:
    shapes = parameter_shapes(config)

    def make_tensor(path: str, layer: int | None = None) -> _Tensor:
        shape = shapes[path] if layer is None else shapes[path][1:]
        is_transposed = path.endswith("proj")  # Hugging Face stores kernels as (out, in)
        name = _hf_name(path, layer)
        return _Tensor(name, path, layer, is_transposed, shape[::-1] if is_transposed else shape)

    yield make_tensor("embed_tokens")
    for layer in range(config.num_hidden_layers):
        for path in shapes:
            if path.startswith("layers."):
                yield make_tensor(path, layer)
    yield make_tensor("norm")
    if not config.tie_word_embeddings:
        yield make_tensor("lm_head")
    elif untied:
        yield make_tensor("embed_tokens")._replace(name=_HEAD)


def _hf_name(path: str, layer: int | None) -> str:
    """Return Hugging Face's name of a parameter, or of its slice for one layer."""
    if path == "lm_head":
        return _HEAD
    name, kind = path.removeprefix("layers."), "weight"
    if name.endswith("_bias"):
        name, kind = name.removesuffix("_bias"), "bias"
    if layer is not None:
        prefix = "mlp." if name.endswith("proj") else ""
        if name in _ATTENTION_NAMES:
            prefix = "self_attn."
        name = f"layers.{layer}.{prefix}{name}"
    return f"model.{name}.{kind}"


def _compute_values(model: Decoder, tensors: Iterable[_Tensor]) -> Iterator[tuple[str, jax.Array]]:
    state = nnx.to_flat_state(nnx.state(model, nnx.Param))
    parameters = {".".join(map(str, path)): leaf[...] for path, leaf in state}
    for tensor in tensors:
        value = parameters[tensor.path]
        if model.lora is not None and tensor.path + LORA_A in parameters:
            factors = (parameters[tensor.path + suffix] for suffix in (LORA_A, LORA_B))
            value = _take_merged_layer(value, *factors, tensor.layer, model.lora.scale)
        elif tensor.layer is not None:
            value = _take_layer(value, tensor.layer, is_transposed=tensor.is_transposed)
        yield tensor.name, local_copy(value)


@partial(jax.jit, static_argnames="is_transposed")
def _take_layer(parameter: jax.Array, layer: jax.Array, *, is_transposed: bool) -> jax.Array:
    # The layer index is traced, so that this compiles once per shape instead of once per layer.
    value = jax.lax.dynamic_index_in_dim(parameter, layer, keepdims=False)
    return value.T if is_transposed else value


@jax.jit
def _take_merged_layer(
    kernel: jax.Array, factor_a: jax.Array, factor_b: jax.Array, layer: jax.Array, scale: jax.Array
) -> jax.Array:
    def take(parameter: jax.Array) -> jax.Array:
        return jax.lax.dynamic_index_in_dim(parameter, layer, keepdims=False)

    merged_kernel = merge_factors(take(kernel), take(factor_a), take(factor_b), scale)
    return merged_kernel.T


def _open_weights(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Return the open safetensors file of each tensor, by the tensor's name."""
    index = folder / INDEX_FILE
    weight_map: Any = {}
    if (folder / WEIGHTS_FILE).exists():
        files = [WEIGHTS_FILE]
    elif index.exists():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelFolderError(
                f"{index}: weight_map must map tensor names to files, got {weight_map!r:.300}"
            )
        files = sorted({str(file) for file in weight_map.values()})
    else:
        raise ModelFolderError(
            f"model folder {folder} has no {WEIGHTS_FILE} and no {INDEX_FILE}; convert weights of "
            "other formats with save_pretrained of transformers"
        )
    handles: dict[str, Any] = {}
    for file in files:
        try:
            handle = stack.enter_context(safe_open(folder / file, framework="numpy"))
        except FileNotFoundError as error:
            message = f"model folder {folder} has no {file}, which {INDEX_FILE} names"
            raise ModelFolderError(message) from error
        except (OSError, SafetensorError) as error:
            message = f"{folder / file}: truncated or not a safetensors file: {error}"
            raise ModelFolderError(message) from error
        for name in handle.keys():  # noqa: SIM118 (a handle is not a mapping)
            if str(weight_map.get(name, file)) == file:  # several files may contain the tensor
                handles[name] = handle
    return handles


def _require_tensors(folder: Path, config: DecoderConfig, handles: Mapping[str, Any]) -> None:
    if config.num_hidden_layers > len(handles):  # before the names of all layers are listed
        raise ModelFolderError(
            f"{folder / CONFIG_FILE}: num_hidden_layers must be less than the {len(handles)} "
            f"tensors of the folder, got {config.num_hidden_layers}"
        )
    expected_shapes = {tensor.name: tensor.shape for tensor in _list_tensors(config, untied=False)}
    missing_names = [name for name in expected_shapes if name not in handles]
    if missing_names:
        raise ModelFolderError(f"model folder {folder} has no {_format_tensors(missing_names)}")
    ignored_names = {_HEAD} if config.tie_word_embeddings else set()
    unexpected_names = sorted(
        name
        for name in set(handles) - set(expected_shapes) - ignored_names
        if not name.endswith(".rotary_emb.inv_freq")  # in old folders; derived from rope_theta
    )
    if unexpected_names:
        raise ModelFolderError(
            f"model folder {folder} contains {_format_tensors(unexpected_names)}, which do not "
            f"match its {CONFIG_FILE}"
        )
    for name, shape in expected_shapes.items():
        entry = handles[name].get_slice(name)
        actual_shape, dtype = tuple(entry.get_shape()), entry.get_dtype()
        if actual_shape != shape:
            raise ModelFolderError(
                f"{folder}: tensor {name} must have shape {shape} according to {CONFIG_FILE}, got "
                f"{actual_shape}"
            )
        if dtype not in _DTYPES:
            raise ModelFolderError(
                f"{folder}: tensor {name} must have dtype {', '.join(_DTYPES)}, got {dtype}"
            )
    if config.tie_word_embeddings and _HEAD in handles:
        _require_tied_head(folder, handles)


def _require_tied_head(folder: Path, handles: Mapping[str, Any]) -> None:
    """Raise a `ModelFolderError` if a tied model's head differs from its embeddings."""
    embeddings, head = (handles[name].get_slice(name) for name in (_EMBEDDINGS, _HEAD))
    is_equal = embeddings.get_shape() == head.get_shape()
    rows = embeddings.get_shape()[0] if is_equal else 0
    for start in range(0, rows, _ROWS_PER_READ):
        block = slice(start, min(start + _ROWS_PER_READ, rows))
        is_equal = is_equal and np.array_equal(embeddings[block], head[block])
    if not is_equal:
        raise ModelFolderError(
            f"{folder / CONFIG_FILE}: tie_word_embeddings is true, but {_HEAD} differs from "
            f"{_EMBEDDINGS}; set it to false, or remove {_HEAD} from the weights"
        )


def _format_tensors(names: list[str]) -> str:
    suffix = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"tensor {', '.join(names[:3]):.300}{suffix}"


def _write_weights(model: Decoder, folder: Path, *, untied: bool, max_shard_bytes: int) -> None:
    itemsize = model.embed_tokens[...].dtype.itemsize  # all parameters have the same dtype
    tensors = {tensor.name: tensor for tensor in _list_tensors(model.config, untied=untied)}
    shards = split_state_dict_into_shards_factory(
        tensors,
        get_storage_size=lambda tensor: prod(tensor.shape) * itemsize,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_shard_bytes,
    )
    for file, names in shards.filename_to_tensors.items():
        values = _compute_values(model, (tensors[name] for name in names))
        arrays = {name: np.ascontiguousarray(value) for name, value in values}
        try:
            save_file(arrays, folder / file, metadata={"format": "pt"})
        except SafetensorError as error:  # such as a full disk
            raise ModelFolderError(f"{folder / file}: can't be written: {error}") from error
    if shards.is_sharded:
        index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
        _write_json(folder / INDEX_FILE, index)


def _copy_tokenizer(source: Path, target: Path) -> dict[str, Any]:
    """Copy the tokenizer's files, and return the special token ids for config.json."""
    names = [name for name in TOKENIZER_FILES if (source / name).is_file()]
    if "tokenizer.json" not in names and "tokenizer_config.json" not in names:
        raise ModelFolderError(
            f"tokenizer_from {source} has neither tokenizer.json nor tokenizer_config.json"
        )
    for name in names:
        shutil.copyfile(source / name, target / name)
    if not (source / CONFIG_FILE).is_file():
        return {}
    fields = read_json(source / CONFIG_FILE)
    return {name: fields[name] for name in _TOKEN_IDS if name in fields}


def read_json(file: Path) -> dict[str, Any]:
    """Return a JSON object of a model folder; raise a `ModelFolderError` if it is invalid."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        problem = f"has no {file.name}" if file.parent.is_dir() else "does not exist"
        raise ModelFolderError(f"model folder {file.parent} {problem}") from error
    except OSError as error:
        raise ModelFolderError(f"{file} can't be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelFolderError(f"{file} must be a JSON object, got {type(content).__name__}")
    return content


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
