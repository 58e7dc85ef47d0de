"""What may be decided one way or another without changing a byte of the result.

The stages decide by models: of what a tile costs, of which side is better walked, of where stores go. A `Choice`
overrides some of these decisions, so that the alternatives can be timed and the best one kept. What it leaves open is
decided by the models; BY_MODEL leaves everything open.

    >>> print(Choice(walk="dst", ahead=1024))
    walk dst, fetch 1024 bytes ahead
    >>> print(BY_MODEL)
    by the model
"""

from dataclasses import dataclass, fields

from inlay.reordering.network import Side


@dataclass(frozen=True, slots=True)
class Choice:
    """Decisions about a reorder; None leaves one to the model."""

    walk: Side | None = None
    """The side that is gone through in the order in which it lies."""
    registers: int | None = None
    """How many registers a tile has at least, where loops have that many values: a power of two."""
    width: int | None = None
    """Bytes of a register at most: a power of two from 16 on; the target's if that is less."""
    ahead: int | None = None
    """Bytes from a load to the line that it asks for; 0 to ask for none."""
    streams: bool | None = None
    """Whether stores go past the caches where the tile allows it."""
    panels: bool | None = None
    """Whether a reorder beyond the caches passes through a buffer, panel by panel, where it can be cut into panels."""
    threads: int | None = None
    """How many threads share the work at most."""

    def __str__(self) -> str:
        """What is decided, in words."""
        words = {
            "walk": f"walk {self.walk}",
            "registers": f"tiles of {self.registers} registers",
            "width": f"registers of {self.width} bytes",
            "ahead": f"fetch {self.ahead} bytes ahead" if self.ahead else "fetch nothing ahead",
            "streams": f"stores {'past' if self.streams else 'into'} the caches",
            "panels": "through a buffer" if self.panels else "straight to the destination",
            "threads": f"{self.threads} thread{'s' * (self.threads != 1)}",
        }
        decided = [words[f.name] for f in fields(self) if getattr(self, f.name) is not None]
        return ", ".join(decided) or "by the model"


BY_MODEL = Choice()
"""Everything as the models say."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, and how it came about."""

    choice: Choice = BY_MODEL
    """What was decided."""
    gain: float = 1.0
    """How many times as fast as by the model it was when it was measured."""
    seconds: float = 0.0
    """How long was measured; 0 where nothing was."""

    def __str__(self) -> str:
        """In words, as `explain` prints them."""
        if not self.seconds:
            return "decided by the model"
        if self.choice == BY_MODEL:
            return "tuned: nothing that was tried is clearly faster than what the model decides"
        return f"tuned: {self.choice}; {self.gain:.2f} times as fast as what the model decides"


UNMEASURED = Decision()
"""What holds where nothing was measured."""
