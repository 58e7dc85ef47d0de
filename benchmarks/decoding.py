"""Decoding one token at a time with 12 layers of 768: Inlay and ONNX Runtime in f32, bf16 and with weights of 4 bits.

    decoding.json       {"rounds": [{"seconds": {"Inlay f32": {"128": 0.021, ...}, ...}, "errors": {...}, ...}, ...]}

The decoder is that of `examples/random_decoder.py`; ONNX Runtime's quantizer makes the weights of 4 bits. Each
contestant has a process of its own for all rounds, `python -m benchmarks.decoding FOLDER CONTESTANT`, and they take
turns: a turn decodes `steps` tokens after 128, 256 ... positions. While one has its turn, the others wait for input.
ONNX Runtime passes keys and values on as its own values, without copies, and takes part with threads that spin between
operators and with threads that do not. Files of the models stay in the folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.aims import Aim
from benchmarks.record import read_pieces
from inlay.bench.measurement import ratio_text, table
from inlay.files import atomic_write
from inlay.measure.disturbance import IdleWait, OtherLoad
from inlay.measure.interleaved import clock, rotate
from inlay.measure.statistics import Spread, paired_ratio, spread

RESULTS = "decoding.json"
"""The file of results in the folder."""
BLOCK = 32
"""Rows that share a scale in weights of 4 bits."""
_WARM = 2  # untimed tokens of a turn
_SAMPLED = 1000  # logits that are compared


@dataclass(frozen=True, slots=True)
class DecodingLoad:
    """The decoder, and the positions that are timed."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    starts: tuple[int, ...] = (128, 256, 384, 494)  # numbers of positions before a turn
    steps: int = 16  # timed tokens of a turn

    @property
    def positions(self) -> int:
        """Most positions."""
        return max(self.starts) + self.steps + _WARM

    def tokens(self) -> Any:
        """Return the tokens of a sequence, int64 (1, positions)."""
        return np.random.default_rng(0).integers(0, self.vocabulary, (1, self.positions))


@dataclass(frozen=True, slots=True)
class DecodingContestant:
    """A runtime with weights of one type."""

    runtime: str  # Inlay or ONNX Runtime
    weights: str  # f32, bf16 or 4-bit
    spins: bool = True  # true if threads spin while they wait; of ONNX Runtime only

    @property
    def name(self) -> str:
        """Runtime and type of the weights: `ONNX Runtime f32, not spinning`."""
        return f"{self.runtime} {self.weights}{'' if self.spins else ', not spinning'}"


CONTESTANTS: Mapping[str, DecodingContestant] = {
    one.name: one
    for one in (
        *(DecodingContestant("Inlay", weights) for weights in ("f32", "bf16", "4-bit")),
        *(
            DecodingContestant("ONNX Runtime", weights, spins)
            for weights in ("f32", "4-bit")
            for spins in (True, False)
        ),
    )
}
"""The contestants by name."""
RATIOS: Sequence[tuple[str, tuple[str, ...], float]] = (
    ("Inlay f32", ("ONNX Runtime f32", "ONNX Runtime f32, not spinning"), 1.2),
    ("Inlay 4-bit", ("ONNX Runtime 4-bit", "ONNX Runtime 4-bit, not spinning"), 1.0),
    ("Inlay 4-bit", ("Inlay bf16",), 2.0),
    ("Inlay bf16", ("Inlay f32",), 1.0),
)
"""Contestants, those that they are compared with, and how many times as fast they are to be."""


def model_file(folder: Path, weights: str, load: DecodingLoad) -> Path:
    """Return the file of the decoder with weights of a type, after writing it if the folder lacks it."""
    is_narrow = weights == "4-bit"
    size = f"{load.layers}x{load.width}x{load.vocabulary}"
    path = folder / f"decoder-{size}{'.4bit' if is_narrow else ''}.onnx"
    if not path.exists():
        from examples.random_decoder import random_decoder

        model = random_decoder(load.layers, load.width, load.heads, load.vocabulary, max(1024, load.positions))
        with atomic_write(path) as stream:
            stream.write((quantize_weights(model) if is_narrow else model).SerializeToString())
    return path


def quantize_weights(model: Any) -> Any:
    """Return the model with MatMulNBits in place of its products with constants, by ONNX Runtime's quantizer."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(model, block_size=BLOCK, is_symmetric=True)
    quantizer.process()
    return quantizer.model.model


# The process of a contestant

Decode = Callable[[int], tuple[float, Any]]
"""A function that decodes tokens after so many positions: it returns seconds for a token, and the last logits."""


def serve_turns(folder: Path, name: str, load: DecodingLoad, threads: int) -> None:
    """Prepare a contestant, and decode after each number of positions that a line of the input has."""
    contestant = CONTESTANTS[name]
    path = model_file(folder, contestant.weights, load)
    decode = {"Inlay": prepare_inlay, "ONNX Runtime": prepare_onnxruntime}[contestant.runtime](
        path, contestant, load, threads
    )
    for start in load.starts:
        decode(start)
    _reply("ready")
    for line in sys.stdin:
        others = OtherLoad()
        seconds, logits = decode(int(line))
        sample = logits.ravel()[:: max(1, logits.size // _SAMPLED)].tolist()
        _reply({"seconds": seconds, "logits": sample, "others": others.share() or 0.0})


def _reply(value: Any) -> None:
    """Write a line for the process that sends requests."""
    print(json.dumps(value), flush=True)


def prepare_inlay(path: Path, contestant: DecodingContestant, load: DecodingLoad, threads: int) -> Decode:
    """Compile the decoder with Inlay, with a state for each number of positions."""
    import inlay

    kept = inlay.StateOptions(maximum=load.positions)
    precision: Any = "bf16" if contestant.weights == "bf16" else "model"
    session = inlay.compile(inlay.load(path), costs="probed", threads=threads, precision=precision, state=kept)
    ids, states = load.tokens(), {}
    for start in load.starts:
        states[start] = session.new_state()
        session.step({"input_ids": ids[:, :start]}, state=states[start])

    def decode(start: int) -> tuple[float, Any]:
        state = states[start]
        state.truncate(start)
        return _time_tokens(load, start, lambda at: session.step({"input_ids": ids[:, at : at + 1]}, state=state))

    return decode


def prepare_onnxruntime(path: Path, contestant: DecodingContestant, load: DecodingLoad, threads: int) -> Decode:
    """Load the decoder with ONNX Runtime, with the keys and values of each number of positions."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(contestant.spins)))
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names, ids = [value.name for value in session.get_outputs()], load.tokens()
    pasts = [value.name for value in session.get_inputs() if value.name.startswith("past")]
    empty = np.zeros((1, load.heads, 0, load.width // load.heads), np.float32)
    as_value = ort.OrtValue.ortvalue_from_numpy

    def run(first: int, last: int, past: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        arrays = {"input_ids": ids[:, first:last], "attention_mask": np.ones((1, last), np.int64)}
        arrays["position_ids"] = np.arange(first, last)[None]
        feeds = {name: as_value(np.ascontiguousarray(array)) for name, array in arrays.items()}
        found = dict(zip(names, session.run_with_ort_values(names, {**feeds, **past}), strict=True))
        return {name: found[name.replace("past_key_values", "present")] for name in pasts}, found["logits"].numpy()

    kept = {start: run(0, start, {name: as_value(empty) for name in pasts})[0] for start in load.starts}

    def decode(start: int) -> tuple[float, Any]:
        past = kept[start]

        def step(at: int) -> Any:
            nonlocal past
            past, logits = run(at, at + 1, past)
            return {"logits": logits}

        return _time_tokens(load, start, step)

    return decode


def _time_tokens(load: DecodingLoad, start: int, step: Callable[[int], Mapping[str, Any]]) -> tuple[float, Any]:
    """Decode a turn's tokens; return the mean seconds of the timed ones, and the logits of the last one."""
    for at in range(start, start + _WARM):
        step(at)
    first, last = start + _WARM, start + _WARM + load.steps - 1
    began = clock()
    for at in range(first, last):
        step(at)
    results = step(last)
    return (clock() - began) / load.steps, results["logits"]


# Turns


@contextmanager
def _process(folder: Path, name: str, load: DecodingLoad, threads: int) -> Iterator[Callable[[int], Any]]:
    """Start the process of a contestant; yield a function that lets it decode after a number of positions."""
    cache = folder / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    arguments = [str(folder), name, json.dumps(asdict(load)), str(threads)]
    command, env = [sys.executable, "-m", "benchmarks.decoding", *arguments], {**os.environ}
    env["INLAY_CACHE_DIR"] = str(cache.resolve())
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdin is not None
    assert process.stdout is not None
    requests, replies = process.stdin, process.stdout

    def read() -> Any:
        line = replies.readline()
        if not line:
            raise subprocess.CalledProcessError(process.wait(), command)
        return json.loads(line)

    def decode(start: int) -> Any:
        requests.write(f"{start}\n")
        requests.flush()
        return read()

    try:
        read()
        yield decode
    finally:
        requests.close()
        process.wait()
        replies.close()


def measure_decoding(
    folder: Path, names: Sequence[str], rounds: int, threads: int, load: DecodingLoad, is_over: Callable[[], bool]
) -> int:
    """Measure until there are so many rounds, storing each; return the number of rounds that are left.

    Rounds of another load or number of threads, or without one of the contestants, are measured anew.

    Raises:
        CalledProcessError: the process of a contestant fails.
    """
    setup = {"load": {**asdict(load), "starts": list(load.starts)}, "threads": threads}
    known = load_decoding(folder)
    is_same = all(known.get(key) == value for key, value in setup.items())
    done = [one for one in known.get("rounds", ()) if is_same and set(names) <= one["seconds"].keys()]
    with ExitStack() as stack:
        decoders: dict[str, Callable[[int], Any]] = {}
        for name in names if len(done) < rounds and not is_over() else ():
            decoders[name] = stack.enter_context(_process(folder, name, load, threads))
        while decoders and len(done) < rounds and not is_over():
            done.append(_measure_round(decoders, load, len(done)))
            with atomic_write(folder / RESULTS) as stream:
                stream.write(json.dumps({**setup, "rounds": done}, indent=1).encode())
    return max(0, rounds - len(done))


def _measure_round(decoders: Mapping[str, Callable[[int], Any]], load: DecodingLoad, round_: int) -> dict[str, Any]:
    """Return seconds of a token by contestant and number of positions, errors of logits, and the load of others."""
    replies: dict[str, dict[str, Any]] = {name: {} for name in decoders}
    idle = IdleWait()
    for start in load.starts:
        for name in rotate(list(decoders), round_):
            idle.wait()
            replies[name][str(start)] = decoders[name](start)

    def by_name(key: str) -> dict[str, dict[str, Any]]:
        return {name: {start: one[key] for start, one in found.items()} for name, found in replies.items()}

    others = max(share for found in by_name("others").values() for share in found.values())
    logits = by_name("logits")
    errors = {name: _logits_error(logits, name) for name in decoders}
    return {"seconds": by_name("seconds"), "errors": errors, "others": others}


def _logits_error(logits: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """Return the difference of logits to ONNX Runtime's with the same model, as a part of its largest element."""
    model = "4-bit" if CONTESTANTS[name].weights == "4-bit" else "f32"
    exact = logits.get(f"ONNX Runtime {model}")
    if exact is None:
        return None
    pairs = [(np.array(exact[start]), np.array(logits[name][start])) for start in exact]
    return max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in pairs)


# Results


def load_decoding(folder: Path) -> dict[str, Any]:
    """Return the results that were measured so far; raise `Unreadable` if the file holds something else."""
    return read_pieces(folder / RESULTS, ("load", "threads", "rounds"), "decoder")


def decoding_ratio(rounds: Sequence[Mapping[str, Any]], name: str, other: str) -> Spread:
    """Return how many times as fast as another a contestant is, from means over the numbers of positions."""

    def seconds(contestant: str) -> list[float]:
        return [geometric_mean(one["seconds"][contestant].values()) for one in rounds]

    return paired_ratio(seconds(other), seconds(name))


def decoding_table(results: Mapping[str, Any]) -> Table:
    """Return a line for each contestant: milliseconds of a token by number of positions, and the error of logits."""
    rounds, starts = results.get("rounds", ()), results.get("load", {}).get("starts", ())
    lines = []
    for name in _names(rounds):
        times = [ratio_text(spread([one["seconds"][name][str(at)] for one in rounds]).times(1e3)) for at in starts]
        error = rounds[-1]["errors"][name]
        lines.append((name, *times, "-" if error is None else f"{error:.0e}"))
    heads = [f"after {start}" for start in starts]
    title = "Milliseconds of a token, and difference of logits to ONNX Runtime's with the same model"
    return table(("contestant", *heads, "difference"), lines, title)


def _names(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the contestants that took part in all rounds."""
    return [name for name in CONTESTANTS if rounds and all(name in one["seconds"] for one in rounds)]


def decoding_aims(results: Mapping[str, Any]) -> list[Aim]:
    """Return the aims: a contestant beside the fastest of those that it is compared with."""
    rounds, found = results.get("rounds", ()), []
    known = _names(rounds)
    for name, others, aim in RATIOS:
        ratios = {other: decoding_ratio(rounds, name, other) for other in others if {name, other} <= {*known}}
        if ratios:
            other, ratio = min(ratios.items(), key=lambda one: one[1].median)
            found.append(Aim(f"{name} x {other}", ratio_text(ratio), f"{aim}", ratio.median >= aim))
    return found


def decoding_notes(results: Mapping[str, Any]) -> list[str]:
    """Return a line on rounds and threads, and one if other processes disturbed the rounds."""
    rounds = results.get("rounds", ())
    lines = [f"{len(rounds)} rounds, {results['threads']} threads"] if rounds else []
    if (most := max((one["others"] for one in rounds), default=0.0)) > 0.1:
        lines.append(f"others took up to {100 * most:.0f} % of the processors in a turn: not to be quoted")
    return lines


if __name__ == "__main__":
    _folder, _name, _load, _threads = sys.argv[1:]
    _given = json.loads(_load)
    serve_turns(Path(_folder), _name, DecodingLoad(**{**_given, "starts": tuple(_given["starts"])}), int(_threads))
