"""Save a plan with its packed weights, and start sessions from the file without planning.

    python examples/saved_plan.py [FOLDER]

Plans SqueezeNet with random weights, saves the plan in a folder (a temporary one by default), loads it, and compares
the results bit by bit.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import inlay


def main(folder: Path) -> None:
    """Plan, save, load and compare."""
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    from examples.random_networks import inputs_of, light

    model = light("squeezenet")
    plan = inlay.plan(inlay.load(model.SerializeToString()), costs="probed")
    path = folder / "squeezenet.inlay"
    plan.save(path)
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB for {plan}")

    inputs = inputs_of(model)
    began = time.perf_counter()
    with inlay.Session.load(path) as session:
        loaded = session.run(inputs)
        print(f"loaded and run in {1e3 * (time.perf_counter() - began):.0f} ms: {session}")
    with plan.compile() as session:
        planned = session.run(inputs)
    equal = all(np.array_equal(loaded[name], array) for name, array in planned.items())
    print(f"results are {'equal bit for bit' if equal else 'different'}")
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
