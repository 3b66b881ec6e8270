"""What a compiled update does: products, traffic of memory and between devices, forbidden arrays.

All of it is read from the text that XLA prints. The products are counted a second time in the
program before it is compiled, where every one of them is a `dot_general`: both have to agree.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from benchmarks.accelerators import hlo
from benchmarks.trainee.attention_kernels import kernel_bytes, kernel_flops

COLLECTIVES = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
_PRODUCTS = ("dot", "convolution")
_IN_STEP = '"is_sync":true'  # of a start whose done comes right behind it
_SHAPE = re.compile(r"\b(?:f32|bf16|f16)\[([\d,]+)\]")


@dataclass(frozen=True)
class Pace:
    """How fast a kernel is taken to be."""

    flops: float  # operations per second of its matrix products
    attention: float  # the same, of kernels for attention
    bandwidth: float  # bytes per second that it reads and writes
    launch: float  # seconds that it takes at least
    sent: float  # bytes per second that a device sends to others


@dataclass
class Traffic:
    """What one device does in a whole update."""

    launches: int = 0
    flops: float = 0.0  # of matrix products
    product_seconds: float = 0.0  # of kernels with a matrix product, but those for attention
    attention_seconds: float = 0.0  # of kernels for attention
    other_seconds: float = 0.0  # of all others but collectives
    waiting_seconds: float = 0.0  # for collectives, beside which no kernel runs
    collectives: Counter[str] = field(default_factory=Counter)  # calls by kind
    sent: Counter[str] = field(default_factory=Counter)  # bytes by kind


def read_traffic(text: str, pace: Pace, *, micro_batches: int, devices: int) -> Traffic:
    """Add up a compiled program; its loop of unknown length is that over micro-batches.

    A kernel takes as long as its launch, its bytes or its products, whichever is the longest. A
    collective that the compiler has split into a start and a done runs beside the kernels between
    them, one collective after the other; what is left of it then is waited for.
    """
    computations, entry = hlo._parse(text)
    total = Traffic()

    def products(name: str) -> float:
        """Add up the products in a fused computation, and in those that it calls."""
        lines = computations.get(name, [])
        shapes = {one.name: one.shape for one in lines}
        inside = (dict(hlo._CALLED.findall(one.rest)).get("calls", "") for one in lines)
        return sum(_flops(one, shapes) for one in lines) + sum(map(products, filter(None, inside)))

    def walk(name: str, times: int) -> float:
        """Add up `times` runs of a computation; return the seconds of one."""
        lines = computations.get(name, [])
        shapes = {one.name: one.shape for one in lines}
        now, link_free, ends = 0.0, 0.0, dict[str, float]()
        for one in lines:
            called = dict(hlo._CALLED.findall(one.rest))
            inner = called.get("calls") or called.get("to_apply") or ""
            kind = one.operation.removesuffix("-start")
            if one.operation == "while":
                trips = _trips(one, computations.get(called["condition"], [])) or micro_batches
                now += trips * walk(called["body"], times * trips)
            elif kind in COLLECTIVES:
                total.launches += times
                total.collectives[kind] += times
                sent = _sent(one, kind, shapes, devices)
                total.sent[kind] += times * sent
                link_free = max(now, link_free) + sent / pace.sent
                if one.operation == kind or _IN_STEP in one.rest:
                    total.waiting_seconds += times * (link_free - now)
                    now = link_free
                else:
                    ends[one.name] = link_free
            elif one.operation.endswith("-done") and one.operands[0] in ends:
                wait = max(0.0, ends[one.operands[0]] - now)
                total.waiting_seconds += times * wait
                now += wait
            elif one.operation in ("call", "async-start") or (
                one.operation == "fusion"
                and any(line.operation in COLLECTIVES for line in computations.get(inner, []))
            ):
                now += walk(inner, times)
            elif hlo.is_kernel(one):
                attention, known = _attention(one, shapes)
                flops = _flops(one, shapes) + products(inner) + attention
                moved = known or hlo._bytes_moved(one, shapes, computations.get(inner, []))
                reached = pace.attention if attention else pace.flops
                seconds = max(pace.launch, moved / pace.bandwidth, flops / reached)
                now += seconds
                total.launches += times
                total.flops += times * flops
                if attention:
                    total.attention_seconds += times * seconds
                elif flops:
                    total.product_seconds += times * seconds
                else:
                    total.other_seconds += times * seconds
        return now

    walk(entry, 1)
    return total


def _trips(loop: hlo.Instruction, condition: list[hlo.Instruction]) -> int | None:
    """Return how often a loop runs: as XLA says, or up to the constant that it counts to, from 0.

    For TPUs XLA does not say it. None: the length is not a constant.
    """
    if said := hlo._TRIPS.search(loop.rest):
        return int(said.group(1))
    lines = {one.name: one for one in condition}
    compared = [one for one in condition if one.root and one.operation == "compare"]
    if not compared or "direction=LT" not in compared[0].rest:
        return None
    limit = lines.get(compared[0].operands[1])
    if limit is None or limit.operation != "constant":
        return None
    return int(limit.rest.split(")")[0])


def _flops(one: hlo.Instruction, shapes: dict[str, str]) -> float:
    """Count two operations for each multiplication of a product; 0 for other instructions."""
    if one.operation not in _PRODUCTS:
        return 0.0
    if one.operation == "dot":
        left = _sides(shapes.get(one.operands[0], ""))
        named = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.rest)
        axes = named.group(1).split(",") if named and named.group(1) else []
        return 2.0 * prod(_sides(one.shape)) * prod(left[int(axis)] for axis in axes)
    # TPUs write products as convolutions. Their axes beside rows and columns are windows, of whose
    # places only those count that meet an entry, and neither padding nor a gap between entries.
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.rest)
    if labels is None:
        return 0.0
    left, right = (_sides(shapes.get(name, "")) for name in one.operands[:2])
    out = _sides(one.shape)
    window = re.search(r"window=\{([^}]*)\}", one.rest)
    parts = dict(part.split("=") for part in window.group(1).split()) if window else {}
    multiplied = float(prod(out)) * right[labels.group(2).index("i")]
    for number, size in enumerate(parts.get("size", "").split("x") if window else ()):
        axis = str(number)
        places = out[labels.group(3).index(axis)]
        met = _places_met(left[labels.group(1).index(axis)], int(size), places, number, parts)
        multiplied *= met / places
    return 2.0 * multiplied


def _places_met(entries: int, size: int, places: int, axis: int, window: dict[str, str]) -> int:
    """Count along one axis of a convolution the pairs of an output and an entry in its window."""

    def of(name: str, default: str) -> str:
        return window[name].split("x")[axis] if name in window else default

    stride, gap = int(of("stride", "1")), int(of("lhs_dilate", "1"))
    before = int(of("pad", "0_0").split("_")[0])
    outputs = np.arange(places)[:, None] * stride
    met = outputs + np.arange(size)[None] * int(of("rhs_dilate", "1")) - before
    return int(((met >= 0) & (met <= (entries - 1) * gap) & (met % gap == 0)).sum())


def _attention(one: hlo.Instruction, shapes: dict[str, str]) -> tuple[float, float | None]:
    """Return the operations of a kernel for attention, and its bytes where they are known."""
    if one.operation != "custom-call":
        return 0.0, None
    named = hlo._OP_NAME.search(one.rest)
    name = named.group(1) if named else ""
    written = (shapes.get(name, "") for name in one.operands)
    operands = [_sides(shape) for shape in written if _SHAPE.match(shape)]
    results = [_sides(one.shape)]
    return kernel_flops(name, operands, results), kernel_bytes(name, operands, results)


def _sides(shape: str) -> list[int]:
    found = hlo._ARRAY.search(shape)
    return [int(side) for side in found.group(2).split(",") if side] if found else []


def _sent(one: hlo.Instruction, kind: str, shapes: dict[str, str], devices: int) -> int:
    """Return the bytes that each device sends, in a ring of all of them."""
    others = (devices - 1) / devices
    read = sum(hlo.size(shapes.get(name, "")) for name in one.operands)
    if kind == "all-gather":
        return int(read * (devices - 1))
    return int(read * others * (2 if kind == "all-reduce" else 1))


def product_flops(program: ClosedJaxpr | Jaxpr, *, micro_batches: int, devices: int) -> float:
    """Count two operations for each multiplication in the matrix products of a traced program."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    total = 0.0
    equations: Any = jaxpr.eqns  # whose values all have shapes
    for equation in equations:
        name, params = equation.primitive.name, equation.params
        if name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            depth = prod(left[axis] for axis in contracted)
            total += 2.0 * prod(equation.outvars[0].aval.shape) * depth
            continue
        if name == "pallas_call":
            operands, results = (
                [one.aval.shape for one in side if jnp.issubdtype(one.aval.dtype, jnp.floating)]
                for side in (equation.invars, equation.outvars)
            )
            total += kernel_flops(str(params["name"]), operands, results)
            continue
        times = 1
        if name == "scan":
            times = params["length"]
        elif name == "while":
            times = micro_batches
        elif name == "shard_map":
            times = devices  # what is written there is what each device does
        for value in params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if isinstance(inner, ClosedJaxpr | Jaxpr):
                    total += times * product_flops(
                        inner, micro_batches=micro_batches, devices=devices
                    )
    return total


def forbidden_arrays(
    text: str, *, vocabulary: set[int], hidden: set[int], queries: int, keys: int
) -> dict[str, list[str]]:
    """List arrays that hold the logits, or the attention scores, of a whole sequence.

    Logits: along one axis a vocabulary, along the others at least `queries` positions. (The output
    embedding itself, whose other axis is one of `hidden`, is none.) Scores: an axis of all queries
    and an axis of all keys, which are more.
    """
    found: dict[str, list[str]] = {"logits": [], "scores": []}
    for sides in sorted(set(_SHAPE.findall(text))):
        sizes = [int(side) for side in sides.split(",") if side != "1"]
        for size in vocabulary & set(sizes):
            others = list(sizes)
            others.remove(size)
            if prod(others) >= queries and not set(others) & hidden:
                found["logits"].append(sides)
        if queries in sizes and keys in sizes:
            found["scores"].append(sides)
    return found
