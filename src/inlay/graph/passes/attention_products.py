"""Products of attention: the same results with fewer operations and copies around them.

**Scales.** A number that multiplies an operand of a matrix product multiplies the product instead, which applies it as
a post-operation. The operand is then read where it is, also as a view of transposed heads:

    MatMul(Mul(q, a), Mul(k, b))                       Mul(MatMul(q, k), a b)

**Grouped queries.** Several heads of queries share one head of keys and values. A matrix product broadcasts these, in
place of an Expand that repeats them. The rows of all queries of a group are rows of one product with the keys:

    MatMul(q, Transpose(Reshape(Expand(k))))           Reshape(MatMul(Reshape(q), Transpose(k)))
    MatMul(p, Reshape(Expand(v)))                      Reshape(MatMul(Reshape(p), v))

**Rotary positions.** Instead of one half of the features, the sines are negated, which do not change from layer to
layer:

    Mul(Concat(Neg(x2), x1), sines)                    Mul(Concat(x2, x1), Mul(sines, signs))

Source: Ainslie et al., "GQA", 2023; Su et al., "RoFormer", 2021; Vaswani et al., "Attention Is All You Need", 2017.
"""

from math import isfinite, prod

import numpy as np

from inlay.graph.network import Network, Node
from inlay.graph.passes.rewriting import NetworkRewriter, rewrite_nodes

_F32 = np.dtype(np.float32)


# Scales


def hoist_scales(network: Network) -> Network:
    """Return the network with numbers that scale operands of matrix products applied to the products.

    >>> from inlay.graph.network import Tensor
    >>> nodes = Node("s", "Mul", ("q", "half"), ("t",)), Node("m", "MatMul", ("t", "k"), ("y",))
    >>> dims = {"q": (2, 3), "k": (3, 4), "t": (2, 3), "y": (2, 4), "half": ()}
    >>> tensors = {name: Tensor(name, extents, np.dtype(np.float32)) for name, extents in dims.items()}
    >>> network = Network("", 17, ("q", "k"), ("y",), nodes, tensors, {"half": np.full((), 0.5, np.float32)})
    >>> [node.operator for node in hoist_scales(network).nodes]
    ['MatMul', 'Mul']
    """
    return rewrite_nodes(network, _hoist_scale)


def _hoist_scale(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the product of a number and a matrix product of operands without numbers; None if there are no numbers."""
    dst = node.outputs[0]
    if node.operator != "MatMul" or rewriter.tensors[dst].dtype != _F32:
        return None
    if any(name in rewriter.constants for name in node.inputs):
        return None
    (left, a), (right, b) = (_split_scale(rewriter, name) for name in node.inputs)
    scale = float(np.float32(a * b))
    if (left, right) == node.inputs or not isfinite(scale) or not scale:
        return None
    product = rewriter.insert_node(node, "MatMul", (left, right), rewriter.dims(dst))
    factor = rewriter.add_constant(f"{dst}:scale", np.array(scale, np.float32))
    return Node(node.name, "Mul", (product, factor), node.outputs, {})


def _split_scale(rewriter: NetworkRewriter, name: str) -> tuple[str, float]:
    """Return a tensor and the number by which it has to be multiplied to be the tensor `name`."""
    node = rewriter.producer(name)
    if node is None or node.operator not in ("Mul", "Div"):
        return name, 1.0
    pairs = (node.inputs, node.inputs[::-1]) if node.operator == "Mul" else (node.inputs,)
    for src, other in pairs:
        number = rewriter.scalar(other)
        if number and rewriter.dims(src) == rewriter.dims(name) and src not in rewriter.constants:
            return src, number if node.operator == "Mul" else 1 / number
    return name, 1.0


# Grouped queries


def broadcast_groups(network: Network) -> Network:
    """Return the network with matrix products that broadcast heads which an Expand repeats before them."""
    return rewrite_nodes(rewrite_nodes(network, _broadcast_group), _delay_reshape)


def _broadcast_group(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the reshaped product of heads in groups and heads that are not repeated; None if none are repeated."""
    if node.operator != "MatMul" or any(name in rewriter.constants for name in node.inputs):
        return None
    left, right = node.inputs
    heads, is_transposed = _repeated_heads(rewriter, right)
    dims, result = rewriter.dims(left), rewriter.dims(node.outputs[0])
    if not heads or len(dims) != len(result) or dims[:-2] != rewriter.dims(right)[:-2]:
        return None
    outer = (*rewriter.dims(heads)[:-3], prod(dims[:-2]) // prod(rewriter.dims(heads)[:-3]))
    if is_transposed:
        heads, outer = _transposed_keys(rewriter, node, heads), (*outer[:-1], outer[-1] * dims[-2])
    else:
        outer = (*outer, dims[-2])
    queries = rewriter.insert_reshape(node, left, (*outer, dims[-1]))
    product = rewriter.insert_node(node, "MatMul", (queries, heads), (*outer, result[-1]))
    shape = rewriter.add_constant(f"{node.outputs[0]}:shape", np.array(result, np.int64))
    return Node(node.name, "Reshape", (product, shape), node.outputs, {})


def _transposed_keys(rewriter: NetworkRewriter, node: Node, keys: str) -> str:
    """Return keys of dims (..., heads, 1, length, features) as matrices of dims (..., heads, features, length)."""
    dims = rewriter.dims(keys)
    matrices = rewriter.insert_reshape(node, keys, (*dims[:-3], *dims[-2:]))
    return rewriter.insert_transpose(node, matrices, _swapped(len(dims) - 1))


def _repeated_heads(rewriter: NetworkRewriter, name: str) -> tuple[str, bool]:
    """Return the source of the Expand that repeats the matrices of a tensor, and whether they are transposed since.

    The source has the axes batch, head, 1, and those of a matrix. Its name is empty if there is no such Expand.
    """
    is_transposed = False
    while (node := rewriter.producer(name)) is not None:
        dims = rewriter.dims(node.inputs[0])
        if node.operator == "Expand":
            is_group = len(dims) > 3 and dims[-3] == 1
            is_repeated = (*dims[:-3], *dims[-2:]) == (*rewriter.dims(name)[:-3], *rewriter.dims(name)[-2:])
            return (node.inputs[0], is_transposed) if is_group and is_repeated else ("", False)
        if node.operator == "Transpose" and tuple(node.attributes.get("perm", ())) == _swapped(len(dims)):
            is_transposed = not is_transposed
        elif node.operator != "Reshape" or dims[-2:] != rewriter.dims(name)[-2:]:
            break
        name = node.inputs[0]
    return "", False


def _delay_reshape(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return the Reshape of a scaled or masked product of heads in groups; None if the node scales or masks none."""
    if node.operator not in ("Add", "Mul"):
        return None
    for name, other in (node.inputs, node.inputs[::-1]):
        reshape = rewriter.producer_of_kind(name, "Reshape")
        if reshape is None or not _is_scores(rewriter, reshape.inputs[0]) or not rewriter.is_read_once(name):
            continue
        dims, source = rewriter.dims(name), rewriter.dims(reshape.inputs[0])
        is_grouped = len(source) == len(dims) > 2 and (*source[:-3], source[-1]) == (*dims[:-3], dims[-1])
        mask = (1,) * (len(dims) - len(rewriter.dims(other))) + rewriter.dims(other)
        if not is_grouped or rewriter.dims(node.outputs[0]) != dims or mask[-3] != 1:
            continue
        grouped = _repeat_rows(rewriter, node, other, mask, dims[-3] // source[-3]) if mask[-2] > 1 else other
        result = rewriter.insert_node(node, node.operator, (reshape.inputs[0], grouped), source)
        return Node(node.name, "Reshape", (result, reshape.inputs[1]), node.outputs, {})
    return None


def _is_scores(rewriter: NetworkRewriter, name: str) -> bool:
    """Return whether a tensor is a matrix product, perhaps with a number or mask."""
    node = rewriter.producer(name)
    if node is None:
        return False
    return node.operator == "MatMul" or (node.operator in ("Add", "Mul") and _is_scores(rewriter, node.inputs[0]))


def _repeat_rows(rewriter: NetworkRewriter, node: Node, name: str, dims: tuple[int, ...], count: int) -> str:
    """Return a mask, with leading axes up to `dims`, whose rows are repeated as a whole for each head of a group."""
    array = rewriter.constants.get(name)
    if array is not None:
        return rewriter.add_constant(f"{name}:grouped", np.tile(array.reshape(dims), (count, 1)))
    wide = (*dims[:-2], count, *dims[-2:])
    shape = rewriter.add_constant(f"{name}:shape", np.array(wide, np.int64))
    single = rewriter.insert_reshape(node, name, (*dims[:-2], 1, *dims[-2:]))
    repeated = rewriter.insert_node(node, "Expand", (single, shape), wide)
    return rewriter.insert_reshape(node, repeated, (*dims[:-2], count * dims[-2], dims[-1]))


def _swapped(ndims: int) -> tuple[int, ...]:
    """Return the permutation of axes that transposes matrices."""
    return (*range(ndims - 2), ndims - 1, ndims - 2)


# Rotary positions


def sign_rotations(network: Network) -> Network:
    """Return the network with signed sines in place of negated features in rotary positions."""
    return rewrite_nodes(network, _sign_rotation)


def _sign_rotation(rewriter: NetworkRewriter, node: Node) -> Node | None:
    """Return a product with the halves of a tensor swapped and signed sines; None if the node is no such product."""
    if node.operator != "Mul" or rewriter.tensors[node.outputs[0]].dtype != _F32:
        return None
    for turned, sines in (node.inputs, node.inputs[::-1]):
        concat, table = rewriter.producer_of_kind(turned, "Concat"), rewriter.tensors[sines].dims
        dims = rewriter.dims(turned)
        if concat is None or len(concat.inputs) != 2 or rewriter.dims(node.outputs[0]) != dims:
            continue
        negation = rewriter.producer_of_kind(concat.inputs[0], "Neg")
        is_last = concat.attributes["axis"] % len(dims) == len(dims) - 1
        if negation is None or not is_last or table[-1:] != dims[-1:] or prod(table) >= prod(dims):
            continue
        halves = rewriter.insert_node(node, "Concat", (negation.inputs[0], concat.inputs[1]), dims, {"axis": -1})
        return Node(node.name, "Mul", (halves, _signed(rewriter, node, sines, concat.inputs[0])), node.outputs, {})
    return None


def _signed(rewriter: NetworkRewriter, node: Node, sines: str, half: str) -> str:
    """Return sines whose first columns, as many as `half` has, are negated."""
    dims = rewriter.dims(sines)
    signs = np.where(np.arange(dims[-1]) < rewriter.dims(half)[-1], np.float32(-1), np.float32(1))
    array = rewriter.constants.get(sines)
    if array is not None:
        return rewriter.add_constant(f"{sines}:signed", array * signs)
    return rewriter.insert_node(node, "Mul", (sines, rewriter.add_constant("signs", signs)), dims)
