"""Make the parts of README.md that are printed or photographed: the output of the demo, and three screenshots.

    python docs/pictures/make_front_page.py                       everything
    python docs/pictures/make_front_page.py demo                  only the output; nothing else may compute meanwhile
    python docs/pictures/make_front_page.py notebook terminal     only these screenshots

Chromium takes the screenshots: of the page that `inlay explore` writes, of a notebook that is executed here, and of
commands that run in a terminal here. Needed besides `inlay[demo]`: Chromium, and
`pip install playwright nbconvert nbclient ipykernel`.
"""

import argparse
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent / "front"
README = ROOT / "README.md"
WIDTH, HEIGHT = 1600, 1400
"""Size of a screenshot, in pixels of the file."""
COLORS = 192
"""Colors of a screenshot's palette, which makes the file a third as large."""

CELLS = (
    'import inlay\n\ninlay.MemoryDesc((1, 6, 2, 3), "f32", "nChw4c")',
    "def pack_rows(rows):\n    return rows.reshape(3, 8, 20).transpose(0, 2, 1).ravel()\n\n"
    'print(inlay.infer(pack_rows, (24, 20), "f32"))\n'
    'print(inlay.verify(inlay.MemoryDesc((24, 20), "f32", "Ab4a"), pack_rows))',
)
"""Cells of the notebook."""
COMMANDS = (
    "inlay show nChw4c 1x3x2x3 --offsets",
    "inlay offset nChw4c 1x3x2x3 0,2,1,0",
    "inlay offset nChw8q 1x3x2x3 0,2,1,0",
)
"""Commands of the terminal; the last one has a mistake."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A screenshot of the front page."""

    caption: str
    """Heading of its column in README.md."""
    description: str
    """Text for readers who do not see it."""
    write_page: Callable[[Path], None]
    """Writes the HTML page that is photographed."""
    width: int = 800
    """Width of the page, in CSS pixels."""
    fragment: str = ""
    """Fragment of the address of the page."""


def write_explorer(page: Path) -> None:
    """Write the page of the explorer, by the command line."""
    run_inlay("explore", "nChw8c", "2x17x5x4", "--out", str(page))


def write_notebook(page: Path) -> None:
    """Execute the notebook and write it as a page."""
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    NotebookClient(notebook).execute()
    body, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    page.write_text(body)


def write_terminal(page: Path) -> None:
    """Run the commands in a terminal of 80 columns and write what it shows as a page."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(record=True, width=80, file=StringIO(), force_terminal=True, color_system="truecolor")
    for command in COMMANDS:
        console.print(Text(f"$ {command}", "bold"))
        console.print(Text.from_ansi(terminal_output(command)))
    svg = console.export_svg(title="Terminal", theme=MONOKAI)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # fonts of another host
    style = "body { margin: 0; background: #0c0c0c } svg { width: 100vw; height: 100vh }"
    page.write_text(f'<meta charset="utf-8"><style>{style}</style>{svg}')


def terminal_output(command: str) -> str:
    """Run a command line of Inlay in a pseudo-terminal and return its output, control codes included."""
    _, *arguments = shlex.split(command)
    reader, writer = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    call = [sys.executable, "-m", "inlay", *arguments]
    process = subprocess.Popen(call, stdin=writer, stdout=writer, stderr=writer, env=environment)
    os.close(writer)
    pieces = []
    try:
        while piece := os.read(reader, 1 << 16):
            pieces.append(piece)
    except OSError:  # Linux reports the end of a pseudo-terminal as an error
        pass
    os.close(reader)
    process.wait()
    return b"".join(pieces).decode().replace("\r\n", "\n")


def run_inlay(*arguments: str) -> None:
    """Run a command line of Inlay."""
    subprocess.run([sys.executable, "-m", "inlay", *arguments], check=True)


SCREENSHOTS: Mapping[str, Screenshot] = {
    "explorer": Screenshot(
        "`inlay explore`: a page to play with",
        "The explorer: the tensor and its memory side by side, with the offset of one element",
        write_explorer,
        width=1200,
        fragment="#at=0,8,0,1",
    ),
    "notebook": Screenshot("A notebook", "A notebook in which descriptors are pictures", write_notebook, width=960),
    "terminal": Screenshot(
        "The command line", "A terminal: a layout, an offset by its digits, an error with its column", write_terminal
    ),
}


def take_screenshots(names: list[str]) -> None:
    """Take the screenshots of these names and write them as PNG files."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in names:
            shot, page = SCREENSHOTS[name], Path(folder) / f"{name}.html"
            shot.write_page(page)
            window = {"width": shot.width, "height": shot.width * HEIGHT // WIDTH}
            view = browser.new_page(viewport=window, device_scale_factor=WIDTH / shot.width)
            view.route(re.compile("^https?:"), lambda route: route.abort())
            view.goto(page.as_uri() + shot.fragment)
            view.wait_for_timeout(500)
            write_png(FOLDER / f"{name}.png", view.screenshot())
            view.close()
        browser.close()


def write_png(path: Path, png: bytes) -> None:
    """Write a picture with a palette, which makes the file smaller."""
    from PIL import Image

    path.parent.mkdir(exist_ok=True)
    with Image.open(BytesIO(png)) as image:
        image.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def demo_text() -> str:
    """Run the demo as in a fresh clone, without PyTorch, and return its output as a block of Markdown."""
    call = [sys.executable, str(ROOT / "examples" / "demo.py"), "--without", "torch"]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(call, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    output = re.sub(r"^   \S+(?= (show|explore|emit|plan) )", "   .venv/bin/inlay", done.stdout, flags=re.MULTILINE)
    return f"```text\n$ make demo\n{output.rstrip()}\n```\n"


def screenshots_text() -> str:
    """Return a table of the screenshots that exist."""
    shown = {name: shot for name, shot in SCREENSHOTS.items() if (FOLDER / f"{name}.png").exists()}
    captions = " | ".join(shot.caption for shot in shown.values())
    folder = FOLDER.relative_to(ROOT).as_posix()
    images = " | ".join(f"![{shot.description}]({folder}/{name}.png)" for name, shot in shown.items())
    return f"| {captions} |\n|{'---|' * len(shown)}\n| {images} |\n"


def replace_part(name: str, text: str) -> None:
    """Replace what stands between the two comments of a part of README.md."""
    readme = README.read_text()
    pattern = rf"(<!-- {name}: .*? -->\n).*?(<!-- end of {name} -->)"
    changed, count = re.subn(pattern, lambda match: match[1] + text + match[2], readme, flags=re.DOTALL)
    if count != 1:
        sys.exit(f"README.md has {count} parts {name!r}: there must be one")
    README.write_text(changed)


def main() -> None:
    """Make the parts that the command line names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["demo", *SCREENSHOTS, []], help="everything if none is named")
    parts = parser.parse_args().parts or ["demo", *SCREENSHOTS]
    if photographed := [name for name in SCREENSHOTS if name in parts]:
        take_screenshots(photographed)
        replace_part("screenshots", screenshots_text())
    if "demo" in parts:
        replace_part("demo", demo_text())


if __name__ == "__main__":
    main()
