"""Transformers for text and speech, as the package transformers spells them."""

import math
from typing import Any

from tests.zoo.blocks import (
    Attention,
    EncoderLayer,
    Module,
    RMSNorm,
    Tensor,
    functional,
    merge_heads,
    nn,
    split_heads,
    torch,
)

WORDS = 100
"""The number of tokens that embeddings have."""


class Bert(Module):
    """BERT (Devlin et al., 2019): token types from a buffer, a mask by bytes of 0 and 1, and a pooler."""

    def __init__(self, width: int = 64, layers: int = 12, heads: int = 4, longest: int = 64) -> None:
        super().__init__()
        self.words, self.positions, self.types = (nn.Embedding(count, width) for count in (WORDS, longest, 2))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.register_buffer("position_ids", torch.arange(longest)[None], persistent=False)
        self.register_buffer("type_ids", torch.zeros((1, longest), dtype=torch.long), persistent=False)
        self.layers = nn.ModuleList(EncoderLayer(MaskedAttention(width, heads), width, False) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor, attended: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = ids.shape
        positions = self.position_ids[:, :length]
        types = torch.gather(self.type_ids.expand(positions.shape[0], -1), 1, positions).expand(batch, length)
        x = self.norm(self.words(ids) + self.types(types) + self.positions(positions))
        mask = attended[:, None, None, :].bool().expand(batch, 1, length, length)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class MaskedAttention(Module):
    """Self-attention whose second argument is the mask."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.own = Attention(width, heads)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.own(x, mask=mask)


class Projection(Module):
    """A linear layer with transposed weights, `Conv1D` of transformers' GPT-2."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inner, outer) / inner**0.5), nn.Parameter(torch.zeros(outer))

    def forward(self, x: Tensor) -> Tensor:
        dims = (*x.shape[:-1], self.bias.shape[0])
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(dims)


class GPT2Layer(Module):
    """A layer of GPT-2: one projection for queries, keys and values, a causal mask, GELU by tanh."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.merged, self.out = Projection(width, 3 * width), Projection(width, width)
        self.wide, self.narrow = Projection(width, 4 * width), Projection(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        parts = self.merged(self.first(x)).split(self.width, 2)
        query, key, value = (split_heads(part, self.heads) for part in parts)
        x = x + self.out(merge_heads(functional.scaled_dot_product_attention(query, key, value, mask)))
        return x + self.narrow(functional.gelu(self.wide(self.second(x)), approximate="tanh"))


class GPT2(Module):
    """GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners, 2019) with tied embeddings."""

    def __init__(self, width: int = 64, layers: int = 12, heads: int = 4, longest: int = 64) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(GPT2Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        x = self.words(ids) + self.positions(places)
        mask = places[None, :] <= places[:, None]
        for layer in self.layers:
            x = layer(x, mask)
        return functional.linear(self.norm(x), self.words.weight)


class T5Attention(Module):
    """Attention without a scale and without biases of projections; a bias of positions is added to the scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor, bias: Tensor) -> Tensor:
        parts = (self.query(x), self.key(context), self.value(context))
        query, key, value = (split_heads(part, self.heads) for part in parts)
        scores = torch.matmul(query, key.transpose(3, 2)) / 4 + bias
        weights = functional.softmax(scores.float(), dim=-1).type_as(scores)
        return self.out(merge_heads(torch.matmul(weights, value)))


class RelativeBias(Module):
    """The bias of T5 for each distance, exact for small ones and in logarithmic buckets beyond."""

    def __init__(self, heads: int, is_bidirectional: bool, buckets: int = 16) -> None:
        super().__init__()
        self.is_bidirectional, self.buckets = is_bidirectional, buckets
        self.table = nn.Embedding(buckets, heads)

    def forward(self, length: int) -> Tensor:
        places = torch.arange(length)
        return self.table(self._bucket(places[None, :] - places[:, None])).permute(2, 0, 1)[None]

    def _bucket(self, distance: Tensor) -> Tensor:
        count, base = self.buckets, torch.zeros_like(distance)
        if self.is_bidirectional:
            count //= 2
            base = (distance > 0).long() * count
            distance = distance.abs()
        else:
            distance = -torch.minimum(distance, torch.zeros_like(distance))
        exact = count // 2
        large = torch.log(distance.float() / exact) / math.log(64 / exact) * (count - exact)
        large = torch.minimum(exact + large.long(), torch.full_like(distance, count - 1))
        return base + torch.where(distance < exact, distance, large)


class T5Layer(Module):
    """A layer of T5: self-attention, attention to the encoder in decoders, and a feed-forward with ReLU."""

    def __init__(self, width: int, heads: int, is_decoder: bool) -> None:
        super().__init__()
        self.own, self.cross = T5Attention(width, heads), T5Attention(width, heads) if is_decoder else None
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(3 if is_decoder else 2))
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, bias: Tensor, context: Tensor = None) -> Tensor:
        normal = self.norms[0](x)
        x = x + self.own(normal, normal, bias)
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), context, torch.zeros(1, 1, 1, 1))
        return x + self.narrow(torch.relu(self.wide(self.norms[-1](x))))


class T5(Module):
    """T5 (Raffel et al., Exploring the Limits of Transfer Learning, 2020): an encoder and a causal decoder."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.encoder, self.decoder = (
            nn.ModuleList(T5Layer(width, heads, is_decoder) for _ in range(layers)) for is_decoder in (False, True)
        )
        self.near, self.past = RelativeBias(heads, True), RelativeBias(heads, False)
        self.first, self.second = RMSNorm(width), RMSNorm(width)

    def forward(self, ids: Tensor, written: Tensor) -> Tensor:
        context, bias = self.words(ids), self.near(ids.shape[1])
        for layer in self.encoder:
            context = layer(context, bias)
        context, length = self.first(context), written.shape[1]
        least = torch.finfo(torch.float32).min
        x, bias = self.words(written), self.past(length) + torch.full((length, length), least).triu(1)
        for layer in self.decoder:
            x = layer(x, bias, context)
        return functional.linear(self.second(x) / 8, self.words.weight)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return rotary embeddings (Su et al., RoFormer, 2021) of halves, as transformers writes them."""
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * cosines + torch.cat((-second, first), -1) * sines


def repeat_heads(x: Tensor, count: int) -> Tensor:
    """Return keys or values with each head repeated, for groups of queries (Ainslie et al., GQA, 2023)."""
    batch, heads, length, size = x.shape
    return x[:, :, None].expand(batch, heads, count, length, size).reshape(batch, heads * count, length, size)


class LlamaLayer(Module):
    """A layer of Llama, or of Qwen3 where `has_norms`: queries and keys are normalized before the rotation."""

    def __init__(self, width: int, heads: int, groups: int, has_norms: bool) -> None:
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.query, self.out = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, groups * size, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(RMSNorm(size) if has_norms else nn.Identity() for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)
        self.first, self.second = RMSNorm(width), RMSNorm(width)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, mask: Tensor) -> Tensor:
        normal, dims = self.first(x), (*x.shape[:2], -1, x.shape[2] // self.heads)
        query = self.norms[0](self.query(normal).view(dims)).transpose(1, 2)
        key = self.norms[1](self.key(normal).view(dims)).transpose(1, 2)
        value = self.value(normal).view(dims).transpose(1, 2)
        query, key = rotate(query, cosines, sines), rotate(key, cosines, sines)
        key, value = (repeat_heads(part, self.heads // self.groups) for part in (key, value))
        x = x + self.out(merge_heads(functional.scaled_dot_product_attention(query, key, value, mask)))
        normal = self.second(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class Llama(Module):
    """Llama (Touvron et al., 2023): RMS normalization, rotary positions, grouped queries, gated feed-forward."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 3, has_norms: bool = False) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, width), RMSNorm(width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads, heads // 2, has_norms) for _ in range(layers))
        size = width // heads
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, size, 2).float() / size), persistent=False)
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        angles = (self.rates[None, :, None] @ places[None, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), -1)[:, None]
        x, cosines, sines = self.words(ids), angles.cos(), angles.sin()
        mask = (places[None, :] <= places[:, None])[None, None].expand(ids.shape[0], 1, -1, -1)
        for layer in self.layers:
            x = layer(x, cosines, sines, mask)
        return self.head(self.norm(x))


def qwen3(**options: int) -> Any:
    """Build Qwen3 (Yang et al., Qwen3 Technical Report, 2025): Llama with normalized queries and keys."""
    return Llama(has_norms=True, **options)


class WhisperEncoder(Module):
    """The encoder of Whisper (Radford et al., Robust Speech Recognition, 2023): two convolutions over time."""

    def __init__(self, bands: int = 40, width: int = 64, layers: int = 3, heads: int = 4, length: int = 50) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(bands, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList(EncoderLayer(Attention(width, heads), width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, spectrum: Tensor) -> Tensor:
        x = functional.gelu(self.second(functional.gelu(self.first(spectrum)))).permute(0, 2, 1)
        x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Wav2Vec2(Module):
    """wav2vec 2.0 (Baevski et al., 2020): strided convolutions over samples, positions by a grouped convolution."""

    def __init__(
        self,
        width: int = 64,
        layers: int = 2,
        heads: int = 4,
        channels: int = 32,
        kernels: tuple[int, ...] = (10, 3, 3, 3, 2),
        near: int = 16,
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(channels if index else 1, channels, kernel, 2 if index else 5, bias=False)
            for index, kernel in enumerate(kernels)
        )
        self.each, self.norm = nn.GroupNorm(channels, channels), nn.LayerNorm(channels)
        self.project = nn.Linear(channels, width)
        positions = nn.Conv1d(width, width, near, padding=near // 2, groups=near // 4)
        self.positions = nn.utils.parametrizations.weight_norm(positions, dim=2)
        self.layers = nn.ModuleList(EncoderLayer(Attention(width, heads), width, False) for _ in range(layers))
        self.enter, self.head = nn.LayerNorm(width), nn.Linear(width, 12)

    def forward(self, samples: Tensor) -> Tensor:
        x = samples[:, None]
        for index, conv in enumerate(self.convs):
            x = conv(x)
            x = functional.gelu(x if index else self.each(x))
        x = self.project(self.norm(x.transpose(1, 2)))
        positions = functional.gelu(self.positions(x.transpose(1, 2))[:, :, :-1])
        x = self.enter(x + positions.transpose(1, 2))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
