"""Which products with a sparse factor the library computes; its other kernels take sparse memory for dense.

    3.2      matmul   CSR                f32
    3.13     matmul   CSR, COO           f32; f16 where src is sparse
                      packed weights     s8, by AMX

Positions are s32, the dense factor and the result have rows one after the other, and nothing follows: no bias, no
attributes. Release 3.2 takes inner products and matmul of integers with sparse factors too, 3.13 inner products, and
both read the values as a dense matrix, past their end.

In f16 with sparse weights each partial sum is rounded to f16, which the reference engine does not do.

Source: oneDNN, `ref_sparse_matmul_t`, `jit_uni_sparse_matmul_t`, `brgemm_matmul_t`.
"""

from collections.abc import Mapping
from dataclasses import replace

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc, kinds
from inlay.primitives.attributes import PLAIN
from inlay.primitives.operation import Operation

_POSITIONS = (None, DATA_TYPES["s32"])


def lacking_sparse(operation: Operation) -> str | None:
    """What the library lacks of an operation with a sparse argument, as the end of a sentence; None for nothing."""
    descs = operation.descs
    sparse = next((name for name, desc in descs.items() if desc.kind == "sparse"), None)
    if sparse is None:
        return None
    if operation.kind != "matmul":
        return f"{operation.kind} with sparse {sparse}"
    if any(0 in desc.dims for desc in descs.values()):
        return "sparse matmul of tensors without elements"
    if isinstance(descs[sparse].layout, kinds.Packed):
        return _lacking_packed(sparse, descs)
    return _lacking_positions(sparse, operation)


def _lacking_packed(sparse: str, descs: Mapping[str, MemoryDesc]) -> str | None:
    if sparse != "weights" or descs["weights"].data_type != DATA_TYPES["s8"]:
        return "matmul with packed tensors other than weights of s8"
    return None


def _lacking_positions(sparse: str, operation: Operation) -> str | None:
    descs, desc = operation.descs, operation.descs[sparse]
    if desc.ndims != 2:
        return f"sparse matmul of {desc.ndims} axes"
    if "bias" in descs or replace(operation.attributes, scratchpad_mode="library", fpmath_mode="strict") != PLAIN:
        return "sparse matmul with a bias or attributes"
    types = {str(descs[name].data_type) for name in ("src", "weights", "dst")}
    if types != {"f32"} and (types, sparse) != ({"f16"}, "src"):
        return f"sparse matmul of {', '.join(sorted(types))} with sparse {sparse}"
    if any(data_type not in _POSITIONS for data_type in desc.data_types[1:]):
        return "sparse matmul with positions of other types than s32"
    return None
