"""Roles of the axes of tensors, and tags of formats in their letters: `nhwc` of an image, in place of `acdb`.

The operations tell the roles: a convolution reads an image (n, c, h, w), a recurrent layer a sequence (t, n, c).
Operations on each element pass them on to tensors with as many axes. Views do not: another rank or order of axes has
other roles. Letters are those of oneDNN's tags (`dnnl_format_tag_t`).

>>> familiar_tag("aBcd16b", "nchw"), familiar_tag("ABcd16b16a", "oihw"), familiar_tag("ba", None)
('nChw16c', 'OIhw16i16o', 'ba')
"""

from collections import deque
from collections.abc import Iterator

from inlay.graph.op_graph import Op, OpGraph
from inlay.layout.axis import LETTERS
from inlay.primitives.rules import RECURRENT

_IMAGES = {3: "ncw", 4: "nchw", 5: "ncdhw"}
_SEQUENCES = {"src_layer": "tnc", "dst_layer": "tnc"}
_STATES = {"src_iter": "ldnc", "dst_iter": "ldnc", "src_iter_c": "ldnc", "dst_iter_c": "ldnc"}
_SPATIAL = frozenset(
    ("convolution", "deconvolution", "pooling", "resampling", "lrn", "batch_normalization", "shuffle", "inner_product")
)
_ELEMENTWISE = frozenset(("eltwise", "binary", "sum", "concat", "prelu", "softmax", "reduction", "reorder"))


def find_axis_roles(graph: OpGraph) -> dict[str, str]:
    """Return, for each tensor whose axes have roles, their letters in the order of the axes."""
    found: dict[str, str] = {}
    readers: dict[str, list[Op]] = {}
    for op in graph.ops:
        for name, roles in _roles_by(graph, op):
            found.setdefault(name, roles)
        if op.kind in _ELEMENTWISE:
            for name in (*op.reads.values(), *op.writes.values()):
                readers.setdefault(name, []).append(op)
    waiting = deque(found)
    while waiting:
        name = waiting.popleft()
        for op in readers.get(name, ()):
            for other in (*op.reads.values(), *op.writes.values()):
                if other not in found and len(graph.tensors[other].dims) == len(found[name]):
                    found[other] = found[name]
                    waiting.append(other)
    return found


def familiar_tag(tag: str, roles: str | None) -> str:
    """Return a tag with the letters of the axes' roles; as it is if `roles` is None."""
    if roles is None:
        return tag
    letters = LETTERS[: len(roles)]
    return tag.translate(str.maketrans(letters + letters.upper(), roles + roles.upper()))


def _roles_by(graph: OpGraph, op: Op) -> Iterator[tuple[str, str]]:
    """Yield the tensors of an operation that give their axes roles, with the letters."""
    for argument, name in (*op.reads.items(), *op.writes.items()):
        ndims = len(graph.tensors[name].dims)
        if op.kind in RECURRENT:
            roles = {**_SEQUENCES, **_STATES}.get(argument)
        elif op.kind in _SPATIAL and argument in ("src", "dst"):
            roles = _IMAGES.get(ndims)
        elif op.kind in ("convolution", "deconvolution") and argument == "weights":
            roles = _weights_roles(ndims, len(graph.tensors[next(iter(op.writes.values()))].dims))
        else:
            roles = None
        if roles is not None and len(roles) == ndims:
            yield name, roles


def _weights_roles(ndims: int, image: int) -> str | None:
    """Return the letters of the weights of a convolution of images of so many axes; they have one more if grouped."""
    roles = _IMAGES.get(image)
    return None if roles is None else "g" * (ndims > image) + "oi" + roles[2:]
