"""The command that serves a page to explore layouts, or writes one: `inlay explore`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from inlay.cli.application import TAG_HELP, JsonOption, TypeOption, app, parse_dims
from inlay.cli.layout_documents import layout_document
from inlay.cli.output import echo, print_json
from inlay.cli.picture_options import NamesOption
from inlay.errors import InvalidArguments, printable

_DIMS_HELP = "Dims of the tensor, logical order: 2x17x5x4 or 2 17 5 4; small ones if none."
_TO_HELP = "Second layout, beside the first, with the reorder between them. With --out, several may be given."
_VIEW_HELP = "A view of TAG: reshape:2x17x20, permute:n,h,w,c or submemory:1x8x5x4@0,8,0,0; may be repeated."
_PORT_HELP = "Port on this machine; any free one if 0."


@app.command(short_help="Open a page on which you type layouts and see them.")
def explore(
    tag: Annotated[
        str | None, typer.Argument(metavar="TAG", help=f"{TAG_HELP} Or strides: '320,20,4,1'.", show_default=False)
    ] = None,
    dims: Annotated[list[str] | None, typer.Argument(metavar="[DIMS]", help=_DIMS_HELP, show_default=False)] = None,
    data_type: TypeOption = "f32",
    to: Annotated[list[str] | None, typer.Option("--to", metavar="TAG", help=_TO_HELP)] = None,
    to_type: Annotated[
        str | None, typer.Option("--to-dtype", metavar="TYPE", help="Data type of the second layout, if another.")
    ] = None,
    names: NamesOption = None,
    view: Annotated[list[str] | None, typer.Option("--view", metavar="VIEW", help=_VIEW_HELP)] = None,
    port: Annotated[int, typer.Option("--port", metavar="N", help=_PORT_HELP)] = 0,
    opens: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the web browser.")] = True,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the page to FILE.html instead.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a page on this machine, on which you type layouts and see their elements and memory, until Ctrl-C.

    Only this machine can reach the page, at an address with a random part. With --out, the page is one file that shows
    TAG, and the layouts of --to, without a server and without a network.

    For example:

      inlay explore

      inlay explore nChw8c 2x17x5x4

      inlay explore nchw 2x17x5x4 --to nChw8c

      inlay explore nChw8c 2x18x5x4 --view submemory:1x8x5x4@0,8,0,0

      inlay explore nChw8c 2x17x5x4 --out layout.html
    """
    _require_layout(tag, {"--to": to, "--names": names, "--view": view})
    if to_type is not None and not to:
        raise InvalidArguments("--to-dtype is the type of a second layout: give --to TAG too")
    first = [] if tag is None else [_first_request(tag, dims, data_type, names, view or [])]
    requests = [*first, *(_next_request(first[0], text, to_type or data_type) for text in to or [])]
    if out is None:
        _serve(requests, port, opens, as_json=as_json)
        return
    from inlay.render.explorer.page import save_page

    if not requests:
        raise InvalidArguments("--out writes a page that shows a layout: give TAG, and DIMS")
    save_page(out, requests)
    if as_json:
        print_json(_page_document(requests, file=str(out)))
    else:
        echo(f"wrote {printable(str(out))}")


def _require_layout(tag: str | None, options: Mapping[str, object]) -> None:
    """Check that a layout is given if there are options of one.

    Raises:
        InvalidArguments: there is an option, and no layout.
    """
    given = [name for name, value in options.items() if value]
    if tag is None and given:
        raise InvalidArguments(f"{given[0]} belongs to a layout: give TAG too")


def _first_request(
    tag: str, dims: list[str] | None, data_type: str, names: str | None, views: list[str]
) -> dict[str, Any]:
    """Return the request of the first layout, after a check of its texts and views.

    Raises:
        InvalidArguments: a part of `dims` is no whole number.
        InvalidField: a text is wrong, or a view does not exist.
    """
    from inlay.render.explorer.model import read_layout
    from inlay.render.explorer.request import example_dims, make_request, parse_view

    steps = [parse_view(view) for view in views]
    extents = "x".join(map(str, parse_dims(dims))) if dims else example_dims(tag)
    request = make_request(tag, extents, data_type, names, steps)
    read_layout(request)
    return request


def _next_request(first: Mapping[str, Any], text: str, data_type: str) -> dict[str, Any]:
    """Return the request of another layout of the same tensor: its dims and names are those after the views.

    Raises:
        InvalidField: a text is wrong.
    """
    from inlay.render.explorer.model import read_layout
    from inlay.render.explorer.request import make_request

    viewed = read_layout(first)
    return make_request(text, "x".join(map(str, viewed.desc.dims)), data_type, viewed.names)


def _page_document(
    requests: list[dict[str, Any]], *, url: str | None = None, file: str | None = None
) -> dict[str, Any]:
    """Return a page as a JSON object: its address or its file, and its layouts after the views."""
    from inlay.render.explorer.model import read_layout

    layouts = [read_layout(request) for request in requests]
    return {"url": url, "file": file, "layouts": [layout_document(each.desc, each.names) for each in layouts]}


def _serve(requests: list[dict[str, Any]], port: int, opens: bool, *, as_json: bool) -> None:
    """Serve the page with the layouts of these requests, until Ctrl-C."""
    from inlay.render.explorer.browser import open_in_browser
    from inlay.render.explorer.request import fragment_of
    from inlay.render.explorer.server import ExplorerServer

    if len(requests) > 2:
        raise InvalidArguments("a served page has two layouts, which you can change there: give --to once, or --out")
    server = ExplorerServer.bind(port, lambda text: echo(text, err=True))
    url = server.url + fragment_of(requests)

    def announce() -> None:
        """Print the address, and open it."""
        if as_json:
            print_json(_page_document(requests, url=url))
        else:
            echo(url)
        advice = "" if opens and open_in_browser(url) else "open this address in a web browser on this machine; "
        echo(f"{advice}Ctrl-C ends the server", err=True)

    with suppress(KeyboardInterrupt):
        server.run(announce, debug=bool(os.environ.get("INLAY_DEBUG")))
    echo("ended", err=True)
