"""Check of an operation that comes from a file: `require_operation` applies the rules of the class of its kind.

A primitive class derives an `Operation` from checked arguments. Here the arguments are taken from an operation, the
class checks them, and the operation that it derives must be equal. No engine is asked.

>>> image = MemoryDesc((1, 16, 4, 4), "f32", "nhwc")
>>> relu = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
>>> require_operation(Operation("eltwise", "forward_inference", {"src": image, "dst": image}, relu))
>>> require_operation(Operation("eltwise", "forward_inference", {"src": image, "dst": image}, relu | {"alpha": "x"}))
Traceback (most recent call last):
    ...
inlay.errors.InvalidArguments: Eltwise: alpha is 'x': give a number
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from inlay import primitives
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.cache_write import CacheWrite
from inlay.primitives.dynamic_quantization import DynamicQuantization
from inlay.primitives.engine import Engine, Implementation, Operation
from inlay.primitives.primitive import Primitive
from inlay.primitives.table_lookup import TableLookup

_STATISTICS = ("mean", "variance")
_SCALES = ("scale", "shift")


def require_operation(operation: Operation) -> None:
    """Check that an operation of forward inference is one that the class of its kind derives from its arguments.

    Raises:
        InvalidArguments, Unimplemented: as the class; or a descriptor or parameter is not the one that follows from the
            others.
    """
    kind = operation.kind
    if kind not in CLASSES or operation.prop_kind != "forward_inference" or operation.hint is not None:
        raise InvalidArguments(f"{kind} {operation.prop_kind} is no operation of forward inference")
    arguments = _ARGUMENTS.get(kind, _plain_arguments)(operation)
    try:
        CLASSES[kind](**arguments, attributes=operation.attributes, engine=_OperationRecorder())
    except _Derived as derived:
        _require_equal(operation, derived.operation)
    except TypeError as error:
        raise InvalidArguments(f"{CLASSES[kind].__name__} has other arguments: {error}") from error


def _require_equal(operation: Operation, derived: Operation) -> None:
    """Check that an operation has the descriptors and parameters of the one that was derived from it."""
    for what, given, wanted in (
        ("descriptors", dict(operation.descs), dict(derived.descs)),
        ("parameters", dict(operation.parameters), dict(derived.parameters)),
    ):
        wrong = [name for name in {**given, **wanted} if given.get(name) != wanted.get(name)]
        if wrong:
            raise InvalidArguments(
                f"{operation.kind}: {what} of {wrong[0]} are {given.get(wrong[0])!r}, and {wanted.get(wrong[0])!r} "
                "follows from the other arguments"
            )


class _Derived(BaseException):  # no except clause of the classes catches it
    """The operation that a class derived."""

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.operation = operation


class _OperationRecorder(Engine):
    """An engine that raises `_Derived` in place of creating an implementation."""

    name = "recorder"

    def create(self, operation: Operation) -> Implementation:
        """Raise the operation."""
        raise _Derived(operation)


def _plain_arguments(operation: Operation) -> dict[str, Any]:
    """Return descriptors and parameters by their own names."""
    return {**operation.descs, **operation.parameters}


def _joined_arguments(operation: Operation) -> dict[str, Any]:
    """Return the arguments of a class with any number of sources."""
    count = sum(name.startswith("src_") for name in operation.descs)
    srcs = [_require_source(operation, f"src_{i}") for i in range(count)]
    return {"srcs": srcs, "dst": operation.descs.get("dst"), **operation.parameters}


def _require_source(operation: Operation, name: str) -> MemoryDesc:
    """Return the descriptor of a source."""
    if name not in operation.descs:
        raise InvalidArguments(f"{operation.kind} has no {name}: its sources are numbered from 0 on")
    return operation.descs[name]


def _normalization_arguments(operation: Operation) -> dict[str, Any]:
    """Return the arguments of a normalization, which derives the descriptors of its statistics, scale and shift."""
    derived = (*_STATISTICS, *_SCALES)
    descs: dict[str, Any] = {name: desc for name, desc in operation.descs.items() if name not in derived}
    if operation.kind == "layer_normalization":
        stat = next((operation.descs[name] for name in _STATISTICS if name in operation.descs), None)
        scale = next((operation.descs[name] for name in _SCALES if name in operation.descs), None)
        descs |= {"stat": stat}
        descs |= {} if scale is None else {"scale_shift_data_type": scale.data_type}
    return {**descs, **operation.parameters}


def _dynamic_quantization_arguments(operation: Operation) -> dict[str, Any]:
    """Return the arguments of a dynamic quantization, which derives the descriptors of its scale and zero point."""
    return {name: desc for name, desc in operation.descs.items() if name in ("src", "dst")}


def _resampling_arguments(operation: Operation) -> dict[str, Any]:
    """Return the arguments of a resampling, which derives its factors from the dims."""
    return {name: value for name, value in _plain_arguments(operation).items() if name != "factors"}


def _recurrent_arguments(operation: Operation) -> dict[str, Any]:
    """Return the arguments of a recurrent network, which has flags for its gradients only."""
    return {name: value for name, value in _plain_arguments(operation).items() if name != "flags"}


_RECURRENT = ("vanilla_rnn", "lstm", "gru", "lbr_gru", "augru", "lbr_augru")
_NORMALIZATIONS = ("batch_normalization", "layer_normalization", "group_normalization")
_ARGUMENTS: Mapping[str, Callable[[Operation], dict[str, Any]]] = MappingProxyType(
    {
        **dict.fromkeys(("concat", "sum"), _joined_arguments),
        **dict.fromkeys(_NORMALIZATIONS, _normalization_arguments),
        **dict.fromkeys(_RECURRENT, _recurrent_arguments),
        "dynamic_quantization": _dynamic_quantization_arguments,
        "resampling": _resampling_arguments,
    }
)


def _forward_classes() -> dict[str, Callable[..., Primitive]]:
    """Return the forward class of each kind."""
    classes = [vars(primitives)[name] for name in primitives.__all__]
    forward = [one for one in classes if isinstance(one, type) and issubclass(one, Primitive) and hasattr(one, "kind")]
    return {one.kind: one for one in forward if "Backward" not in one.__name__}


CLASSES: Mapping[str, Callable[..., Primitive]] = MappingProxyType(
    {**_forward_classes(), **{one.kind: one for one in (DynamicQuantization, CacheWrite, TableLookup)}}
)
"""The forward class of each kind."""
