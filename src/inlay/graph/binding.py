"""Dims that a model leaves open, bound to numbers.

An open dim has a name in the model, such as `batch` or `height`, or none. Either way it can be named by the input and
the axis, `x[2]`. The batch is axis 0 of every input where that is open.
"""

from collections.abc import Iterator, Mapping

from inlay.arguments import index_of
from inlay.errors import InvalidArguments, Unimplemented
from inlay.graph.network import Tensor
from inlay.graph.stored import Proto, element_type
from inlay.layout import Dims
from inlay.printable import printable


def bound_inputs(graph: Proto, dims: Mapping[str, int] | None, batch: int | None) -> list[Tensor]:
    """The inputs of a graph with every dim a number.

    Raises:
        InvalidArguments: a dim is left open, a name is of no dim, or a number is below 1.
        Unimplemented: an input is no tensor of numbers, or its rank is unknown.
    """
    if dims is not None and not isinstance(dims, Mapping):
        raise InvalidArguments(f"dims are a {type(dims).__name__}: give a mapping of names to numbers")
    wanted = {name: _extent(f"dims[{name!r}]", value) for name, value in (dims or {}).items()}
    first = None if batch is None else _extent("batch", batch)
    used: set[str] = set()
    inputs = [_bound(value, wanted, first, used) for value in graph.input]
    unused = [name for name in wanted if name not in used]
    if unused:
        raise InvalidArguments(
            f"dims names {unused[0]!r}, and the model leaves open {_open_dims(graph)}: name one of them"
        )
    return inputs


def rebound_inputs(graph: Proto, dims: Mapping[str, Dims], batch: int | None = None) -> list[Tensor]:
    """The inputs of a graph with these dims, by name; axis 0 is `batch`, where that is given.

    Raises:
        InvalidArguments: an input is missing or unknown, or its dims are not what the model and `batch` say.
    """
    first = None if batch is None else _extent("batch", batch)
    names = [value.name for value in graph.input]
    if set(names) != set(dims):
        given = ", ".join(sorted(dims)) or "no input"
        raise InvalidArguments(
            f"dims are given for {given}, and the inputs are {', '.join(map(printable, names))}: give each its dims"
        )
    for value in graph.input:
        said = tuple(_fixed(dim) for dim in value.type.tensor_type.shape.dim)
        new = dims[value.name]
        if len(said) != len(new) or any(n is not None and n != m for n, m in zip(said, new, strict=True)):
            shown = ", ".join("open" if n is None else str(n) for n in said)
            raise InvalidArguments(
                f"input {value.name!r} cannot have dims {tuple(new)}, in the model they are ({shown}): "
                "export the model with the axes left open that vary"
            )
    named = ((f"{name}[{axis}]", n) for name, extents in dims.items() for axis, n in enumerate(extents))
    wanted = {name: _extent(f"dims[{name!r}]", n) for name, n in named}
    inputs = [_bound(value, wanted, first, set()) for value in graph.input]
    for tensor in inputs:
        if first is not None and tensor.dims and tensor.dims[0] != first:
            raise InvalidArguments(
                f"batch={batch}: input {tensor.name!r} is given dims {tensor.dims}; give arrays with {batch} on "
                "axis 0, or leave the batch out"
            )
    return inputs


def _extent(what: str, value: int) -> int:
    number = index_of(value)
    if number is None or number < 1:
        raise InvalidArguments(f"{what} is {value!r}: the extent of a dim is a whole number from 1 on")
    return number


def _bound(value: Proto, wanted: Mapping[str, int], batch: int | None, used: set[str]) -> Tensor:
    if not value.type.HasField("tensor_type"):
        raise Unimplemented(
            f"input {value.name!r} is no tensor: only tensors of numbers and booleans are supported; export the model "
            "with a tensor in its place"
        )
    kind = value.type.tensor_type
    dtype = element_type(kind.elem_type, f"input {value.name!r}")
    if not kind.HasField("shape"):
        raise Unimplemented(
            f"input {value.name!r} has no dims, not even their number: export the model with an example input"
        )
    extents = tuple(_one(value.name, axis, dim, wanted, batch, used) for axis, dim in enumerate(kind.shape.dim))
    return Tensor(value.name, extents, dtype)


def _one(name: str, axis: int, dim: Proto, wanted: Mapping[str, int], batch: int | None, used: set[str]) -> int:
    """The extent of one axis of an input."""
    fixed = _fixed(dim)
    if fixed is not None:
        if axis == 0 and batch not in (None, fixed):
            raise InvalidArguments(
                f"batch={batch}: input {name!r} has the fixed extent {fixed} on axis 0; export the model with that "
                "axis left open"
            )
        return fixed
    for key in (f"{name}[{axis}]", str(dim.dim_param)):
        if key in wanted:
            used.add(key)
            return wanted[key]
    if axis == 0 and batch is not None:
        return batch
    key = str(dim.dim_param) or f"{name}[{axis}]"
    also = " or batch=1" if axis == 0 else ""
    called = f", {dim.dim_param!r}," if dim.dim_param else ""
    raise InvalidArguments(
        f"input {name!r} leaves axis {axis}{called} open: say how large it is, as dims={{{key!r}: 1}}{also}"
    )


def _fixed(dim: Proto) -> int | None:
    """The extent that the model says; exporters write 0 or -1 for one that they leave open."""
    return int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else None


def _open_dims(graph: Proto) -> str:
    return ", ".join(dict.fromkeys(_open_names(graph))) or "no dim"


def _open_names(graph: Proto) -> Iterator[str]:
    for value in graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if _fixed(dim) is None:
                yield repr(str(dim.dim_param) or f"{value.name}[{axis}]")
