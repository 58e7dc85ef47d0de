"""The changes of the releases, and those that wait in `changes/` for the next one, as towncrier would write them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
"""The checkout."""
START = "<!-- new releases go below this line -->\n"
"""The line of CHANGES.md below which towncrier writes."""


def unreleased_changes(root: Path = ROOT) -> str:
    """Return the sections of the next release in Markdown.

    Raises:
        RuntimeError: towncrier refuses a file; the error has its text.
    """
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "unreleased", "--date", "today"]
    done = subprocess.run([*command, "--dir", str(root)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"towncrier cannot write the changes of {root}: {done.stderr.strip()}")
    text = done.stdout.partition("## unreleased (today)")[2].strip()
    return f"## Not yet released\n\n{link_pages(text)}"


def released_changes(root: Path = ROOT) -> str:
    """Return the sections of the releases in Markdown, the newest first; empty before the first one."""
    return link_pages((root / "CHANGES.md").read_text().partition(START)[2].strip())


def link_pages(text: str) -> str:
    """Return a text of the root folder as a page of `docs` has it: its links to pages begin in `docs`.

    >>> link_pages("[Platforms](docs/platforms.md) and [license](LICENSE)")
    '[Platforms](platforms.md) and [license](LICENSE)'
    """
    return text.replace("](docs/", "](")
