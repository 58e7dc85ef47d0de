"""Where tensors lie: a buffer for each tensor in each format, and which lies in which.

source of a concatenation          in the result, where its slice begins
view                               in what it is a view of
what a result takes the place of   in the result
between calls of a group           in the result of the group
the same bytes, other format       in the format produced
"""

from dataclasses import dataclass, field

from inlay.graph.formats import Format, Formats
from inlay.graph.groups import Candidate, Group
from inlay.graph.planning.problem import Problem
from inlay.graph.planning.settled import Settled
from inlay.graph.program import Buffer


@dataclass(slots=True)
class Buffers:
    """Buffers while they are laid out."""

    formats: Formats
    """Of their descriptors."""
    names: dict[tuple[str, Format], str] = field(default_factory=dict)
    """By tensor and format."""
    tensors: set[str] = field(default_factory=set)
    """Those that have a buffer in some format."""
    made: dict[str, tuple[str, Format]] = field(default_factory=dict)
    """By name: tensor and format."""
    homes: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By name: what it lies in, and from which byte."""
    counts: dict[str, int] = field(default_factory=dict)
    """By beginning of a name, how many buffers were wanted with it."""

    def add(self, tensor: str, number: Format, name: str) -> str:
        """A new buffer, with a name that begins with `name`."""
        wanted = name
        while wanted in self.made:
            self.counts[name] = count = self.counts.get(name, 1) + 1
            wanted = f"{name}:{count}"
        self.made[wanted] = (tensor, number)
        return wanted

    def of(self, tensor: str, number: Format) -> str:
        """The buffer of a tensor in a format, made at the first call: that of the format produced has its name."""
        key = (tensor, number)
        if key not in self.names:
            name = f"{tensor}:{self.formats.tag(number) or 'strided'}" if tensor in self.tensors else tensor
            self.names[key] = self.add(tensor, number, name)
            self.tensors.add(tensor)
        return self.names[key]

    def put(self, name: str, home: str, offset: int = 0) -> None:
        """Let a buffer, with all that lies in it, lie in another one."""
        root, _ = self.root(name)
        if root != self.root(home)[0]:
            self.homes[root] = (home, offset)

    def root(self, name: str) -> tuple[str, int]:
        """What has the bytes of a buffer, and from which byte; the way there is shortened for the next call."""
        way = [name]
        while way[-1] in self.homes:
            way.append(self.homes[way[-1]][0])
        home, offset = way.pop(), 0
        for one in reversed(way):
            offset += self.homes[one][1]
            self.homes[one] = (home, offset)
        return home, offset

    def finished(self) -> dict[str, Buffer]:
        """All buffers, each with the home that has bytes of its own."""
        return {
            name: Buffer(name, tensor, self.formats.desc(number), *self.root(name))
            for name, (tensor, number) in self.made.items()
        }


def laid_out(problem: Problem, settled: Settled) -> Buffers:
    """The buffers of a plan, apart from copies and of what lies between the calls of a group."""
    buffers = Buffers(problem.formats)
    for name, number in settled.produced.items():
        first = buffers.of(name, number)
        for other in settled.kept[name]:
            second = buffers.of(name, other)
            if problem.is_alias(name, number, other):
                buffers.put(second, first)
    for i, (group, candidate) in enumerate(zip(problem.groups, settled.candidates, strict=True)):
        if group.kind == "view":
            _put_view(problem, buffers, group, candidate)
        elif candidate.parts is not None:
            _put_sources(problem, settled, buffers, i, candidate)
        elif candidate.takes is not None:
            (dst,) = group.writes
            old = group.ops[candidate.takes].reads["src_1"]
            number = candidate.reads[group.reads.index(old)]
            buffers.put(buffers.of(old, number), buffers.of(dst, candidate.writes[0]))
    return buffers


def _put_view(problem: Problem, buffers: Buffers, group: Group, candidate: Candidate) -> None:
    (src,), (dst,) = group.reads, group.writes
    (read,), (written,) = candidate.reads, candidate.writes
    seen = problem.formats.viewed(read, group.head.moves)
    buffers.put(buffers.of(dst, written), buffers.of(src, read), seen[1] if seen else 0)


def _put_sources(problem: Problem, settled: Settled, buffers: Buffers, i: int, candidate: Candidate) -> None:
    group, parts = problem.groups[i], candidate.parts or ()
    whole = buffers.of(group.writes[0], candidate.writes[0])
    for source, (name, read, at) in enumerate(zip(group.reads, candidate.reads, parts, strict=True)):
        if problem.lies(i, source, read, settled.produced[name]):
            buffers.put(buffers.of(name, read), whole, at)
