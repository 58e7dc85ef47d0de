"""The text that `inlay` without a command prints: what one can do, by job, with a command for each."""

from collections.abc import Collection

_TEXT = """\
inlay: see memory layouts of tensors, convert between them, run networks in them

look at a layout
  inlay show nChw8c 2x17x5x4              draw it: grid and memory
  inlay explore nChw8c 2x17x5x4           play with it in a browser
  inlay offset nChw8c 2x17x5x4 1,16,4,3   explain the offset of one element
  inlay info nChw8c 2x17x5x4              print texts, formula, size and padding
  inlay diff nChw8c aBcd8b 2x17x5x4       compare two layouts
  inlay names tensorrt:CHW32              name it in every notation; list names

convert data
  inlay convert w.safetensors -o p.safetensors --to OIhw16i16o
  inlay info w.safetensors                list the tensors of a file
  inlay diff w.safetensors p.safetensors  compare the tensors of two files

work with the layouts of others
  inlay infer packed.npy 2x17x5x4 --logical image.npy
  inlay verify nChw8c 2x17x5x4 packed.npy --logical image.npy
  inlay emit nChw8c 2x17x5x4 -o pack.c    write C code that packs and unpacks

plan and run networks
  inlay plan model.onnx --batch 1         choose formats and kernels
  inlay run model.onnx --input photo.npy  compute
  inlay bench model.onnx                  time it beside other runtimes
  inlay bench nchw nChw16c 8x64x56x56     time a reorder beside a copy

inlay COMMAND --help explains a command, inlay doctor checks this installation,
inlay completion --install makes the shell complete commands, options and tags."""


def overview(commands: Collection[str]) -> str:
    """Return the text; lines on commands that are not among `commands` are left out.

    >>> print(overview(["offset"]).splitlines()[3])
      inlay offset nChw8c 2x17x5x4 1,16,4,3   explain the offset of one element
    """
    lines = _TEXT.splitlines()
    return "\n".join(line for line in lines if not line.startswith("  inlay ") or line.split()[1] in commands)
