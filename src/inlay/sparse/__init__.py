"""Sparse memory: CSR and COO from dense arrays and back, from SciPy and torch and back, and checked.

Only some elements are stored, with what says where they belong (see `inlay.descriptor.sparsity`); all others are zero.

>>> import numpy as np
>>> matrix = np.array([[0, 0, 5, 0], [0, 0, 0, 0], [7, 0, 0, 0]], np.float32)
>>> rows = to_csr(matrix)
>>> rows.desc
MemoryDesc.csr((3, 4), 'f32', 2)
>>> values, indices, pointers = rows.buffers
>>> values.view(np.float32).tolist(), indices.view(np.int32).tolist(), pointers.view(np.int32).tolist()
([5.0, 7.0], [2, 0], [0, 1, 1, 2])
>>> np.array_equal(to_coo(rows).unpack(), matrix)
True

`inlay.reorder` and `inlay.pack` take sparse descriptors too, where `nnz` is known beforehand.

An element is stored if any of its bits is set, so -0.0 is kept, and dense -> CSR -> COO -> dense changes no bit.
Entries are written in row-major order and read in any; two for one element are refused, not summed. Wrong positions
never reach a computation: whatever reads sparse memory checks them first, and names the first entry that is wrong.
SciPy and torch are imported when asked for.
"""

from inlay.sparse.encoding import check, to_coo, to_csr, to_dense
from inlay.sparse.scipy_arrays import from_scipy, to_scipy
from inlay.sparse.torch_tensors import from_torch, to_torch

__all__ = ["check", "from_scipy", "from_torch", "to_coo", "to_csr", "to_dense", "to_scipy", "to_torch"]
