"""`Word`: what the machine code of a Winograd convolution is told, a table of 64-bit words."""

from enum import IntEnum, auto

from inlay.reordering.ir import Code


class Word(IntEnum):
    """Words of the table; addresses and strides in bytes."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[int]) -> int:
        return count

    THREAD_NUM = auto()
    """Address of omp_get_thread_num."""
    NUM_THREADS = auto()
    """Address of omp_get_num_threads."""
    SRC = auto()
    """Address of the source image."""
    DST = auto()
    """Address of the destination image."""
    WEIGHTS = auto()
    """Address of the transformed weights."""
    BIAS = auto()
    """Address of a float for each destination channel."""
    SCRATCH = auto()
    """Room for every thread."""
    ROOM = auto()
    """Bytes of one thread's part of it."""
    ITEMS = auto()
    """Blocks of tiles times groups of channels."""
    GROUPS = auto()
    """Groups of destination channels."""
    BLOCKS = auto()
    """Blocks of tiles."""
    TILES = auto()
    """Tiles of all images."""
    TILES_DOWN = auto()
    """Of an image."""
    TILES_ACROSS = auto()
    """Of an image."""
    IC_VECTORS = auto()
    """Source channels, in registers."""
    OC_VECTORS = auto()
    """Destination channels, in registers."""
    PANELS = auto()
    """Panels of the weights: PANEL vectors of destination channels, the last one as many as there are."""
    SRC_H = auto()
    """Pixels."""
    SRC_W = auto()
    """Pixels."""
    SRC_IMAGE = auto()
    """From one image to the next."""
    SRC_ROW = auto()
    """From one row of pixels to the next."""
    SRC_PIXEL = auto()
    """From one pixel to the next."""
    SRC_VECTOR = auto()
    """From one register of channels to the next."""
    DST_H = auto()
    """Pixels."""
    DST_W = auto()
    """Pixels."""
    DST_IMAGE = auto()
    """From one image to the next."""
    DST_ROW = auto()
    """From one row of pixels to the next."""
    DST_PIXEL = auto()
    """From one pixel to the next."""
    DST_VECTOR = auto()
    """From one register of channels to the next."""
    TOP = auto()
    """Rows of padding above an image."""
    LEFT = auto()
    """Columns of padding left of an image."""
    V_MATRIX = auto()
    """From one V to the next; its row is all source channels."""
    M_MATRIX = auto()
    """From one M to the next."""
    M_ROW = auto()
    """From one row of it to the next."""
    M_AT = auto()
    """Where a thread's M begin, after its V."""
    SPARE_AT = auto()
    """Where its zeros begin; a spare vector follows."""
    BOUND = auto()
    """What results are at least, as a 32-bit float."""


def pointer(code: Code, word: Word) -> str:
    """The address that a word of `%table` is."""
    return code.let(f"load ptr, ptr {code.word('%table', word)}")
