"""The engine that computes primitives with the shared library of oneDNN, called through ctypes.

    engine = make_engine()                      loads the library
    implementation = engine.create(operation)   creates a primitive descriptor
    implementation.bind(memories)()             executes the primitive

The modules in the order in which data flows through them:

    library      finds and loads the library; owned pointers (`LibraryHandle`); the thread that generates code
    descs        conversion of descriptors: `MemoryDesc` to `dnnl_memory_desc_t` and back
    arguments    attributes of a primitive, and the arguments of an execution
    defects      operations that a release lacks, computes wrongly or crashes on; they are not passed to the library
    limits       sizes from which a release ends the process or exhausts the memory
    creation     stride variants of equal descriptors, and the calls that create primitive descriptors
    execution    thread contexts, and the execution of one primitive
    batches      the execution of many primitives by one call
    engine       `OnednnEngine` and `OnednnImplementation`, which combine the modules above

Glossary:

    primitive descriptor   `dnnl_primitive_desc_t`: an operation with the formats and the kernel that the library chose
    primitive              `dnnl_primitive_t`: the generated code of a primitive descriptor
    implementation name    the text of the query `dnnl_query_impl_info_str`, such as `brgconv:avx512_core`
    implementation         one of the kernels that can compute an operation (`dnnl_primitive_desc_next_impl`)
    reference kernel       generic code of the library without vector instructions; the name contains `ref`
    scratchpad             temporary memory of an execution (oneAPI specification, "Scratchpad mode")
    workspace              data that a forward primitive keeps for its backward primitive
    post-operation         an operation applied to each result of a primitive (`dnnl_post_ops_t`)
    hint                   the forward primitive descriptor that a backward one is created with
    stride variant         one of the equal descriptors that differ in strides of unit axes alone (see `creation`)

**Threads.** oneDNN starts its own threads. With OpenMP, a primitive uses as many threads as `inlay.set_num_threads`
allowed when it was created. SYCL and TBB use all processors of the process.

**Instruction sets.** The library reads `ONEDNN_MAX_CPU_ISA` when it is first used. With `AVX2` it chooses and computes
as on a processor without AVX-512.
"""

from inlay.descriptor import MemoryDesc
from inlay.engines.onednn.defects import Capabilities
from inlay.engines.onednn.engine import OnednnEngine, OnednnImplementation
from inlay.engines.onednn.execution import BoundPrimitive
from inlay.engines.onednn.library import Library, LibraryHandle, load_library
from inlay.primitives.engine import get_engine

__all__ = [
    "BoundPrimitive",
    "Capabilities",
    "Library",
    "LibraryHandle",
    "OnednnEngine",
    "OnednnImplementation",
    "export_descriptor",
    "load_library",
    "make_engine",
]


def export_descriptor(desc: MemoryDesc) -> LibraryHandle:
    """Create the `dnnl_memory_desc_t` of a descriptor; `MemoryDesc.to_onednn` calls this function.

    Raises:
        MissingExtra: no library can be loaded.
        InvalidArguments: the library refuses the descriptor.
        Unimplemented: this release, or any release of oneDNN, cannot represent the descriptor.
    """
    engine = get_engine("onednn")
    assert isinstance(engine, OnednnEngine)
    return engine.descriptors.handle(desc)


def make_engine() -> OnednnEngine:
    """Load the library and return its engine; `primitives.engine` calls this function.

    Raises:
        MissingExtra: no library is found; the text says what to install.
        Unimplemented: the library that INLAY_ONEDNN names has a major version other than 3.
    """
    return OnednnEngine(load_library())
