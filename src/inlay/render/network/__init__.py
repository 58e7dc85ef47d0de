"""Pictures of plans: operations from top to bottom, wires in the color of the format that flows there.

`PlanPicture(plan)` is the picture as a value (`picture`). When it is drawn, `flow` finds what leads where and what to
say of it, `placing` puts it in rows and finds coordinates, and `drawing` leads the wires and draws all of it as SVG.

Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System Structures", 1981; Gansner et
al., "A Technique for Drawing Directed Graphs", 1993.
"""

from inlay.render.network.picture import PlanPicture

__all__ = ["PlanPicture"]
