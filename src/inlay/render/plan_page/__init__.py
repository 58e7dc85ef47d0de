"""The page of a plan: one HTML file with its graph, its times, its reorders and the plans that it is compared with.

    PlanPage(plan).save("resnet50.html")
    PlanPage(plan, session.profile({"data": image})).save("resnet50.html")     measured times beside predicted ones

The page needs no network: script, style and data are in the file. Modules, in the order in which data flows:

    folding      segments of the program: repeated blocks, which are drawn once, and the steps between them
    positions    coordinates of each segment, folded and unfolded
    records      the plan and its profile as values for JSON, which the script shows
    markup       elements of HTML and SVG
    graph        the graph as SVG
    tables       the tables of steps, reorders, compared plans and formats as HTML
    page         `PlanPage`, which puts these, and the files of `assets`, into one file

Terms:

    segment          successive steps: a repeated block with all its occurrences, or the steps between blocks
    folded           drawn as one occurrence, which stands for all; its times are sums
    occurrence       one of the repetitions of a block
    boundary         the line between two segments; the wires that cross it do so at the same places, folded or not
"""

from inlay.render.plan_page.page import PlanPage

__all__ = ["PlanPage"]
