"""The engine that computes by oneDNN's shared library, through ctypes.

    engine = make_engine()                      finds the library
    implementation = engine.create(operation)   a primitive descriptor
    implementation.bind(memories)()             an execution

The modules in the order in which data flows:

    library      finding and loading the library, handles, code generation
    descs        descriptors across the border, both ways
    arguments    attributes, and what the arguments of a primitive are
    defects      what a library lacks or fails at
    creation     the spelling of equal descriptors, and primitive descriptors
    execution    threads, and the execution of one primitive
    together     the execution of many in one call
    engine       `OnednnEngine`, which puts these together

**Threads.** oneDNN starts threads of its own. Where they are OpenMP's, `inlay.set_num_threads` says when a primitive is
created how many it uses; SYCL's and TBB's follow the processors of the process alone.

**Instruction sets.** The library reads `ONEDNN_MAX_CPU_ISA` itself when it is first used: with `AVX2` it chooses and
computes as on a processor without AVX-512.
"""

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.defects import Capabilities
from inlay.engines.onednn.engine import OnednnEngine, OnednnImplementation
from inlay.engines.onednn.execution import Bound
from inlay.engines.onednn.library import Handle, Library, load_library
from inlay.primitives.engine import get_engine

__all__ = [
    "Bound",
    "Capabilities",
    "Handle",
    "Library",
    "OnednnEngine",
    "OnednnImplementation",
    "export_descriptor",
    "load_library",
    "make_engine",
]


def export_descriptor(desc: MemoryDesc) -> Handle:
    """A `dnnl_memory_desc_t` of the engine's library, as `MemoryDesc.to_onednn` asks for it.

    Raises:
        MissingExtra: no library can be loaded.
        InvalidArguments: the library refuses the descriptor.
        Unimplemented: the library, or oneDNN at all, cannot say it.
    """
    engine = get_engine("onednn")
    assert isinstance(engine, OnednnEngine)
    return engine.descriptors.handle(desc)


def make_engine() -> OnednnEngine:
    """The engine of the library that is found, as `primitives.engine` asks for it.

    Raises:
        MissingExtra: there is none; the text says what to install.
        Unimplemented: INLAY_ONEDNN names a library of another version than 3.
    """
    return OnednnEngine(load_library())
