"""Generate tokens with a decoder: keys and values of earlier positions are kept between the steps.

Run with `python examples/generate.py [--layers N] [--width N] [--prompt N] [--tokens N]`. The decoder has random
weights (`random_decoder.py`), so its tokens mean nothing; it needs the package onnx. The loop is that of any exported
decoder.
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from time import perf_counter

import numpy as np
from random_decoder import random_decoder

import inlay
from inlay.primitives import get_engine

VOCABULARY = 50257


def generate_tokens(session: inlay.Session, state: inlay.DecodingState, prompt: list[int]) -> Iterator[int]:
    """Yield the most probable token after those so far, again and again, until the state is full."""
    new = prompt
    while state.length + len(new) <= state.maximum:
        logits = session.step({"input_ids": np.array([new])}, state=state)["logits"]
        new = [int(logits[0, -1].argmax())]
        yield new[0]


def main() -> None:
    """Write a decoder, and print the tokens that it generates, and how long each took."""
    parser = argparse.ArgumentParser(description="Generate tokens with a decoder with random weights.")
    for name, default in (("layers", 12), ("width", 768), ("prompt", 16), ("tokens", 32)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    options = parser.parse_args()
    model = random_decoder(options.layers, options.width, vocabulary=VOCABULARY).SerializeToString()
    costs = "probed" if get_engine().name != "reference" else "analytic"
    kept = inlay.StateOptions(maximum=options.prompt + options.tokens)
    with inlay.compile(inlay.load(model), costs=costs, state=kept) as session, session.new_state() as state:
        prompt = np.random.default_rng(0).integers(0, VOCABULARY, options.prompt).tolist()
        tokens, times = [], [perf_counter()]
        for token in islice(generate_tokens(session, state, prompt), options.tokens):
            tokens.append(token)
            times.append(perf_counter())
        print(" ".join(map(str, tokens)))
        print(state)
    if len(tokens) > 1:
        each = float(np.median(np.diff(times)[1:])) * 1e3
        print(
            f"prompt of {options.prompt} with planning: {times[1] - times[0]:.2f} s; each further token: {each:.2f} ms"
        )


if __name__ == "__main__":
    main()
