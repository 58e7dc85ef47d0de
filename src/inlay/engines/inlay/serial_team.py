"""A team of the calling thread alone, for kernels on engines that lend no threads.

`serial_team` is a `ThreadTeam` of three functions in machine code: the parallel region calls its function once.
"""

from functools import cache

from inlay.primitives.engine import ThreadTeam
from inlay.reordering.target import host_target, load_permanently

_NAMES = ("inlay_parallel", "inlay_thread_num", "inlay_num_threads")


@cache
def serial_team() -> ThreadTeam:
    """Return the team of the calling thread; the first call compiles or loads its functions."""
    target = host_target()
    text = _module_text(target.attributes)
    return ThreadTeam(*load_permanently(text, lambda: text, target, *_NAMES))


def _module_text(attributes: str) -> str:
    """Return the LLVM IR of the functions, with the signatures of GNU OpenMP."""
    parallel, thread_num, num_threads = _NAMES
    return "\n".join(
        (
            f"define void @{parallel}(ptr %function, ptr %data, i32 %threads, i32 %flags) #0 {{",
            "  call void %function(ptr %data)",
            "  ret void",
            "}",
            f"define i32 @{thread_num}() #0 {{ ret i32 0 }}",
            f"define i32 @{num_threads}() #0 {{ ret i32 1 }}",
            f"attributes #0 = {{ nounwind {attributes} }}",
        )
    )
