"""The server of the explorer: what it answers, what it refuses, how it ends. Most tests talk to the real command."""

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any
from urllib.parse import urlsplit

import pytest

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.render import show
from inlay.render.explorer import server as server_module
from inlay.render.explorer.model import explore_layout, list_choices
from inlay.render.explorer.page import page_files
from inlay.render.explorer.server import MOST_BYTES, ExplorerServer, make_application
from tests.support.explorer_process import JSON, ExplorerProcess, serve_explorer
from tests.support.refusals import raises_exactly

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

NCHW8C: dict[str, Any] = {"layout": "nChw8c", "dims": "2x17x5x4", "data_type": "f32", "names": None, "views": []}


@pytest.fixture(scope="module")
def explorer() -> Iterator[ExplorerProcess]:
    """A running explorer."""
    with serve_explorer() as process:
        yield process


def test_the_page_and_its_files_are_those_of_the_package(explorer: ExplorerProcess) -> None:
    assert explorer.fetch().body == page_files()["page.html"]
    for name, content in page_files().items():
        answer = explorer.fetch(f"page/{name}")
        assert (answer.status, answer.body) == (200, content)
    assert explorer.fetch("page/main.js").headers["content-type"] == "text/javascript; charset=utf-8"
    assert explorer.fetch(method="HEAD").body == b""


def test_a_layout_is_answered_with_its_json(explorer: ExplorerProcess) -> None:
    answer = explorer.post("layout", NCHW8C)
    assert (answer.status, answer.json()) == (200, {"layout": explore_layout(NCHW8C)})


def test_a_mistake_while_typing_is_an_answer(explorer: ExplorerProcess) -> None:
    answer = explorer.post("layout", {**NCHW8C, "layout": "nchw8c"})
    assert answer.status == 200
    assert answer.json()["error"]["suggestions"] == ["nChw8c"]


def test_a_reorder_is_answered_with_both_layouts(explorer: ExplorerProcess) -> None:
    request = {"src": {**NCHW8C, "layout": "nchw"}, "dst": NCHW8C}
    answer = explorer.post("reorder", request).json()
    assert (answer["src"], answer["dst"]) == (explore_layout(request["src"]), explore_layout(request["dst"]))
    assert answer["kernel"].startswith("tile of ")
    assert answer["lines"][0] == "problem"
    assert answer["runs"].startswith("up to 20 neighbors in the source go 8 elements apart; ")
    assert answer["bytes"] == "6.6 kB are read and written"


@pytest.mark.parametrize(
    ("src", "dst", "side", "message"),
    [
        ({"layout": "nchw8c"}, {}, "src", "outer axis 'c' has inner blocks: write 'C'"),
        (
            {},
            {"dims": "2x17x5"},
            "dst",
            "format nChw8c (aBcd8b) places 4 axes, but dims (2, 17, 5) are 3: give 4 dims, or a format of 3 "
            "letters such as abc",
        ),
        (
            {},
            {"dims": "2x17x5x5"},
            "dst",
            "a reorder keeps the dims, but the source has 2x17x5x4 and the destination 2x17x5x5",
        ),
        (
            {},
            {"layout": "0,20,4,1"},
            "dst",
            "elements of the destination overlap: give every element an offset of its own",
        ),
    ],
)
def test_an_error_of_a_reorder_says_of_which_layout(
    explorer: ExplorerProcess, src: dict[str, str], dst: dict[str, str], side: str, message: str
) -> None:
    error = explorer.post("reorder", {"src": {**NCHW8C, **src}, "dst": {**NCHW8C, **dst}}).json()["error"]
    assert error["side"] == side
    assert error["message"] == message


def test_a_picture_is_that_of_show(explorer: ExplorerProcess) -> None:
    answer = explorer.post("picture", {"request": NCHW8C, "format": "svg"})
    assert answer.headers["content-type"] == "image/svg+xml"
    assert answer.body.decode() == show(MemoryDesc((2, 17, 5, 4), "f32", "nChw8c")).svg()
    for wrong in ("exe", ["svg"], None):
        assert explorer.post("picture", {"request": NCHW8C, "format": wrong}).status == 400
    assert (
        explorer.post("picture", {"request": {**NCHW8C, "dims": "2x"}, "format": "svg"}).json()["error"]["field"]
        == "dims"
    )


def test_choices_are_answered(explorer: ExplorerProcess) -> None:
    assert explorer.fetch("api/choices").json() == list_choices()


def test_every_answer_forbids_other_pages_to_use_it(explorer: ExplorerProcess) -> None:
    for answer in (explorer.fetch(), explorer.fetch("/"), explorer.post("layout", NCHW8C), explorer.post("layout", [])):
        headers = answer.headers
        assert headers["content-security-policy"] == (
            "default-src 'self'; img-src 'self' data: blob:; "
            "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
        )
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"
        assert not [name for name in headers if name.startswith("access-control") or name == "server"]


@pytest.mark.parametrize("path", ["/", "/favicon.ico", "/wrong/", "/wrong/page/main.js", "/wrong/api/layout"])
def test_paths_without_the_token_do_not_exist(explorer: ExplorerProcess, path: str) -> None:
    assert explorer.fetch(path).status == 404


@pytest.mark.parametrize(
    "path",
    ["x", "page/", "page/model.py", "page/..%2Fserver.py", "page/../server.py", "api/", "api/none", "page/main.js/x"],
)
def test_paths_that_are_no_file_of_the_page_do_not_exist(explorer: ExplorerProcess, path: str) -> None:
    assert explorer.fetch(path).status == 404


def test_a_token_without_its_slash_is_no_page(explorer: ExplorerProcess) -> None:
    assert explorer.fetch(urlsplit(explorer.url).path.rstrip("/")).status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}x", ""]
)
def test_requests_for_other_hosts_are_refused(explorer: ExplorerProcess, host: str) -> None:
    port = urlsplit(explorer.url).port
    answer = explorer.fetch(headers={"Host": host.format(port=port)})
    assert answer.status in (400, 403)
    assert b"explorer-data" not in answer.body


def test_the_name_of_the_loopback_interface_is_this_host(explorer: ExplorerProcess) -> None:
    port = urlsplit(explorer.url).port
    assert explorer.fetch(headers={"Host": f"localhost:{port}"}).status == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}"])
def test_requests_from_other_pages_are_refused(explorer: ExplorerProcess, origin: str) -> None:
    headers = {**JSON, "Origin": origin.format(port=urlsplit(explorer.url).port)}
    body = json.dumps(NCHW8C).encode()
    assert explorer.fetch("api/layout", method="POST", body=body, headers=headers).status == 403


def test_requests_from_its_own_page_are_answered(explorer: ExplorerProcess) -> None:
    headers = {**JSON, "Origin": explorer.url[: explorer.url.index("/", 8)]}
    answer = explorer.fetch("api/layout", method="POST", body=json.dumps(NCHW8C).encode(), headers=headers)
    assert answer.status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ""),
        ("DELETE", ""),
        ("PUT", "page/main.js"),
        ("GET", "api/layout"),
        ("PUT", "api/layout"),
        ("OPTIONS", "api/layout"),
    ],
)
def test_other_methods_are_refused(explorer: ExplorerProcess, method: str, path: str) -> None:
    assert explorer.fetch(path, method=method).status == 405


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"{}", {"Content-Type": "text/plain"}, 415, "the body of a request is JSON: send it as application/json"),
        (b"layout=nchw", {}, 415, "the body of a request is JSON: send it as application/json"),
        (b"{", JSON, 400, "the body of the request is no JSON"),
        (b"\xff", JSON, 400, "the body of the request is no JSON"),
        (b"[" * 60_000, JSON, 400, "the body of the request is no JSON"),
        (b"[]", JSON, 400, "a request is an object of JSON, not []"),
        (b" " * (MOST_BYTES + 1), JSON, 413, "a request has at most 65536 bytes"),
        (
            b'{"layout": "ab", "dims": "2x3", "views": [{"op": 1}]}',
            JSON,
            400,
            "the op of view 0 is '1': give one of reshape, permute, submemory",
        ),
    ],
)
def test_a_malformed_request_says_what_is_wrong(
    explorer: ExplorerProcess, body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    answer = explorer.fetch("api/layout", method="POST", body=body, headers=headers)
    assert (answer.status, answer.json()["error"]["message"]) == (status, message)
    assert answer.json()["error"]["field"] == "request"


def test_a_body_without_end_is_refused_when_it_is_too_long(explorer: ExplorerProcess) -> None:
    parts = urlsplit(explorer.url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    connection.request("POST", f"{parts.path}api/layout", iter([b" " * 1024] * 1000), JSON, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize("dims", [f"{10**18}", f"{10**18}x3", f"{2**63 - 1}", "x".join(["1000000"] * 3)])
def test_tensors_of_any_size_are_answered_at_once(explorer: ExplorerProcess, dims: str) -> None:
    strides = ",".join("1" if i else "3" for i in range(dims.count("x") + 1))
    for request in ({"layout": "abc"[: dims.count("x") + 1], "dims": dims}, {"layout": strides, "dims": dims}):
        begin = time.monotonic()
        answer = explorer.post("layout", {**request, "data_type": "u8"})
        assert answer.status == 200
        assert explorer.post("picture", {"request": {**request, "data_type": "u8"}, "format": "svg"}).status == 200
        assert time.monotonic() - begin < 60


def test_requests_at_the_same_time_are_answered(explorer: ExplorerProcess) -> None:
    requests = [{**NCHW8C, "dims": f"2x{c}x5x4"} for c in range(1, 33)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda request: explorer.post("layout", request).json(), requests))
    assert [answer["layout"]["dims"][1] for answer in answers] == list(range(1, 33))


def test_two_servers_have_different_tokens_and_ports(explorer: ExplorerProcess) -> None:
    with serve_explorer("nchw", "2x17x5x4") as other:
        assert other.fragment == "l=nchw&d=2x17x5x4&t=f32"
        assert urlsplit(other.url).port != urlsplit(explorer.url).port
        token = urlsplit(explorer.url).path
        assert len(token.strip("/")) >= 20
        assert other.fetch(token).status == 404


def test_ctrl_c_ends_the_server_with_an_open_connection_and_closes_the_port() -> None:
    with serve_explorer() as process:
        parts = urlsplit(process.url)
        with socket.create_connection((str(parts.hostname), parts.port)) as idle:
            assert process.fetch().status == 200
            code, errors = process.end()
            assert code == 0
            assert errors == "open this address in a web browser on this machine; Ctrl-C ends the server\nended\n"
            assert idle.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((str(parts.hostname), parts.port))


def test_requests_that_end_early_are_no_defects() -> None:
    with serve_explorer() as process:
        parts = urlsplit(process.url)
        head = f"POST {parts.path}api/layout HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        for text in (
            f"{head}Content-Length: 100\r\n\r\n{{",
            head,
            "nonsense\r\n\r\n",
            f"{head}Content-Length: x\r\n\r\n",
        ):
            with socket.create_connection((str(parts.hostname), parts.port)) as connection:
                connection.sendall(text.encode())
        assert process.post("layout", NCHW8C).status == 200
        code, errors = process.end()
    assert code == 0
    assert errors == "open this address in a web browser on this machine; Ctrl-C ends the server\nended\n"


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = f"port {port} is in use: leave --port out for a free one, or give another"
        with raises_exactly(InvalidArguments, text):
            ExplorerServer.bind(port)


@pytest.mark.parametrize("port", [-1, 65536, "80", True])
def test_a_port_that_is_none_is_refused(port: object) -> None:
    text = f"port is {port!r}: give one from 1 to 65535, or 0 for any free one"
    with raises_exactly(InvalidArguments, text):
        ExplorerServer.bind(port)  # type: ignore[arg-type]


def test_a_defect_is_reported_without_a_traceback_and_the_server_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    application = make_application("token", 8000, reports.append)
    monkeypatch.setattr(server_module, "list_choices", lambda: 1 // 0)
    status, body = get_from(application, "/token/api/choices", ZeroDivisionError)
    text = (
        "internal error: ZeroDivisionError: integer division or modulo by zero; "
        "this is a defect of Inlay, please report it; INLAY_DEBUG=1 shows where it happened"
    )
    assert (status, json.loads(body)["error"]["message"]) == (500, text)
    assert reports == [text]
    assert get_from(application, "/token/") == (200, page_files()["page.html"])


BROKEN = """
import sys
from inlay.cli import main
from inlay.render.explorer import server
server.list_choices = lambda: 1 // 0
sys.exit(main(["explore", "--no-open"]))
"""


@pytest.mark.parametrize("debug", [False, True])
def test_a_running_server_prints_one_line_of_a_defect_and_a_traceback_for_debugging(
    monkeypatch: pytest.MonkeyPatch, debug: bool
) -> None:
    monkeypatch.setenv("INLAY_DEBUG", "1" if debug else "")
    with serve_explorer(program=["-c", BROKEN]) as process:
        assert process.fetch("api/choices").status == 500
        assert process.fetch().status == 200
        code, errors = process.end()
    assert code == 0
    assert errors.count("internal error: ZeroDivisionError") == 1
    assert ("Traceback" in errors) is debug


def get_from(application: Any, path: str, error: type[Exception] | None = None) -> tuple[int, bytes]:
    """Status and body of the answer of a web application to a GET, without a server, which ends with `error`."""
    sent: list[dict[str, Any]] = []
    headers = [(b"host", b"localhost:8000")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    with pytest.raises(error) if error else nullcontext():
        asyncio.run(application(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
