"""The explorer: a page on which one types a layout and sees it, served on this machine or written into a file.

`inlay explore` serves the page. Python parses what is typed and sends a layout as JSON (`model.explore_layout`): its
digits, and words about it. The script of the page computes all offsets from these digits, so that a page in a file
shows the same without Python. `docs/explorer.md` documents the JSON.

The modules in the order in which data flows:

    typed_text          texts of fields: numbers, axes and data types; mistakes with their column
    suggestions         layouts that resemble a text that names none
    request             a request of the page: its texts, parsed to a descriptor and the names of its axes
    view_steps          views of the descriptor, refusals with their repairs, and the names of new axes
    jump_marks          jumps of memory order, from the innermost digit to the outermost
    padded_computation  rounded dims, strides and products with zeros, for layouts with padding
    memory_groups       cache lines, pages, and groups of VNNI and SIMD registers
    model               the JSON of a layout
    reorder_model       the JSON of a reorder
    page                the files of the page, and one file that holds all of them and its layouts
    browser             opens the page in a web browser
    server              the web application, and the server on the loopback interface

>>> from inlay.render.explorer.model import explore_layout
>>> layout = explore_layout({"layout": "nChw8c", "dims": "2x17x5x4", "data_type": "f32"})
>>> layout["digits"][1], layout["formula"]
([{'extent': 3, 'stride': 160}, {'extent': 8, 'stride': 1}], '480*n + 160*(c//8) + 32*h + 8*w + c%8')
"""
