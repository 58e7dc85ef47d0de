"""The server of the explorer: a web application on the loopback interface, for the person who started it.

    /TOKEN/                   the page
    /TOKEN/page/FILE          its style and modules
    /TOKEN/api/choices        data types and names of layouts, for completion
    /TOKEN/api/layout         POST: a request; the layout, or what is wrong in a field
    /TOKEN/api/reorder        POST: two requests; both layouts and the reorder between them
    /TOKEN/api/picture        POST: a request and a format; the picture of `inlay.show` as SVG or PNG

Other programs and other pages in the browser cannot use it: the token is random, every other path is 404, and a request
whose Host is not this server, or whose Origin is another page, is refused (403). Answers have no headers that let other
pages read them.

A mistake in a text that is typed is an answer with the key `error` and status 200, because it is expected while typing.
A malformed request has status 400, a body of more than 64 KiB 413, one that is no JSON 415.
"""

import errno
import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inlay.errors import InlayError, InvalidArguments, MissingExtra, shown
from inlay.render import Picture, show
from inlay.render.explorer.model import explore_layout, list_choices, read_layout
from inlay.render.explorer.page import MEDIA_TYPES, page_files
from inlay.render.explorer.reorder_model import explore_reorder
from inlay.render.explorer.typed_text import FieldFault, InvalidField

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST = "127.0.0.1"
"""Address that the server listens on: the loopback interface."""
MOST_BYTES = 64 << 10
"""Size limit of the body of a request."""
_SHUTDOWN_SECONDS = 2
"""Time that answers in progress have when the server ends."""
_HEADERS = (
    (
        "content-security-policy",
        "default-src 'self'; img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("cache-control", "no-store"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
)
"""Headers of every answer."""

Reporter = Callable[[str], None]
"""A function that prints one message for the person who started the server."""


def _ignore(_: str) -> None:
    """Print nothing."""


@dataclass(frozen=True, slots=True)
class ExplorerServer:
    """A server that is bound to a port, and serves when `run` is called."""

    listener: socket.socket
    """The listening socket."""
    token: str
    """The random first part of every path."""
    report: Reporter
    """Prints defects of Inlay that a request meets."""

    @classmethod
    def bind(cls, port: int = 0, report: Reporter = _ignore) -> "ExplorerServer":
        """Bind a port of the loopback interface, any free one if `port` is 0, with a new random token.

        Raises:
            InvalidArguments: `port` is not in 0..65535, is in use, or may not be bound by this user.
            MissingExtra: Starlette or uvicorn is not installed.
        """
        _require_packages()
        if type(port) is not int or not 0 <= port <= 65535:
            raise InvalidArguments(f"port is {shown(port)}: give one from 1 to 65535, or 0 for any free one")
        return cls(_bind(port), secrets.token_urlsafe(16), report)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def run(self, on_start: Callable[[], None] = lambda: None, *, debug: bool = False) -> None:
        """Serve until the process gets SIGINT (Ctrl-C) or SIGTERM; `on_start` is called when requests are accepted.

        Answers in progress have two seconds to end. The socket is closed afterwards. With `debug`, defects are logged
        with a traceback.

        Raises:
            KeyboardInterrupt: the server has ended because of Ctrl-C.
        """
        import uvicorn

        class AnnouncingServer(uvicorn.Server):
            """A server that calls `on_start` when it accepts requests."""

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                """Start, then call `on_start`."""
                await super().startup(sockets)
                if self.started:
                    on_start()

        config = uvicorn.Config(
            make_application(self.token, self.port, self.report),
            log_config=None,
            log_level="error" if debug else "critical",
            access_log=False,
            server_header=False,
            date_header=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            h11_max_incomplete_event_size=16 << 10,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        with closing(self.listener):
            AnnouncingServer(config).run([self.listener])


def _require_packages() -> None:
    """Import Starlette and uvicorn.

    Raises:
        MissingExtra: one is not installed.
    """
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        raise MissingExtra(f"{error.name} is not installed: pip install 'inlay[explore]'") from None
    del starlette, uvicorn


def _bind(port: int) -> socket.socket:
    """Return a socket that listens on a port of the loopback interface.

    Raises:
        InvalidArguments: the port is in use, or may not be bound by this user.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        reasons = {errno.EADDRINUSE: "is in use", errno.EACCES: "may only be bound by root"}
        reason = reasons.get(error.errno or 0, f"cannot be bound ({error.strerror})")
        raise InvalidArguments(f"port {port} {reason}: leave --port out for a free one, or give another") from None
    return listener


# Application


def make_application(token: str, port: int, report: Reporter = _ignore) -> "ASGIApp":
    """Return the web application of a server on this port, whose paths begin with `token`.

    A request that fails because of a defect of Inlay gets status 500, and `report` prints the defect.
    """
    from starlette.applications import Starlette
    from starlette.routing import Route

    async def answer_defect(_: "Request", error: Exception) -> "Response":
        """Report a defect; the server goes on."""
        defect = (
            f"internal error: {type(error).__name__}: {error}; this is a defect of Inlay, please report it; "
            "INLAY_DEBUG=1 shows where it happened"
        )
        problem = str(error) if isinstance(error, InlayError) else defect
        report(problem)
        return _refuse(problem, 500)

    routes = [
        Route("/{token}/", _answer_page),
        Route("/{token}/page/{name}", _answer_file),
        Route("/{token}/api/choices", _answer_choices),
        *(Route(f"/{{token}}/api/{name}", answer, methods=["POST"]) for name, answer in _ANSWERS.items()),
    ]
    application = Starlette(routes=routes, exception_handlers={Exception: answer_defect})
    # A redirect from /TOKEN to /TOKEN/ would confirm the token with another status than 404.
    application.router.redirect_slashes = False
    return _AccessGuard(application, token, port)


class _AccessGuard:
    """A web application that refuses requests for other hosts, from other pages, or without the token."""

    def __init__(self, app: "ASGIApp", token: str, port: int) -> None:
        self.app = app
        self.token = token
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")} | ({HOST, "localhost"} if port == 80 else set())

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer 403 or 404, or pass the request on; every answer gets the headers of the server."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: "Scope") -> "ASGIApp | None":
        """Return the answer to a request that is not for this server or its page; None if it is."""
        from starlette.requests import Request

        request = Request(scope)
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return _text("this server answers requests for its own address only: open the address it printed", 403)
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return _text("requests from other pages are refused", 403)
        first = scope["path"].lstrip("/").partition("/")[0]
        if not hmac.compare_digest(first.encode(), self.token.encode()):
            return _text("there is no such page: open the address that `inlay explore` printed", 404)
        return None


def _text(text: str, status: int) -> "Response":
    """Return an answer of one line of text."""
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{text}\n", status)


def _json(value: Mapping[str, Any], status: int = 200) -> "Response":
    """Return an answer in JSON."""
    from starlette.responses import Response

    return Response(json.dumps(value), status, media_type="application/json")


# Answers


async def _answer_page(_: "Request") -> "Response":
    """Answer with the page."""
    return _file("page.html")


async def _answer_file(request: "Request") -> "Response":
    """Answer with a file of the page."""
    return _file(request.path_params["name"])


def _file(name: str) -> "Response":
    """Return the answer with a file of the page; 404 if there is no such file."""
    from starlette.responses import Response

    content = page_files().get(name)
    if content is None:
        return _text(f"the page has no file {name!r}", 404)
    return Response(content, media_type=MEDIA_TYPES[Path(name).suffix])


async def _answer_choices(_: "Request") -> "Response":
    """Answer with the data types, tags and names that a field may have."""
    return _json(list_choices())


def _answer_post(compute: Callable[[Any], "Response"]) -> "Callable[[Request], Any]":
    """Return the function that answers a POST with what `compute` makes of its JSON."""

    async def answer(request: "Request") -> "Response":
        """Read the body, and compute the answer in a thread."""
        from starlette.concurrency import run_in_threadpool

        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refuse("the body of a request is JSON: send it as application/json", 415)
        body = await _read_body(request)
        if body is None:
            return _refuse(f"a request has at most {MOST_BYTES} bytes", 413)
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return _refuse("the body of the request is no JSON", 400)
        return await run_in_threadpool(_answer_json, compute, value)

    return answer


async def _read_body(request: "Request") -> bytes | None:
    """Return the body of a request; None if it is longer than `MOST_BYTES`, or the connection ends before it does."""
    from starlette.requests import ClientDisconnect

    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return None
    except ClientDisconnect:
        return None
    return bytes(body)


def _refuse(problem: str, status: int) -> "Response":
    """Return the answer to a malformed request."""
    return _json({"error": FieldFault("request", problem).to_json()}, status)


def _answer_json(compute: Callable[[Any], "Response"], value: Any) -> "Response":
    """Return what `compute` makes of a request, or what is wrong in it."""
    try:
        return compute(value)
    except InvalidField as error:
        return _json({"error": error.fault.to_json()}, 400 if error.fault.field == "request" else 200)
    except InlayError as error:
        return _json({"error": FieldFault("layout", str(error)).to_json()})


def _answer_layout(value: Any) -> "Response":
    """Answer with the JSON of a layout."""
    return _json({"layout": explore_layout(value)})


def _answer_reorder(value: Any) -> "Response":
    """Answer with the JSON of a reorder."""
    return _json(explore_reorder(value))


_PICTURES: Mapping[str, tuple[str, Callable[[Picture], str | bytes]]] = {
    "svg": ("image/svg+xml", Picture.svg),
    "png": ("image/png", Picture.png),
}
"""Media type of each format of pictures, and the function that draws it."""


def _answer_picture(value: Any) -> "Response":
    """Answer with the picture of a layout, as `inlay.show` draws it."""
    from starlette.responses import Response

    form = str(value.get("format")) if isinstance(value, Mapping) and set(value) == {"request", "format"} else ""
    if form not in _PICTURES:
        raise InvalidField(FieldFault("request", "a picture is an object with request, and format svg or png"))
    explored, (media_type, draw) = read_layout(value["request"]), _PICTURES[form]
    return Response(draw(show(explored.desc, names=explored.names)), media_type=media_type)


_ANSWERS = {
    "layout": _answer_post(_answer_layout),
    "reorder": _answer_post(_answer_reorder),
    "picture": _answer_post(_answer_picture),
}
"""The functions that answer a POST, by the last part of the path."""
