"""The command that prints or installs completion scripts: `inlay completion`."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from inlay.cli.application import JsonOption, app
from inlay.cli.completion import SHELLS, completion_script, script_path
from inlay.cli.output import echo, print_json, write
from inlay.errors import InvalidArguments, printable
from inlay.files import atomic_write, file_error


@app.command(short_help="Print or install the script that completes commands in bash, zsh or fish.")
def completion(
    shell: Annotated[
        str | None,
        typer.Argument(
            metavar="SHELL", help=f"{', '.join(SHELLS)}; the shell of $SHELL by default.", show_default=False
        ),
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Write the script where the shell looks for it, for this user.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the script that completes commands, options, tags, types, tiers, names of vendors and files.

    With --install, it is written into the folder where the shell looks for scripts, for this user. Files such as
    .bashrc are not changed. The script starts no process; write it again after an update of Inlay.

    For example:

      inlay completion --install

      inlay completion bash > inlay-completion.sh
    """
    chosen = _choose_shell(shell)
    script = completion_script(chosen, typer.main.get_command(app))
    path = script_path(chosen) if install else None
    if path is not None:
        _install(script, path)
    if as_json:
        print_json(
            {"shell": chosen, "script": None if install else script, "file": None if path is None else str(path)}
        )
    elif path is None:
        write(script.removesuffix("\n"))
    else:
        echo(f"wrote {printable(str(path))}\n{_HINTS[chosen](path)}")


def _choose_shell(shell: str | None) -> str:
    """Return the shell that is named, or else that of the user.

    Raises:
        InvalidArguments: there is no script for it.
    """
    name = Path(os.environ.get("SHELL", "")).name if shell is None else shell.lower()
    if name in SHELLS:
        return name
    known = ", ".join(SHELLS)
    if shell is None:
        raise InvalidArguments(
            f"SHELL is {name or 'not set'}, and scripts are for {known}: name one, as in `inlay completion bash`"
        )
    raise InvalidArguments(f"there is no completion script for {shell!r}: name {known}")


_HINTS: Mapping[str, Callable[[Path], str]] = {
    "bash": lambda path: (
        "new shells read it if the package bash-completion is installed; otherwise add this line to ~/.bashrc:\n"
        f"  . {_quote(path)}"
    ),
    "zsh": lambda path: (
        "new shells read it if ~/.zshrc has these lines:\n"
        f"  fpath+=({_quote(path.parent)})\n  autoload -Uz compinit && compinit"
    ),
    "fish": lambda _: "new shells read it",
}
"""What the user has to do after an installation."""


def _quote(path: Path) -> str:
    """Return a path for a line of a shell, quoted if necessary."""
    text = str(path)
    return text if re.fullmatch(r"[\w@%+=:,./~-]+", text) else "'" + text.replace("'", "'\\''") + "'"


def _install(script: str, path: Path) -> None:
    """Write a script, and create the folders above it.

    Raises:
        FileError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error("create the folder of", path, error) from error
    with atomic_write(path) as file:
        file.write(script.encode())
