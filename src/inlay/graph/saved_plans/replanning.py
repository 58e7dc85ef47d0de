"""`load_plan`: the plan in a file, or a new plan of its graph if it was made for another processor or version."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from inlay.errors import FileError, InvalidArguments, Unimplemented, printable
from inlay.graph.costs.instruction_sets import allowed_isa
from inlay.graph.garbage_collection import pause_garbage_collection
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.precision import PrecisionRequest, restrict_types
from inlay.graph.saved_plans.checked_file import begin_sections
from inlay.graph.saved_plans.plan_file import PlanOrigin, SavedPlan, decode_plan
from inlay.primitives.engine import EngineLike


def load_plan(path: Path, engine: EngineLike = None) -> tuple[PlannedProgram, str, Callable[[], None]]:
    """Return a plan for this processor and engine, a line on why it was made again, and a function that ends the check.

    The line is empty if the plan is the one in the file. The bytes of the file may still be checked by other threads.
    The function waits for that, and raises FileError if they were changed; call it before the plan runs.

    Raises:
        FileError: as `read_plan`.
        InvalidArguments, MissingExtra: as `get_engine`.
        Unimplemented: the network is planned again, and the engine supports no format of a tensor.
    """
    with pause_garbage_collection():
        mapped = begin_sections(path)
        host = PlanOrigin.of_host(engine)  # loads the engine, while other threads check the file
        saved = decode_plan(path, mapped)
    differences = saved.origin.differences(host)
    if not differences:
        return saved.plan, "", mapped.require_intact
    mapped.require_intact()
    note = (
        f"{printable(str(path))} was saved for {', '.join(differences)}: it is planned again with probed costs; save "
        "a plan here to start faster"
    )
    return _plan_again(path, saved, engine), note, mapped.require_intact


def _plan_again(path: Path, saved: SavedPlan, engine: EngineLike) -> PlannedProgram:
    """Plan the graph of a saved plan for this processor and engine; layers that it has in f32 stay in f32."""
    # Importing the planner takes a tenth of a second, which only this needs.
    from inlay.graph.planning import Planner, PlanOptions
    from inlay.graph.precision_search import find_type_limits

    known = saved.plan
    request = PrecisionRequest(keep_f32=find_type_limits(known).ops)
    options = PlanOptions(costs="probed", engine=engine, precision=request)
    try:
        graph = restrict_types(known.graph, allowed_isa())
        planned = Planner(graph, options, is_rewritten=True).plan()
        return replace(planned, precision=known.precision)
    except (InvalidArguments, Unimplemented) as error:
        raise FileError(f"{printable(str(path))} cannot be planned again: {error}") from error
