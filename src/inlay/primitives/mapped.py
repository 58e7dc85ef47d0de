"""What the gradients of bandwidth-limited primitives share: they take their data as it lies, and any for the rest.

Such a primitive does little for each element, so it works in the format in which its source arrives. Backward, data
tensors keep the formats of forward, and gradients may be any: the engine takes what is consistent with forward.

Source: oneAPI specification, "Memory format propagation".
"""

from typing import ClassVar

from inlay.descriptor import MemoryDesc
from inlay.primitives.attributes import PrimitiveAttributes
from inlay.primitives.engines import EngineLike
from inlay.primitives.primitive import Primitive, forward_of, like_forward
from inlay.primitives.slow_kernels import Avoid


class MappedBackward(Primitive):
    """The gradient of what maps src to dst; the classes of each kind say its formula."""

    __slots__ = ()
    forward: ClassVar[type[Primitive]]
    """The class whose gradient it is."""
    kept: ClassVar[tuple[str, ...]] = ()
    """What it reads of forward's data."""

    def __init__(
        self,
        diff_dst: MemoryDesc | None = None,
        diff_src: MemoryDesc | None = None,
        *,
        hint_forward: Primitive | None = None,
        attributes: PrimitiveAttributes | None = None,
        engine: EngineLike = None,
        avoid: Avoid = None,
    ) -> None:
        """Create it for `hint_forward`, with its parameters; gradients left out have its dims and types and any format.

        Raises:
            InvalidArguments: the hint is missing or of inference, a gradient has other dims, or what `Primitive`
                refuses.
            Unimplemented: no engine computes it.
        """
        hint = forward_of(type(self).__name__, hint_forward, self.forward)
        descs = {name: hint.desc(name) for name in self._kept(hint)}
        self._create(
            "backward",
            descs | self._gradients(hint, diff_dst, diff_src),
            hint.operation.parameters,
            attributes=attributes,
            hint=hint,
            engine=engine,
            avoid=avoid,
        )

    @classmethod
    def _kept(cls, hint: Primitive) -> tuple[str, ...]:
        return cls.kept

    @classmethod
    def _gradients(
        cls, hint: Primitive, diff_dst: MemoryDesc | None, diff_src: MemoryDesc | None
    ) -> dict[str, MemoryDesc]:
        return like_forward(cls.__name__, hint, diff_dst=diff_dst, diff_src=diff_src)
