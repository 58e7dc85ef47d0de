"""Interactive shells on a pseudo-terminal, in which completion is requested as a user does: by the tab key."""

import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

SECONDS = 20.0
"""Longest wait for an answer of a shell."""
_END = "<end>"
_PRINTING = """inlay() { printf '<arg:%s>' "$@"; printf '<e''nd>'; }"""  # the echo of this line has no mark


class InteractiveShell:
    """A shell whose command `inlay` prints its arguments, so that one sees what the tab key made of a line."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def complete(self, line: str) -> list[str]:
        """Type a line, the tab key and return; the arguments that `inlay` then gets."""
        self.send(f"{line}\t\r")
        text = self.read_until(_END)
        return re.findall(r"<arg:([^>]*)>", text)

    def send(self, text: str) -> None:
        """Type characters, slowly enough for the shell to see a tab key and no pasted text."""
        for character in text:
            os.write(self._terminal, character.encode())
            time.sleep(0.05 if character in "\t\r" else 0.0)

    def read_until(self, mark: str) -> str:
        """What the shell writes until this mark."""
        text, deadline = "", time.monotonic() + SECONDS
        while mark not in text:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the shell wrote {text!r} and no {mark!r}")
            text += os.read(self._terminal, 65536).decode(errors="replace")
        return text


_WITH_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""A program that makes its input the terminal of its session, and then becomes a shell."""


@contextmanager
def interactive_shell(call: list[str], set_up: list[str], folder: Path) -> Iterator[InteractiveShell]:
    """A shell without settings of this user, in a folder, that has read lines of set-up."""
    terminal, inside = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_TERMINAL, *call],
        cwd=folder,
        env=environment,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    shell = InteractiveShell(terminal)
    try:
        for line in set_up:
            shell.send(f"{line}\r")
        shell.send("echo is''ready\r")
        shell.read_until("isready")
        yield shell
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def bash(script: Path, folder: Path) -> AbstractContextManager[InteractiveShell]:
    """Bash that has read a completion script."""
    call = ["bash", "--norc", "--noprofile", "-i"]
    return interactive_shell(call, [f". {shlex.quote(str(script))}", _PRINTING], folder)


def zsh(script: Path, folder: Path) -> AbstractContextManager[InteractiveShell]:
    """Zsh that has read a completion script, `_inlay`, from a folder of functions."""
    set_up = [f"fpath+=({shlex.quote(str(script.parent))})", "autoload -Uz compinit && compinit -u", _PRINTING]
    return interactive_shell(["zsh", "-f", "-i"], set_up, folder)


def complete_in_fish(script: Path, line: str, folder: Path) -> list[str]:
    """The candidates of fish for a line, as its command `complete -C` prints them, without descriptions."""
    command = f"source {shlex.quote(str(script))}; complete -C {shlex.quote(line)}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}
    call = ["fish", "--no-config", "-c", command]
    done = subprocess.run(
        call, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]
