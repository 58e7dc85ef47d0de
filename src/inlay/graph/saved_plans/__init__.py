"""Plans in files: `write_plan` saves a plan with its constants packed for the kernels, `read_plan` maps it again.

Data flows through the modules in this order:

    checked_file    sections of bytes in one safetensors file with a checksum, read by a memory map
    record_codec    records of the graph as JSON and back, by the types of their fields
    value_tables    the lists of descriptors and constants that records refer to
    validation      checks of a plan that comes from a file
    plan_file       a plan in a file, with the versions and the processor that it was saved with
    plan_writing    the same file, written
    replanning      the plan of a saved graph for another processor or version

Terms:

    section     bytes of the file under a name: the records, or a copy of a constant
    record      a dataclass of the graph, as an object of JSON
    copy        the elements of a constant in one format
    origin      versions and processor that a plan was saved with
"""
