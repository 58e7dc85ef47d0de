"""`inlay explore` in a process of its own, and requests to its server."""

import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class ExplorerProcess:
    """A running `inlay explore`."""

    process: "subprocess.Popen[str]"
    """The process."""
    url: str
    """The address that it printed, without the fragment."""
    fragment: str
    """The fragment of that address, without `#`."""

    def fetch(
        self,
        path: str = "",
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> "Answer":
        """Request a path below the address, or, if it begins with a slash, any path of the server."""
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        try:
            target = path if path.startswith("/") else parts.path + path
            connection.request(method, target, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(
                response.status, {key.lower(): value for key, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def post(self, name: str, value: object) -> "Answer":
        """Send JSON to a path of the interface."""
        return self.fetch(f"api/{name}", method="POST", body=json.dumps(value).encode(), headers=JSON)

    def end(self) -> tuple[int, str]:
        """Send Ctrl-C, and return the exit code and what was printed on the error stream."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    """Status code."""
    headers: Mapping[str, str]
    """Headers; the names are in lower case."""
    body: bytes
    """The body."""

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


JSON = {"Content-Type": "application/json"}
"""Headers of a request in JSON."""


COMMAND = ("-m", "inlay", "explore", "--no-open")
"""Arguments of Python that run the explorer without a browser."""


@contextmanager
def serve_explorer(*arguments: str, program: Sequence[str] = COMMAND) -> Iterator[ExplorerProcess]:
    """Run `inlay explore` with these arguments, or another program that does, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url, _, fragment = process.stdout.readline().strip().partition("#")
        assert url, process.communicate()[1]
        yield ExplorerProcess(process, url, fragment)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
