"""Definitions of public names: where they are, and the source of their signatures, fields and docstrings.

Signatures and annotations are read from the source, so that they show the names that the source shows: `EngineLike`
instead of the union that it stands for.
"""

import ast
import functools
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from inlay_docs.docstrings import Docstring, parse_docstring

PACKAGE = "inlay"
"""Definitions outside of this package are not described."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a callable, or a field of a class."""

    name: str
    """Name, without stars."""
    spelling: str
    """Name in a signature: with stars, and with the default value."""
    annotation: str
    """Type as the source spells it; empty without one."""
    docstring: str = ""
    """Docstring of a field; empty for a parameter of a function."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Parameters and result of a callable."""

    parameters: tuple[Parameter, ...]
    """Parameters in order, without `self` and `cls`."""
    separators: dict[int, str]
    """Separators `/` and `*` in front of the parameter of this index."""
    returns: str
    """Annotation of the result; empty without one."""

    def __str__(self) -> str:
        """Return the signature in parentheses, with default values and without types."""
        parts = []
        for i, parameter in enumerate(self.parameters):
            parts += [self.separators[i]] if i in self.separators else []
            parts.append(parameter.spelling)
        return f"({', '.join(parts)})"


def import_name(module: str, name: str) -> Any:
    """Import a public name, such as `pack` of `inlay`."""
    return getattr(importlib.import_module(module), name)


@functools.cache
def module_tree(module: str) -> ast.Module:
    """Return the syntax tree of an imported module."""
    loaded: ModuleType = importlib.import_module(module)
    return ast.parse(inspect.getsource(loaded))


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of a constant or type alias."""

    annotation: str
    """Annotation, such as `TypeAlias`; empty without one."""
    value: str
    """Source of the value."""
    docstring: str
    """Text of the string below it; empty without one."""


def find_assignment(module: str, name: str) -> Assignment | None:
    """Return the assignment of a name, in the module that it is imported from if it is; None if there is none."""
    tree = module_tree(module)
    for node, following in _with_following(tree.body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in _assigned_names(node):
            annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            value = "" if node.value is None else ast.unparse(node.value)
            return Assignment(annotation, value, _string_of(following))
    for imported in ast.walk(tree):
        if isinstance(imported, ast.ImportFrom) and (imported.module or "").split(".")[0] == PACKAGE:
            for alias in imported.names:
                if name == (alias.asname or alias.name):
                    return find_assignment(imported.module or "", alias.name)
    return None


def constant_docstring(module: str, name: str) -> str:
    """Return the docstring below the assignment of a constant; empty if there is none."""
    found = find_assignment(module, name)
    return found.docstring if found else ""


def _with_following(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Return each statement with the one that follows it."""
    yield from zip(body, [*body[1:], None], strict=False)


def _assigned_names(node: ast.stmt) -> list[str]:
    """Return the names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _string_of(node: ast.stmt | None) -> str:
    """Return the text of a statement that is a string, or ""."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return inspect.cleandoc(node.value.value)
    return ""


def class_node(owner: type) -> ast.ClassDef | None:
    """Return the definition of a class of the package; None for a class of another package."""
    if owner.__module__.split(".")[0] != PACKAGE:
        return None
    found = [
        node
        for node in ast.walk(module_tree(owner.__module__))
        if isinstance(node, ast.ClassDef) and node.name == owner.__name__
    ]
    return found[0] if found else None


def own_fields(owner: type) -> list[Parameter]:
    """Return the public annotated fields that the body of a class has, with their docstrings."""
    node = class_node(owner)
    fields = []
    for statement, following in _with_following(node.body if node else []):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            default = "" if statement.value is None else f"={_default_of(statement.value)}"
            if not name.startswith("_"):
                text = _annotation_of(statement.annotation)
                fields.append(Parameter(name, f"{name}{default}", text, _string_of(following)))
    return fields


def _default_of(value: ast.expr) -> str:
    """Return the default value of a field; `...` for one that a factory creates."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        keywords = {keyword.arg: keyword.value for keyword in value.keywords}
        return ast.unparse(keywords["default"]) if "default" in keywords else "..."
    return ast.unparse(value)


def function_node(function: FunctionType) -> ast.FunctionDef:
    """Return the definition of a function, the implementation where it is overloaded."""
    path = function.__qualname__.split(".")
    nodes: list[ast.stmt] = module_tree(function.__module__).body
    for name in path[:-1]:
        nodes = next(node.body for node in nodes if isinstance(node, ast.ClassDef) and node.name == name)
    found = [node for node in _functions(nodes) if node.name == path[-1]]
    return found[-1]


def _functions(nodes: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Return the functions of a body, in branches such as `if TYPE_CHECKING` too."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.If):
            yield from _functions([*node.body, *node.orelse])


def function_signature(function: Any, *, bound: bool) -> Signature:
    """Return the signature of a function; `bound` leaves out the first parameter, `self` or `cls`."""
    node = function_node(inspect.unwrap(function))
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parameters = [_parameter(arg, default) for arg, default in zip(positional, defaults, strict=True)]
    separators = {}
    if arguments.posonlyargs:
        separators[len(arguments.posonlyargs) - bound] = "/"
    if bound:
        parameters = parameters[1:]
    if arguments.vararg:
        parameters.append(_parameter(arguments.vararg, None, "*"))
    elif arguments.kwonlyargs:
        separators[len(parameters)] = "*"
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters += [_parameter(arg, default) for arg, default in keywords]
    if arguments.kwarg:
        parameters.append(_parameter(arguments.kwarg, None, "**"))
    return Signature(tuple(parameters), separators, _annotation_of(node.returns))


def _parameter(arg: ast.arg, default: ast.expr | None, stars: str = "") -> Parameter:
    spelled = f"{stars}{arg.arg}" + ("" if default is None else f"={ast.unparse(default)}")
    return Parameter(arg.arg, spelled, _annotation_of(arg.annotation))


def _annotation_of(node: ast.expr | None) -> str:
    """Return the source of an annotation, without the quotation marks of a forward reference; empty without one."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "" if node is None else ast.unparse(node)


def constructor(owner: type) -> tuple[Signature, Docstring] | None:
    """Return signature and docstring of what creates objects of a class; None if the package does not define it."""
    defining = next((base for base in owner.__mro__ if "__init__" in vars(base)), object)
    if defining.__module__.split(".")[0] != PACKAGE or getattr(owner, "_is_protocol", False):
        return None
    if not _is_generated(defining):
        init = vars(defining)["__init__"]
        return function_signature(init, bound=True), parse_docstring(init.__doc__)
    fields = {field.name: field for base in reversed(owner.__mro__) for field in own_fields(base)}
    created = [fields[name] for name in inspect.signature(owner).parameters if name in fields]
    return Signature(tuple(created), {}, ""), parse_docstring(None)


def _is_generated(owner: type) -> bool:
    """Return True for a dataclass or named tuple whose constructor its fields define."""
    node = class_node(owner)
    return node is None or "__init__" not in {function.name for function in _functions(node.body)}
