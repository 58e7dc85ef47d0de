"""Dynamic quantization: 8-bit integers with the scale and zero point of the range of the elements.

    scale       (max(src, 0) - min(src, 0)) / 255; 1 if all elements are 0
    zero_point  round(-min(src, 0) / scale)
    dst         round(src / scale) + zero_point, saturated to u8

`round` is to nearest, ties to even, and all of it is computed in f32.

Source: ONNX, "DynamicQuantizeLinear".
"""

from typing import ClassVar

from inlay.data_type import DATA_TYPES
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.calls import require_no_attributes
from inlay.primitives.engine import Avoid, EngineLike
from inlay.primitives.primitive import Primitive
from inlay.primitives.rules import require_desc, resolve_desc, type_of


class DynamicQuantization(Primitive):
    """Dynamic quantization: the elements of src as u8, and the scale and zero point that fit their range.

    | argument | dims | type | format |
    |---|---|---|---|
    | src | any dims | floating point | not any |
    | dst | those of src | u8 | may be any |
    | scale | (1,) | f32 | dense |
    | zero_point | (1,) | s32 | dense |

    `scale` and `zero_point` have the form of the arguments `src_scales` and `src_zero_points` of the primitive that
    reads dst.

    >>> import numpy as np
    >>> from inlay.memory import pack
    >>> rows = pack(np.array([[-1, 0, 0.5, 1.55]], np.float32), "ab")
    >>> results = DynamicQuantization(rows.desc, engine="reference")(src=rows)
    >>> [results[name].unpack().tolist() for name in ("dst", "scale", "zero_point")]
    [[[0, 100, 150, 255]], [0.009999999776482582], [100]]
    """

    __slots__ = ()
    kind: ClassVar[str] = "dynamic_quantization"

    def __init__(
        self,
        src: MemoryDesc,
        dst: MemoryDesc | None = None,
        *,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create the primitive for `src`; a `dst` that is left out has any format.

        Raises:
            InvalidArguments: src is of integers, dst has other dims or is not u8, or an argument is rejected by
                `Primitive`.
            Unimplemented: no engine supports the operation.
        """
        source, u8 = require_desc("DynamicQuantization", "src", src), DATA_TYPES["u8"]
        result = resolve_desc("DynamicQuantization", "dst", dst, source.dims, u8, f"src {source.dims}")
        if type_of(source).kind != "float":
            raise InvalidArguments(
                f"DynamicQuantization: src is {type_of(source)}: describe numbers of floating point, such as f32"
            )
        if type_of(result) != u8:
            raise InvalidArguments(f"DynamicQuantization: dst is {type_of(result)}: describe it as u8")
        values = {"scale": MemoryDesc((1,), "f32"), "zero_point": MemoryDesc((1,), "s32")}
        require_no_attributes("DynamicQuantization", attributes)
        self._create("forward_inference", {"src": source, "dst": result, **values}, {}, attributes, engine, avoid)
