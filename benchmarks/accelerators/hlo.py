"""A compiled program as text: its loops, how many kernels each body launches, and bytes moved.

Everything here is read from the text that XLA prints, and nothing from the program that made it.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

KERNELS = frozenset(
    {
        *("fusion", "custom-call", "sort", "copy", "dot", "convolution", "scatter", "gather"),
        *("reduce", "reduce-window", "dynamic-slice", "dynamic-update-slice", "transpose"),
        *("rng-bit-generator", "concatenate", "broadcast", "iota", "pad", "slice", "reverse"),
        *("reshape", "cholesky", "copy-start"),
        *("all-gather", "all-gather-start", "all-reduce", "all-reduce-start", "reduce-scatter"),
        *("all-to-all", "collective-permute", "collective-permute-start"),
    }
)
"""Instructions each of which is a kernel, or a copy, where it stands outside a fusion."""

ENTRY_BY_ENTRY = frozenset(
    {
        *("abs", "add", "and", "bitcast-convert", "cbrt", "ceil", "clamp", "compare", "convert"),
        *("cosine", "count-leading-zeros", "divide", "exponential", "floor", "is-finite", "log"),
        *("maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "power", "remainder"),
        *("round-nearest-afz", "round-nearest-even", "rsqrt", "select", "shift-left", "sign"),
        *("shift-right-arithmetic", "shift-right-logical", "sine", "sqrt", "subtract", "tanh"),
        "xor",
    }
)
"""Instructions that are kernels of arrays. A compiler for GPUs puts them all into fusions. A TPU
computes single numbers where it runs the program, between its kernels."""

_BITS = {"pred": 8, "token": 0, "f8e4m3fn": 8, "bf16": 16}
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (.+)$")
_OPERATION = re.compile(r"\s([a-z][a-z0-9\-]*)\((.*)$")
_ARRAY = re.compile(r"\b([a-z][a-z0-9]*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(calls|body|condition|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
_LOOP_NAME = re.compile(r"loop(\d+)_")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_SCALAR_ADDRESSES = ("dynamic-slice", "gather")
_UPDATES = {"dynamic-update-slice": 1, "scatter": 2}
"""Instructions that change their first operand in place, and which operand is new."""


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    root: bool
    shape: str  # as it is written, layouts included
    operation: str
    operands: tuple[str, ...]
    rest: str  # everything after the operation's name


@dataclass
class Body:
    """What one computation does each time it runs, with the loops inside it."""

    label: str  # "program", "loop" or "test"
    number: int | None = None  # of the traced loop, where the compiler kept its name
    trips: int | None = None  # where the compiler knows them
    launches: int = 0
    bytes: int = 0
    conditions: int = 0  # decisions that depend on data: conditionals
    loops: list["Body"] = field(default_factory=list)
    test: "Body | None" = None  # of a loop whose trips nobody knows: what it asks with


def read_program(text: str) -> Body:
    """Read the text of a compiled program."""
    computations, entry = _parse(text)
    return _body(computations, entry, Body("program"))


def _whole_lines(text: str) -> Iterator[str]:
    """Yield the lines of a program; attributes that span several are put on their instruction's."""
    instruction = ""
    for line in text.split("\n"):
        begins = _INSTRUCTION.match(line)
        if instruction and not begins and line != "}":
            instruction += f" {line}"
            continue
        if instruction:
            yield instruction
        instruction = line if begins else ""
        if not begins:
            yield line
    if instruction:
        yield instruction


def _parse(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in _whole_lines(text):
        if head := _HEAD.match(line):
            current = computations.setdefault(head.group(2), [])
            entry = head.group(2) if head.group(1) else entry
        elif line == "}":
            current = None
        elif current is not None and (found := _INSTRUCTION.match(line)):
            # Shapes of tuples hold spaces and comments, never a word before a bracket.
            operation = _OPERATION.search(" " + re.sub(r"/\*.*?\*/", "", found.group(3)))
            if operation:
                shape = found.group(3)[: max(operation.start() - 1, 0)]
                current.append(
                    Instruction(
                        found.group(2),
                        bool(found.group(1)),
                        shape,
                        operation.group(1),
                        tuple(re.findall(r"%([\w.\-]+)", operation.group(2).split("), ")[0])),
                        operation.group(2),
                    )
                )
    return computations, entry


def _body(computations: dict[str, list[Instruction]], name: str, body: Body) -> Body:
    """Add to `body` what a computation does: its kernels, its calls, and its loops."""
    shapes = {one.name: one.shape for one in computations.get(name, [])}
    for one in computations.get(name, []):
        called = dict(_CALLED.findall(one.rest))
        if one.operation == "while":
            trips = _TRIPS.search(one.rest)
            number = _number_of(one.rest)
            inner = Body("loop", number, int(trips.group(1)) if trips else None)
            _body(computations, called["body"], inner)
            if inner.trips is None:
                inner.test = _body(computations, called["condition"], Body("test"))
            body.loops.append(inner)
        elif one.operation == "conditional":
            body.conditions += 1
            branches = _BRANCHES.search(one.rest)
            names = re.findall(r"[\w.\-]+", branches.group(1)) if branches else ()
            for branch in names or (called["true_computation"], called["false_computation"]):
                _body(computations, branch, body)
        elif one.operation in ("call", "async-start"):
            inside = called.get("to_apply") or called.get("calls") or ""
            _body(computations, inside, body)
        elif is_kernel(one):
            body.launches += 1
            body.bytes += _bytes_moved(one, shapes, computations.get(called.get("calls", ""), []))
    return body


def is_kernel(one: Instruction) -> bool:
    """Say whether an instruction that stands outside a fusion is launched."""
    if one.operation in ENTRY_BY_ENTRY:
        return _entries(one.shape) > 1
    return one.operation in KERNELS and size(one.shape) > 0


def _number_of(rest: str) -> int | None:
    """Return the number of the traced loop that an instruction was made from, if it is a loop."""
    found = _OP_NAME.search(rest)
    if not found or not re.search(r"loop\d+_/while(\[.*\])?$", found.group(1)):
        return None
    return int(_LOOP_NAME.findall(found.group(1))[-1])


def size(shape: str) -> int:
    """Return the bytes of all arrays in a shape."""
    total = 0
    for kind, sides in _ARRAY.findall(shape.split("{")[0] if shape[:1] != "(" else shape):
        bits = _BITS.get(kind) or int(re.sub(r"\D", "", kind) or 0)
        total += math.prod(int(side) for side in sides.split(",") if side) * bits // 8
    return total


def _bytes_moved(one: Instruction, shapes: dict[str, str], fused: list[Instruction]) -> int:
    """Count what a kernel reads and writes; of arrays that it only looks into, what it looks at."""
    if one.operation == "dynamic-update-slice":
        return 2 * size(shapes.get(one.operands[1], ""))
    if one.operation == "scatter":
        return size(shapes.get(one.operands[1], "")) + 2 * size(shapes.get(one.operands[2], ""))
    if one.operation in _SCALAR_ADDRESSES:
        return 2 * size(one.shape)
    if not fused:
        return size(one.shape) + sum(size(shapes.get(name, "")) for name in one.operands)
    inner = {line.name: line for line in fused}
    written = 0
    root = next((line for line in fused if line.root), fused[-1])
    for result in [inner[n] for n in root.operands] if root.operation == "tuple" else [root]:
        new = _UPDATES.get(result.operation)
        written += size(result.shape if new is None else inner[result.operands[new]].shape)
    return written + _bytes_read(fused, root)


def _bytes_read(fused: list[Instruction], root: Instruction) -> int:
    """Count what a fused computation reads of its parameters, seen from its results.

    Of what is sliced only the slice is needed, also of what stands before it, entry by entry. An
    array that is written in place isn't read.
    """
    needed = dict.fromkeys((line.name for line in fused), 0.0)  # entries
    needed[root.name] = _entries(root.shape)
    of = {line.name: line for line in fused}
    for line in reversed(fused):  # an instruction stands behind its operands
        for place, name in enumerate(line.operands):
            if name not in needed:
                continue
            whole, made = _entries(of[name].shape), _entries(line.shape)
            wanted = needed[line.name]
            if line.operation in _UPDATES and place == 0:
                wanted = 0.0
            elif line.operation == "tuple" or (line.operation in _UPDATES and place > 0):
                wanted = whole
            elif not (place == 0 and line.operation in (*_SCALAR_ADDRESSES, "slice")):
                wanted *= max(1.0, whole / max(made, 1))
            needed[name] = min(whole, needed[name] + wanted)
    parameters = [line for line in fused if line.operation == "parameter"]
    shares = ((line, needed[line.name] / max(_entries(line.shape), 1)) for line in parameters)
    return round(sum(size(line.shape) * share for line, share in shares))


def _entries(shape: str) -> int:
    """Return the entries of all arrays in a shape."""
    found = _ARRAY.findall(shape.split("{")[0] if shape[:1] != "(" else shape)
    return sum(math.prod(int(side) for side in sides.split(",") if side) for _, sides in found)
