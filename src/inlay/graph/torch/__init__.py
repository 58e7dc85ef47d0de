"""PyTorch modules in Inlay: exported, planned and run; what is refused on the way runs in PyTorch.

Data flow, from a module to results:

    torch_package    import of PyTorch and its exporter, at first use
    constants        parameters and buffers, and whether they have changed since they were read
    shape_rules      the shapes for which an exported graph is valid
    dynamo_graph     a graph of `torch.compile` as a module of its tensors alone
    exporting        a graph to an ONNX model and its weights, which stay in PyTorch's memory
    part             a session as a function of tensors
    partition        a graph in parts, of which PyTorch runs those that are refused
    compiled_graph   `CompiledGraph`: all of this at the first call
    torch_report     which part runs where, and why
    backend          the backend of `torch.compile`
    torch_module     `from_torch` and `TorchModule`

Glossary:

    graph            operators of PyTorch on tensors, in order (`torch.fx.GraphModule`)
    graph break      a place where `torch.compile` ends a graph, and Python goes on (PyTorch, "torch.compile")
    exported program a graph without side effects (`torch.export.ExportedProgram`)
    functional       of a graph: no operator writes to a tensor that exists (PyTorch, "functionalization")
"""
