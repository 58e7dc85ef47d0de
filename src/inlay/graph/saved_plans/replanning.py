"""`load_plan`: the plan in a file, or a new plan of its graph if it was made for another processor or version."""

from pathlib import Path

from inlay.errors import FileError, InvalidArguments, Unimplemented, printable
from inlay.graph.garbage_collection import pause_garbage_collection
from inlay.graph.planned_program import PlannedProgram
from inlay.graph.saved_plans.checked_file import begin_sections
from inlay.graph.saved_plans.plan_file import PlanOrigin, SavedPlan, read_plan
from inlay.primitives.engine import EngineLike


def load_plan(path: Path, engine: EngineLike = None) -> tuple[PlannedProgram, str]:
    """Return a plan for this processor and engine, and a line on why it was made again; empty if it was not.

    Raises:
        FileError: as `read_plan`.
        InvalidArguments, MissingExtra: as `get_engine`.
        Unimplemented: the network is planned again, and the engine supports no format of a tensor.
    """
    with pause_garbage_collection():
        mapped = begin_sections(path)
        host = PlanOrigin.of_host(engine)  # loads the engine, while other threads check the file
        saved = read_plan(path, mapped)
    differences = saved.origin.differences(host)
    if not differences:
        return saved.plan, ""
    note = (
        f"{printable(str(path))} was saved for {', '.join(differences)}: it is planned again with probed costs; save "
        "a plan here to start faster"
    )
    return _plan_again(path, saved, engine), note


def _plan_again(path: Path, saved: SavedPlan, engine: EngineLike) -> PlannedProgram:
    """Plan the graph of a saved plan for this processor and engine."""
    # Importing the planner takes a tenth of a second, which only this needs.
    from inlay.graph.planning import Planner, PlanOptions

    options = PlanOptions(costs="probed", engine=engine)
    try:
        return Planner(saved.plan.graph, options, is_rewritten=True).plan()
    except (InvalidArguments, Unimplemented) as error:
        raise FileError(f"{printable(str(path))} cannot be planned again: {error}") from error
