"""`raises_exactly`: an error with exactly the expected text."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def raises_exactly(error: type[Exception] | tuple[type[Exception], ...], text: str) -> Iterator[None]:
    """Require that the body of the `with` statement raises this error with exactly this text."""
    with pytest.raises(error) as caught:
        yield
    assert str(caught.value) == text
