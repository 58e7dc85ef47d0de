"""Scripts that complete commands, options and values in bash, zsh and fish.

The scripts contain all names, so that completion starts no Python: it takes some milliseconds, instead of the start-up
time of Inlay. They are made of the declared commands: `describe_commands` reads options and arguments from the
application, and a table says by their metavars which values they take. The control flow of each shell is a template in
`inlay/data/completion`, into which the names are inserted.

Names with characters that a shell would interpret, such as `xla:{1,0:T(8,128)}`, are left out.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from inlay import __version__
from inlay.data_type import DATA_TYPES
from inlay.descriptor.compound_table import compound_formats
from inlay.notation.dictionary import ONEDNN, list_rows
from inlay.notation.format_tag import ALIASES, ENUMERATED

SHELLS = ("bash", "zsh", "fish")
"""Shells for which there is a script."""

_KINDS: Mapping[str, str] = {
    "--engine": "engine",
    "--target": "target",
    "TAG": "tag",
    "TAG|FILE": "tag_or_file",
    "OTHER": "tag_or_file",
    "[NAME]": "name",
    "[PATTERN=]TAG": "after_equals_format",
    "SRC DST DIMS | MODEL": "tag_or_file",
    "[TAG DIMS]": "tag",
    "TYPE": "type",
    "TIER": "tier",
    "ISA": "isa",
    "FORM": "form",
    "KIND": "table",
    "MODE": "mode",
    "SOURCE": "fallback",
    "PRECISION": "precision",
    "TYPES": "bench_precision",
    "LIST": "peers",
    "SHELL": "shell",
    "absmax[:AXIS|:group=N]": "quantization",
    "ADDRESS|local": "dask",
    "FILE": "file",
    "IN": "file",
    "OUT": "file",
    "MODEL": "model",
    "[NAME=]FILE": "after_equals_file",
    "DIR": "directory",
}
"""The kind of values of a parameter, by the name of an option or by the metavar; others take values of no kind."""

_VALUES: Mapping[str, Sequence[str]] = {
    "engine": ("onednn", "reference"),
    "tier": ("measured", "probed", "analytic"),
    "isa": (
        *("sse41", "avx", "avx2", "avx2_vnni", "avx2_vnni_2", "avx512_core", "avx512_core_vnni", "avx512_core_bf16"),
        *("avx512_core_fp16", "avx512_core_amx", "avx512_core_amx_fp16"),
    ),
    "form": ("c", "object", "numpy", "onednn", "words"),
    "target": ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64", "aarch64-sve256", "aarch64-sve512"),
    "table": ("physical", "logical"),
    "mode": ("auto", "direct"),
    "fallback": ("auto", "numpy", "none"),
    "precision": ("model", "f32", "bf16", "f16", "auto"),
    "bench_precision": ("f32", "bf16", "f16", "int8", "auto"),
    "peers": ("onnxruntime", "openvino", "torch"),
    "quantization": ("absmax", "absmax:0", "absmax:group=32", "absmax:group=64", "absmax:group=128"),
    "dask": ("local",),
    "shell": SHELLS,
}
"""Values of the kinds that are no names of layouts or types."""

_SAFE = re.compile(r"[A-Za-z0-9_.:=/+-]+")
"""Values that no shell interprets."""


@dataclass(frozen=True, slots=True)
class CompletedOption:
    """An option of a command."""

    names: tuple[str, ...]
    """Names, such as `-o` and `--output`."""
    kind: str | None
    """Kind of its values; `none` if they are not completed, None if it takes no value."""
    help: str
    """First sentence of its help."""


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """A command with its options and arguments."""

    name: str
    """Name of the command."""
    help: str
    """One line on what it does."""
    options: tuple[CompletedOption, ...]
    """Options in the order of the help."""
    arguments: tuple[str, ...]
    """Kind of each argument; arguments beyond the last are of its kind."""


def completion_script(shell: str, group: Any) -> str:
    """Return the script for a shell of `SHELLS`; `group` is the command of the application, with all subcommands."""
    template = files("inlay").joinpath("data", "completion", f"inlay.{shell}").read_text(encoding="utf-8")
    tables = "\n\n".join(_TABLES[shell](describe_commands(group), list_values(group)))
    return template.replace("@VERSION@", __version__).replace("@TABLES@", tables)


def _folder(variable: str, default: str) -> Path:
    """Return the folder that a variable of the environment names, or a default below the home directory."""
    return Path(os.environ.get(variable) or Path.home() / default)


def script_path(shell: str) -> Path:
    """Return the file in which a shell looks for the script."""
    return _PATHS[shell]()


_PATHS: Mapping[str, Callable[[], Path]] = {
    "bash": lambda: (
        (
            Path(os.environ["BASH_COMPLETION_USER_DIR"])
            if os.environ.get("BASH_COMPLETION_USER_DIR")
            else _folder("XDG_DATA_HOME", ".local/share") / "bash-completion"
        )
        / "completions"
        / "inlay"
    ),
    "zsh": lambda: _folder("XDG_DATA_HOME", ".local/share") / "zsh" / "site-functions" / "_inlay",
    "fish": lambda: _folder("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / "inlay.fish",
}
"""The file of each shell."""


def installed_version(shell: str) -> str | None:
    """Return the version of Inlay that wrote the installed script of a shell; None if there is no script."""
    try:
        text = script_path(shell).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r"^# Completion of .* of version (\S+)\.$", text, re.MULTILINE)
    return "unknown" if version is None else version[1]


def describe_commands(group: Any) -> list[CompletedCommand]:
    """Return the commands of the application, which are not hidden, with the kinds of their values."""
    return [
        CompletedCommand(name, _first_sentence(command.get_short_help_str(200)), *_describe_parameters(command))
        for name, command in group.commands.items()
        if not command.hidden
    ]


def _describe_parameters(command: Any) -> tuple[tuple[CompletedOption, ...], tuple[str, ...]]:
    """Return the options of a command, and the kinds of its arguments."""
    options, arguments = [CompletedOption(("--help", "-h"), None, "Show this message and exit")], []
    for param in command.params:
        if param.param_type_name == "argument":
            arguments.append(_KINDS.get(param.metavar or "", "none"))
        elif not param.hidden:
            kind = None if param.is_flag else _kind_of_option(param)
            names = (*param.opts, *param.secondary_opts)
            options.append(CompletedOption(names, kind, _first_sentence(param.help or "")))
    return tuple(options), tuple(arguments)


def _kind_of_option(param: Any) -> str:
    """Return the kind of the values of an option: by its name, else by its metavar."""
    return next((_KINDS[name] for name in (*param.opts, param.metavar or "") if name in _KINDS), "none")


def _first_sentence(text: str) -> str:
    """Return the first sentence of a help text without the period."""
    return re.split(r"\.(?:\s|$)|[;:]\s", text, maxsplit=1)[0]


def list_values(group: Any) -> dict[str, list[str]]:
    """Return the values of each kind, of which shells interpret none.

    Kind `tag` has tags, aliases, and vendors with a colon; `vendor` has the names of vendors.
    """
    vendors = [row.name for row in (*list_rows(), *list_rows(ONEDNN))] + list(compound_formats())
    prefixes = sorted({f"{name.partition(':')[0]}:" for name in vendors})
    tags = [*ALIASES, *ENUMERATED]
    values: dict[str, Iterable[str]] = {
        "command": [name for name, command in group.commands.items() if not command.hidden],
        "tag": [*tags, *prefixes],
        "format": ["plain", *tags, *prefixes],
        "name": [*tags, *prefixes],
        "vendor": vendors,
        "type": DATA_TYPES,
        **_VALUES,
    }
    return {kind: list(dict.fromkeys(filter(_SAFE.fullmatch, names))) for kind, names in values.items()}


# Tables as functions of the shells


def _posix_tables(commands: Sequence[CompletedCommand], values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield functions for bash and zsh that set `words_of_kind`, `kinds` and `kind`."""
    yield _posix_function(
        "values", "words_of_kind", "$1", {kind: " ".join(names) for kind, names in values.items()}.items()
    )
    yield _posix_function("arguments", "kinds", "$1", ((each.name, " ".join(each.arguments)) for each in commands))
    yield _posix_function("option_kind", "kind", "$1 $2", _option_kinds(commands))


def _posix_function(name: str, variable: str, subject: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a function that sets a variable to the text of the row whose name is `subject`, else to nothing."""
    cases = "".join(f"        '{key}') {variable}='{text}' ;;\n" for key, text in rows)
    return f"_inlay_{name}() {{\n    {variable}=''\n    case \"{subject}\" in\n{cases}    esac\n}}"


def _option_kinds(commands: Sequence[CompletedCommand]) -> Iterator[tuple[str, str]]:
    """Yield the command and the name of each option that takes a value, and the kind of the values."""
    for command in commands:
        for option in command.options:
            if option.kind is not None:
                yield from ((f"{command.name} {name}", option.kind) for name in option.names)


def _bash_tables(commands: Sequence[CompletedCommand], values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the functions of the script for bash."""
    yield from _posix_tables(commands, values)
    rows = ((each.name, " ".join(name for option in each.options for name in option.names)) for each in commands)
    yield _posix_function("options", "words_of_kind", "$1", rows)


def _zsh_tables(commands: Sequence[CompletedCommand], values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the functions of the script for zsh: options and commands have descriptions."""
    yield from _posix_tables(commands, values)
    items = "\n".join(f"        {_zsh_item(each.name, each.help)}" for each in commands)
    yield f"_inlay_command_items() {{\n    items=(\n{items}\n    )\n}}"
    cases = "".join(
        f"        {each.name})\n            items=(\n"
        + "".join(
            f"                {_zsh_item(name, option.help)}\n" for option in each.options for name in option.names
        )
        + "            )\n            ;;\n"
        for each in commands
    )
    yield f'_inlay_option_items() {{\n    items=()\n    case "$1" in\n{cases}    esac\n}}'


def _zsh_item(name: str, text: str) -> str:
    """Return an entry for `_describe`: name and description in quotes."""
    return "'" + f"{name}:{text}".replace("'", "'\\''") + "'"


def _fish_tables(commands: Sequence[CompletedCommand], values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the functions of the script for fish, which print a line for each value."""
    yield _fish_function("values", "$argv[1]", ((kind, list(names)) for kind, names in values.items()))
    yield _fish_function("arguments", "$argv[1]", ((each.name, list(each.arguments)) for each in commands))
    yield _fish_function("option_kind", '"$argv[1] $argv[2]"', ((key, [kind]) for key, kind in _option_kinds(commands)))
    lines = "\n".join(f"    printf '%s\\t%s\\n' {_fish_quote(each.name)} {_fish_quote(each.help)}" for each in commands)
    yield f"function __inlay_command_items\n{lines}\nend"
    cases = "".join(
        f"        case {each.name}\n"
        + "".join(
            f"            printf '%s\\t%s\\n' {_fish_quote(name)} {_fish_quote(option.help)}\n"
            for option in each.options
            for name in option.names
        )
        for each in commands
    )
    yield f"function __inlay_option_items\n    switch $argv[1]\n{cases}    end\nend"


def _fish_function(name: str, subject: str, rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a function that prints the texts of the row whose name is `subject`, one a line."""
    cases = "".join(
        f"        case '{key}'\n            printf '%s\\n' {' '.join(texts)}\n" for key, texts in rows if texts
    )
    return f"function __inlay_{name}\n    switch {subject}\n{cases}    end\nend"


def _fish_quote(text: str) -> str:
    """Return a text in single quotes for fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_TABLES: Mapping[str, Callable[[Sequence[CompletedCommand], Mapping[str, Sequence[str]]], Iterator[str]]] = {
    "bash": _bash_tables,
    "zsh": _zsh_tables,
    "fish": _fish_tables,
}
"""The functions of each script that hold names."""
