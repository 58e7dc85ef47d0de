"""Forty architectures as PyTorch modules, exported to ONNX when tests run; `architectures.ZOO` lists them."""
