"""Rearrange images to patches and back, in NumPy, with conversion on the way: `python examples/rearrange.py`."""

import numpy as np

import inlay


def main() -> None:
    """Cut images into patches, put them together again, and print the shapes."""
    images = np.random.default_rng(0).integers(0, 256, (8, 224, 224, 3), np.uint8)
    patches = inlay.rearrange(images, "b (h p) (w q) c -> b (h w) (p q c)", p=16, q=16, dtype="f32", scale=1 / 255)
    print("patches", patches.shape, patches.dtype)
    back = inlay.rearrange(
        patches, "b (h w) (p q c) -> b (h p) (w q) c", h=14, p=16, q=16, dtype="u8", scale=255.0, copy=True
    )
    print("equal to the images:", np.array_equal(back, images))
    planes = np.empty((8, 3, 224, 224), np.float32)
    for _ in range(3):  # one destination, one compiled reorder
        inlay.rearrange(images, "b h w c -> b c h w", out=planes)
    print("planes", planes.shape, "from", images.shape)
    thumbnails = inlay.repeat(images[:, ::8, ::8], "b h w c -> b (h 8) (w 8) c")
    print("enlarged thumbnails", thumbnails.shape)


if __name__ == "__main__":
    main()
