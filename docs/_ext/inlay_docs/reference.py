"""Markdown of public names: signature, text, table of parameters, exceptions, and members of classes.

Each name becomes a directive of Sphinx's Python domain, so that the search finds it and other pages can link to it.
"""

import functools
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from inlay_docs.definitions import (
    PACKAGE,
    Assignment,
    Parameter,
    Signature,
    constant_docstring,
    constructor,
    find_assignment,
    function_signature,
    import_name,
    own_fields,
)
from inlay_docs.docstrings import Docstring, describe_parameter, join_lines, parse_docstring, without_descriptions
from inlay_docs.markdown_text import Resolver, code_cell, table, to_cell, to_inline, to_markdown

SHOWN_SPECIAL_METHODS = ("__call__",)
"""Special methods that are described; the others mean what Python says."""
SHARED_PARAMETERS = Path(__file__).with_name("shared_parameters.toml")
"""Meanings of parameters that many functions share."""


@dataclass(frozen=True, slots=True)
class Member:
    """A method, property or field of a class."""

    name: str
    """Name in the class."""
    kind: str
    """`method`, `classmethod`, `staticmethod`, or `attribute` for properties and fields."""
    value: Any
    """The function of a method; a `Parameter` with type and docstring for an attribute."""


@functools.cache
def read_shared_parameters() -> dict[str, dict[str, str]]:
    """Return the meanings of parameters that many functions share, by the name of what contains them."""
    table: dict[str, dict[str, str]] = tomllib.loads(SHARED_PARAMETERS.read_text())
    return table


@dataclass(frozen=True, slots=True)
class Callee:
    """A function, method or class whose parameters are described."""

    path: str
    """Full name, such as `inlay.MemoryDesc.csr`."""
    module: str
    """Module that defines it."""
    signature: Signature
    """Its parameters."""
    texts: tuple[Docstring, ...]
    """Docstrings that may describe parameters, the first counts most."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Docstrings of the fields of the class, by name."""

    def meaning(self, parameter: Parameter) -> str:
        """Return the description of a parameter; empty if there is none."""
        return self.own_meaning(parameter) or self.shared_entry(parameter.name)[1]

    def own_meaning(self, parameter: Parameter) -> str:
        """Return the description of a parameter in the docstrings; empty if there is none."""
        if parameter.docstring:
            return first_text(parameter.docstring)
        found = next(filter(None, (describe_parameter(text, parameter.name) for text in self.texts)), "")
        return found or first_text(self.fields.get(parameter.name, ""))

    def shared_entry(self, name: str) -> tuple[str, str]:
        """Return section and text of the shared description of a parameter; empty texts if there is none."""
        table = read_shared_parameters()
        path = self.path
        while path:
            if name in table.get(path, {}):
                return path, table[path][name]
            path = path.rpartition(".")[0]
        return "", ""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The names of the reference."""

    modules: Mapping[str, tuple[str, ...]]
    """Names of each public module."""

    def resolver(self, module: str) -> Resolver:
        """Return the function that finds documented names for texts of a module."""

        def resolve(text: str) -> str | None:
            name, _, member = text.partition(".")
            for owner in dict.fromkeys([module, PACKAGE, *self.modules]):
                if name in self.modules.get(owner, ()):
                    return f"{owner}.{text}" if not member or self.has_method(owner, name, member) else None
            return None

        return resolve

    def has_method(self, module: str, name: str, member: str) -> bool:
        """Return True if a name is a class whose method of that name is described."""
        value = import_name(module, name)
        is_class = isinstance(value, type)
        return is_class and any(one.name == member and one.kind != "attribute" for one in self.members(value))

    def members(self, owner: type) -> list[Member]:
        """Return the public members of a class, with those of bases that the reference does not describe."""
        found: dict[str, Member] = {}
        for base in owner.__mro__:
            if base.__module__.split(".")[0] == PACKAGE and (base is owner or not self.describes(base)):
                for member in own_members(base):
                    found.setdefault(member.name, member)
        return list(found.values())

    def describes(self, owner: type) -> bool:
        """Return True if the reference describes a class."""
        name = owner.__name__
        return any(name in names and import_name(module, name) is owner for module, names in self.modules.items())

    def described_bases(self, module: str, owner: type) -> list[str]:
        """Return the full names of the bases that the reference describes, the nearest first."""
        resolve = self.resolver(module)
        names = [resolve(base.__name__) for base in owner.__mro__[1:] if self.describes(base)]
        return [name for name in names if name]


def own_members(owner: type) -> Iterator[Member]:
    """Return the public members that a class defines itself: fields, then properties, then methods."""
    for one in own_fields(owner):
        if one.docstring or not one.annotation.startswith("ClassVar"):
            yield Member(one.name, "attribute", one)
    kinds = {classmethod: "classmethod", staticmethod: "staticmethod"}
    methods = []
    for name, value in vars(owner).items():
        if name.startswith("_") and name not in SHOWN_SPECIAL_METHODS:
            continue
        if isinstance(value, property) and value.fget is not None:
            result = function_signature(value.fget, bound=True).returns
            yield Member(name, "attribute", Parameter(name, name, result, inspect.getdoc(value) or ""))
        elif isinstance(value, (classmethod, staticmethod)):
            methods.append(Member(name, kinds[type(value)], value.__func__))
        elif isinstance(value, FunctionType):
            methods.append(Member(name, "method", value))
    yield from methods


def is_function(value: object) -> bool:
    """Return True for functions of Python, wrapped ones too."""
    return callable(value) and isinstance(inspect.unwrap(value), FunctionType)


def function_callee(path: str, function: Any, *, bound: bool = False) -> Callee:
    """Return the parameters of a function or method with what may describe them."""
    signature = function_signature(function, bound=bound)
    module = inspect.unwrap(function).__module__
    return Callee(path, module, signature, (parse_docstring(function.__doc__),))


def constructor_callee(path: str, owner: type) -> Callee | None:
    """Return the parameters of a constructor with what may describe them; None if the package defines none."""
    created = constructor(owner)
    if created is None:
        return None
    signature, text = created
    fields = {one.name: one.docstring for base in reversed(owner.__mro__) for one in own_fields(base)}
    return Callee(path, owner.__module__, signature, (text, parse_docstring(owner.__doc__)), fields)


def callees(catalog: Catalog, module: str, name: str) -> Iterator[Callee]:
    """Return the callables of a name: the function, or the constructor and the methods of a class."""
    value, path = import_name(module, name), f"{module}.{name}"
    if isinstance(value, type):
        created = constructor_callee(path, value)
        yield from [created] if created else []
        for one in catalog.members(value):
            if one.kind != "attribute":
                yield function_callee(f"{path}.{one.name}", one.value, bound=one.kind != "staticmethod")
    elif is_function(value):
        yield function_callee(path, value)


def missing_descriptions(catalog: Catalog, module: str, name: str) -> list[str]:
    """Return the parameters, attributes and members of a name that have no description."""
    value = import_name(module, name)
    found = [
        f"{callee.path}({parameter.name})"
        for callee in callees(catalog, module, name)
        for parameter in callee.signature.parameters
        if not callee.meaning(parameter)
    ]
    if not isinstance(value, type):
        text = value.__doc__ if is_function(value) else constant_docstring(module, name)
        return found if text else [*found, f"{module}.{name}"]
    members = catalog.members(value)
    undescribed = [
        one.name for one in members if not (one.value.docstring if one.kind == "attribute" else one.value.__doc__)
    ]
    parameters = {
        parameter.name for callee in callees(catalog, module, name) for parameter in callee.signature.parameters
    }
    return found + [f"{module}.{name}.{one}" for one in undescribed if one not in parameters]


def describe_name(catalog: Catalog, module: str, name: str) -> str:
    """Return the Markdown of a public name of a module.

    Raises:
        AttributeError: the module has no such name.
    """
    value, resolve = import_name(module, name), catalog.resolver(module)
    if isinstance(value, type):
        return _describe_class(catalog, module, name, value)
    if is_function(value):
        callee = function_callee(f"{module}.{name}", value)
        return _directive("py:function", f"{name}{callee.signature}", module, _function_body(callee, resolve))
    text = parse_docstring(constant_docstring(module, name))
    return _directive("py:data", name, module, _body(text, resolve))


def _directive(kind: str, argument: str, module: str, body: str, *options: str, depth: int = 5) -> str:
    """Return a directive of the Python domain."""
    marks = ":" * depth
    lines = [f":module: {module}", *options] if module else list(options)
    return "\n".join([f"{marks}{{{kind}}} {argument}", *lines, "", body, marks])


def _function_body(callee: Callee, resolve: Resolver) -> str:
    """Return text, parameters and result of a function."""
    return _callee_body(callee, resolve, _result(callee.signature))


def _callee_body(callee: Callee, resolve: Resolver, *parts: str) -> str:
    """Return the text of a callable and its parameters; what the table of parameters says is left out of the text."""
    text = callee.texts[0]
    names = [one.name for one in callee.signature.parameters]
    blocks = without_descriptions(text.blocks, names)
    return _body(replace(text, blocks=blocks), resolve, _parameter_table(callee, resolve), *parts)


def _body(text: Docstring, resolve: Resolver, *parts: str) -> str:
    """Return summary and blocks of a docstring, then the parts, then what is raised and the examples."""
    examples = tuple(block for block in text.blocks if block.kind == "example")
    prose = tuple(block for block in text.blocks if block.kind != "example")
    raised = [[_exceptions(names, resolve), to_cell(when, resolve)] for names, when in text.raises]
    found = [
        to_inline(text.summary, resolve),
        to_markdown(prose, resolve),
        *parts,
        f"**Returns:** {to_inline(text.returns, resolve)}" if text.returns else "",
        table(["raises", "if"], raised) if raised else "",
        to_markdown(examples, resolve),
    ]
    return "\n\n".join(part for part in found if part)


def _exceptions(names: str, resolve: Resolver) -> str:
    """Return the exceptions of an entry, each as a link."""
    return ", ".join(to_inline(f"`{name.strip()}`", resolve) for name in names.split(","))


def _parameter_table(callee: Callee, resolve: Resolver) -> str:
    """Return the table of parameters; empty if there are none."""
    rows = [
        [code_cell(one.name), code_cell(one.annotation), to_cell(callee.meaning(one), resolve)]
        for one in callee.signature.parameters
    ]
    return table(["parameter", "type", "meaning"], rows) if rows else ""


def first_text(docstring: str) -> str:
    """Return all prose of a docstring on one line, without code and examples."""
    parsed = parse_docstring(docstring)
    return join_lines([parsed.summary, *(join_lines(b.lines) for b in parsed.blocks if b.kind in ("text", "list"))])


def _result(signature: Signature) -> str:
    """Return the line with the type of the result; empty without one."""
    returns = signature.returns
    return f"**Result:** `{returns}`" if returns not in ("", "None", "NoReturn") else ""


def _describe_class(catalog: Catalog, module: str, name: str, owner: type) -> str:
    """Return the directive of a class: text, constructor, attributes, methods."""
    resolve, path = catalog.resolver(module), f"{module}.{name}"
    created, members, parts = constructor_callee(path, owner), catalog.members(owner), []
    if created:
        parts.append(_callee_body(created, resolve))
    parts += [f"It also has the members of {{py:obj}}`{base}`." for base in catalog.described_bases(module, owner)[:1]]
    parameters = {one.name for one in created.signature.parameters} if created else set()
    parts.append(_attribute_table([one for one in members if one.name not in parameters], resolve))
    parts += [_describe_method(path, one, resolve) for one in members if one.kind != "attribute"]
    kind = "py:exception" if issubclass(owner, BaseException) else "py:class"
    argument = f"{name}{created.signature}" if created and kind == "py:class" else name
    text = parse_docstring(vars(owner).get("__doc__"))
    return _directive(kind, argument, module, _body(text, resolve, *parts))


def _attribute_table(members: list[Member], resolve: Resolver) -> str:
    """Return the table of fields and properties."""
    rows = [
        [code_cell(one.name), code_cell(one.value.annotation), to_cell(first_text(one.value.docstring), resolve)]
        for one in members
        if one.kind == "attribute"
    ]
    return table(["attribute", "type", "meaning"], rows) if rows else ""


def _describe_method(path: str, member: Member, resolve: Resolver) -> str:
    """Return the directive of a method, which is nested in that of its class."""
    callee = function_callee(f"{path}.{member.name}", member.value, bound=member.kind != "staticmethod")
    options = () if member.kind == "method" else (f":{member.kind}:",)
    argument = f"{member.name}{callee.signature}"
    return _directive("py:method", argument, "", _function_body(callee, resolve), *options, depth=4)


def type_aliases(catalog: Catalog) -> dict[str, Assignment]:
    """Return the type aliases in the annotations of all parameters and results, by name."""
    found: dict[str, Assignment] = {}
    for module, names in catalog.modules.items():
        for name in names:
            for callee in callees(catalog, module, name):
                annotations = [*(one.annotation for one in callee.signature.parameters), callee.signature.returns]
                for word in sorted(set(re.findall(r"\b[A-Z]\w+", " ".join(annotations)))):
                    alias = find_assignment(callee.module, word) if word not in found else None
                    if alias and alias.annotation == "TypeAlias":
                        found[word] = alias
    return dict(sorted(found.items()))


def describe_aliases(catalog: Catalog) -> str:
    """Return the table of type aliases."""
    resolve = catalog.resolver(PACKAGE)
    rows = [
        [code_cell(name), code_cell(alias.value), to_cell(first_text(alias.docstring), resolve)]
        for name, alias in type_aliases(catalog).items()
    ]
    return table(["name", "stands for", "meaning"], rows)
