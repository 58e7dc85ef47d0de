"""Suggestions for commands and options that do not exist, and texts of errors about arguments.

A name is looked up in a table of synonyms first, because `draw` resembles no command, and then among names that are
spelled similarly.

>>> suggest_command("draw", ["show", "diff"]), suggest_command("shwo", ["show", "diff"])
(['show'], ['show'])
>>> suggest_option("--type", ["--dtype", "--offsets"])
['--dtype']
"""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from inlay.errors import InvalidArguments, shown

_MOST = 3
"""Maximum number of suggestions."""

_COMMAND_SYNONYMS: Mapping[str, str] = {
    "show": "draw drawing print picture plot render view visualize display paint image svg see cat",
    "offset": "address index offsets position where locate element",
    "info": "describe description inspect layout formula list ls stat stats head tensors size padding properties dump",
    "diff": "compare cmp comparison equal equals same difference match",
    "names": "name tag tags alias aliases types dtypes formats vendors dictionary search lookup find-name",
    "infer": "detect guess recognize recognise identify reverse find deduce",
    "verify": "check validate test assert prove",
    "convert": "pack unpack reorder transpose permute quantize quantise dequantize cast rechunk copy cp save translate",
    "emit": "generate gen code codegen source export c header",
    "bench": "benchmark benchmarks time timeit measure perf speed tune race",
    "plan": "optimize optimise compile schedule analyze analyse explain-network network model graph",
    "run": "execute exec predict infer-network profile call forward trace start",
    "doctor": "status diagnose diagnostics health env environment system cpu about debug support cache engine machine",
    "completion": "completions complete autocomplete autocompletion shell bash zsh fish install-completion",
    "explore": "serve server open browse browser web gui ui play page html explorer interactive",
}
"""Words that users may type for each command; a command that does not exist is not suggested."""

_OPTIONS_FOR_COMMANDS: Mapping[str, str] = {"version": "--version", "help": "--help"}
"""Options that users may type as commands."""

_OPTION_SYNONYMS: Mapping[str, str] = {
    "--dtype": "--type --data-type --datatype --data_type --precision -t",
    "--output": "--out --outfile --output-file --file --save --write --target --dest -f",
    "--overwrite": "--force --replace --yes -y",
    "--to": "--format --layout --dst --tag --as --with --beside",
    "--from": "--src --source --from-format --input-format",
    "--threads": "--num-threads --nthreads --cores --jobs -j -t",
    "--batch": "--batch-size -b -n",
    "--dim": "--dims --shape --size",
    "--dims": "--shape --size",
    "--input": "--inputs --data --feed",
    "--json": "--format --as-json --machine-readable",
    "--out": "--output --outfile --file --save --write --png --picture -o",
    "--names": "--axes --axis-names --labels",
    "--at": "--slice --index --select --where",
    "--heat-map": "--heatmap --heat",
    "--view": "--views --reshape --permute --submemory",
    "--picture": "--svg --draw --png",
    "--html": "--page --report --web",
    "--all": "--verbose --full --every-step -v -a",
    "--dry-run": "--plan --preview --no-write -n",
    "--workers": "--processes --jobs -j",
    "--memory": "--max-memory --limit --mem",
    "--verify": "--check",
    "--rounds": "--repeat --iterations --runs --repeats",
    "--offsets": "--numbers --indices --addresses --offset",
    "--version": "-v -V --ver",
    "--isa": "--arch --cpu --target --march",
    "--types": "--dtypes --data-types",
    "--profile": "--time --timings --verbose",
}
"""Options that users may type for each option, by the commands of other tools."""


_ORDER = (
    *("show", "explore", "offset", "info", "diff", "names"),
    *("convert", "infer", "verify", "emit", "plan", "run", "bench", "doctor", "completion"),
)
"""The commands in the order of the help: by job."""


class CommandGroup(TyperGroup):
    """The group of all commands, which suggests a command for a word that is none."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help; others are the last."""
        return sorted(self.commands, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and the other arguments.

        Raises:
            InvalidArguments: there is no command of this name.
        """
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            if name == "help" and args[1:2] and args[1] in self.commands:
                raise InvalidArguments(f"there is no command 'help': did you mean `inlay {args[1]} --help`?")
            raise InvalidArguments(_unknown_command_text(name, list(self.commands)))
        return super().resolve_command(ctx, args)


def _unknown_command_text(name: str, commands: Sequence[str]) -> str:
    """Return the error text for a word that is no command."""
    suggestions = suggest_command(name, commands)
    if suggestions:
        return (
            f"there is no command {shown(name)}: did you mean {' or '.join(f'`inlay {each}`' for each in suggestions)}?"
        )
    return f"there is no command {shown(name)}: `inlay` lists the commands by what they do"


def suggest_command(name: str, commands: Sequence[str]) -> list[str]:
    """Return the commands that a user may have meant by `name`, the likeliest first; empty if none is likely."""
    word = name.lower().strip("-")
    if word in _OPTIONS_FOR_COMMANDS:
        return [_OPTIONS_FOR_COMMANDS[word]]
    return _suggest(word, commands, _COMMAND_SYNONYMS)


def suggest_option(name: str, options: Sequence[str]) -> list[str]:
    """Return the options that a user may have meant by `name`, the likeliest first; empty if none is likely."""
    return _suggest(name, options, _OPTION_SYNONYMS)


def _suggest(word: str, names: Sequence[str], synonyms: Mapping[str, str]) -> list[str]:
    """Return the names that have `word` as a synonym, else those that are spelled similarly."""
    if word in names:
        return [word]
    exact = [name for name in names if word in synonyms.get(name, "").split()]
    if exact:
        return exact[:_MOST]
    spelled = {other: name for name in names for other in (*synonyms.get(name, "").split(), name)}
    close = get_close_matches(word, spelled, n=_MOST, cutoff=0.7)
    return list(dict.fromkeys(spelled[other] for other in close))


# Errors about arguments


def usage_text(error: typer.TyperException) -> str:
    """Return the message for an error about the arguments of a command, with the command that explains them."""
    make_text = _TEXTS.get(type(error).__name__)
    text = error.format_message() if make_text is None else make_text(error)
    context = getattr(error, "ctx", None)
    return f"{text}\nsee `{context.command_path} --help`" if context else text


def _unknown_option_text(error: Any) -> str:
    """Return the text for an option that the command does not have."""
    options = [name for param in error.ctx.command.params for name in (*param.opts, *param.secondary_opts)]
    suggestions = suggest_option(error.option_name, [name for name in options if name.startswith("-")])
    end = f": did you mean {' or '.join(suggestions)}?" if suggestions else ""
    return f"`{error.ctx.command_path}` has no option {error.option_name}{end}"


def _missing_text(error: Any) -> str:
    """Return the text for an argument or option that was left out, with its meaning.

    If the argument is a list of words, the text names the arguments that follow it too: the parser gives the last words
    to these, so that `inlay offset nchw 2x3` lacks DIMS for it, and COORD for the user.
    """
    missing = _missing_parameters(error)
    names = " and ".join(_name_of(param) for param in missing)
    meanings = "; ".join(_decapitalize(param.help.rstrip(".")) for param in missing if param.help)
    return f"`{error.ctx.command_path}` needs {names}{f': {meanings}' if meanings else ''}{_file_note(error)}"


def _missing_parameters(error: Any) -> list[Any]:
    """Return the parameter that was left out; for a list of words, also the arguments that follow it."""
    if error.param.nargs != -1 or error.param.param_type_name == "option":
        return [error.param]
    arguments = [param for param in error.ctx.command.params if param.param_type_name == "argument"]
    return arguments[arguments.index(error.param) :]


def _name_of(param: Any) -> str:
    """Return the name of a parameter as the help of its command shows it."""
    return " / ".join(param.opts) if param.param_type_name == "option" else param.metavar or param.name.upper()


def _file_note(error: Any) -> str:
    """Return a remark on the command for files, if a format was needed and the name of a file was given; else ""."""
    tag = error.ctx.params.get("tag") if error.param.name == "dims" else None
    if not isinstance(tag, str) or not Path(tag).is_file():
        return ""
    return f"\n{shown(tag)} is a file and no format: `inlay info` lists the tensors of a file"


def _wrong_value_text(error: Any) -> str:
    """Return the text for a value that is no number, where one is needed."""
    for word, needed in (("integer", "a whole number"), ("number", "a number")):
        if f"a valid {word}" in error.message and error.param is not None:
            return f"`{error.ctx.command_path}` needs {needed} as {' / '.join(error.param.opts)}"
    return str(error.format_message())


def _usage_error_text(error: Any) -> str:
    """Return the text for an argument that the command does not take."""
    extra = re.fullmatch(r"Got unexpected extra argument\(?s?\)? \((.*)\)", error.format_message(), re.DOTALL)
    return f"`{error.ctx.command_path}` does not take {extra[1]!r}" if extra else str(error.format_message())


def _decapitalize(text: str) -> str:
    """Return a text whose first word begins with a small letter, unless the word is written in capitals."""
    return text[:1].lower() + text[1:] if not text[1:2].isupper() else text


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "NoSuchOption": _unknown_option_text,
    "MissingParameter": _missing_text,
    "BadParameter": _wrong_value_text,
    "UsageError": _usage_error_text,
}
"""Texts of errors that typer raises, by the name of the class, which typer does not export."""
