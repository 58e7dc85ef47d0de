"""Functions of losses: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.

The classes are axis 1 of the scores; labels have the other axes.
"""

from collections.abc import Callable, Mapping

import numpy as np

from inlay.graph.numpy_operators.call import OperatorCall, accumulation_dtype
from inlay.graph.op_graph import Array


def likelihood_loss(call: OperatorCall) -> Array:
    """Compute NegativeLogLikelihoodLoss of logarithms of probabilities."""
    src = call.input(0)
    return _loss(call, src.astype(accumulation_dtype(src.dtype))).astype(src.dtype)


def cross_entropy(call: OperatorCall) -> tuple[Array, Array]:
    """Compute SoftmaxCrossEntropyLoss of scores; the second result is the logarithm of their softmax."""
    src = call.input(0)
    scores = src.astype(accumulation_dtype(src.dtype))
    if src.ndim < 2:
        raise call.invalid(f"scores of dims {src.shape} have no axis of classes")
    shifted = scores - scores.max(1, keepdims=True, initial=-np.inf)
    logarithms = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return _loss(call, logarithms).astype(src.dtype), logarithms.astype(src.dtype)


def _loss(call: OperatorCall, logarithms: Array) -> Array:
    """Return the negative logarithm at each label, times the weight of its class, reduced as the node states.

    The mean is divided by the sum of the weights. Labels equal to `ignore_index` have weight 0.
    """
    labels, weights, reduction = call.input(1), call.optional(2), call.attribute("reduction", "mean")
    dims = (*logarithms.shape[:1], *logarithms.shape[2:])
    classes = logarithms.shape[1] if logarithms.ndim > 1 else 0
    if logarithms.ndim < 2 or labels.shape != dims or (weights is not None and weights.shape != (classes,)):
        raise call.invalid(f"labels of dims {labels.shape} or the weights do not fit scores of dims {logarithms.shape}")
    if reduction not in ("none", "sum", "mean"):
        raise call.invalid(f"reduction {reduction!r} is none of none, sum, mean")
    ignored = call.attribute("ignore_index")
    is_ignored = np.zeros(dims, bool) if ignored is None else labels == ignored
    wrong = labels[~is_ignored & ((labels < 0) | (labels >= classes))]
    if wrong.size:
        raise call.invalid(f"{call.node.inputs[1]!r} has label {int(wrong[0])}, and there are {classes} classes")
    places = np.where(is_ignored, 0, labels).astype(np.intp)
    if not classes:
        chosen, factors = np.zeros(dims, logarithms.dtype), np.zeros(dims, logarithms.dtype)
    else:
        chosen = np.take_along_axis(logarithms, places[:, None], 1)[:, 0]
        factors = np.ones(dims, chosen.dtype) if weights is None else weights.astype(chosen.dtype)[places]
    losses = np.where(is_ignored, 0, -chosen * factors)
    if reduction == "none":
        return losses
    total = losses.sum()
    return np.asarray(total if reduction == "sum" else total / np.where(is_ignored, 0, factors).sum())


LOSSES: Mapping[str, Callable[[OperatorCall], Array | tuple[Array, ...]]] = {
    "NegativeLogLikelihoodLoss": likelihood_loss,
    "SoftmaxCrossEntropyLoss": cross_entropy,
}
"""Function of each loss."""
