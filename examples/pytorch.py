"""A network of PyTorch in Inlay: exported with an open batch, and by `torch.compile`; the weights change on the way."""

import sys

import torch
from torch import nn

import inlay


class Block(nn.Module):
    """A residual block, and a branch on a value, at which PyTorch has to break the graph."""

    def __init__(self, channels: int) -> None:
        """Make two convolutions."""
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block of `x`, scaled if it is large."""
        y = torch.relu(x + self.second(torch.relu(self.first(x))))
        return y / y.abs().max() if y.abs().max() > 1 else y


def require_close(result: torch.Tensor, expected: torch.Tensor) -> None:
    """Check that two results differ by rounding only."""
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def build() -> tuple[nn.Sequential, nn.Sequential]:
    """Return a network that is one graph, and one with a graph break, which share their first and last layers."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return nn.Sequential(stem, head).eval(), nn.Sequential(stem, Block(16), head).eval()


def main() -> int:
    """Export the one network, compile the other, and compare their results with PyTorch's."""
    whole, broken = build()
    fast = inlay.from_torch(whole, torch.randn(2, 3, 32, 32), dynamic_shapes=({0: "batch"},), costs="probed")
    compiled = torch.compile(broken, backend=inlay.torch_backend, options={"costs": "probed"})
    with torch.inference_mode():
        for batch in (2, 1, 5):
            images = torch.randn(batch, 3, 32, 32)
            require_close(fast(images), whole(images))
        whole[1][2].weight.mul_(2)  # the next call reads the weights again
        require_close(fast(images), whole(images))
        print(fast.report())
        for batch in (2, 3, 4):
            images = torch.randn(batch, 3, 32, 32)
            require_close(compiled(images), broken(images))
        print(inlay.torch_report())
    print("All results are equal.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
