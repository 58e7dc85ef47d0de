"""Pictures of plans: operations from top to bottom, wires in the color of the format that flows there.

`PlanPicture(plan)` is the picture as a value. On the way, `flow` finds what leads where, `layering` puts it in rows,
`placing` cuts them into columns and finds coordinates, `routes` leads the wires, and `drawing` draws all of it as SVG;
`words` and `colors` are what it says and shows.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981; Gansner et
al., "A Technique for Drawing Directed Graphs", 1993.
"""

from inlay.render.network.picture import PlanPicture

__all__ = ["PlanPicture"]
