"""Quantized weights as blocks: pack floats as ggml's Q4_0, read the streams, and give the same weights to KleidiAI.

python examples/compound_blocks.py
"""

import numpy as np

import inlay


def main() -> None:
    """Pack, look, unpack, and move quants and scales from one compound format to another."""
    weights = np.random.default_rng(0).standard_normal((8, 64), np.float32)
    q4_0 = inlay.pack_compound(weights, "ggml:Q4_0")
    print(inlay.show(q4_0.desc))
    error = float(np.abs(q4_0.unpack() - weights).max())
    print(f"\n{weights.nbytes} bytes of floats became {q4_0.desc.size}; the largest error is {error:.3f}")

    signed = q4_0.stream("quants").astype(np.int8) - 8
    kleidi = inlay.assemble("kleidiai:qsi4c32p4x8_f16", {"quants": signed, "scale": q4_0.stream("scale")})
    assert np.array_equal(kleidi.unpack(), q4_0.unpack())
    print(f"the same weights for KleidiAI: {kleidi.desc.size} bytes, equal values")
    (place,) = kleidi.desc.locate("quants", (5, 33))
    print(f"quant (5, 33) has {place.width} bits from bit {place.offset} on")


if __name__ == "__main__":
    main()
