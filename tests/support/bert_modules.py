"""BERT as the package transformers spells it, in `torch.nn` alone: what its exports hold, with small numbers.

Token types come from a buffer by `gather`, masks are added as the least float or given as truth values, and the pooler
reads the first token. `mask="add"` is the eager attention of transformers 4, `mask="choose"` the attention by
`scaled_dot_product_attention` that is the default since.
"""

from typing import Any

Module = Any  # a class of torch, which is a peer that may be absent

WIDTH, HEADS, LETTERS = 64, 4, 100


def bert_module(torch: Any, mask: str, layers: int = 2) -> Module:
    """The encoder with its embeddings and pooler, which reads ids and a mask of 0 and 1, and answers two tensors."""
    nn = torch.nn
    torch.manual_seed(0)
    embeddings, encoders = _embeddings(torch), [_layer(torch, _attention(torch, mask)) for _ in range(layers)]

    class Bert(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = embeddings
            self.layers = nn.ModuleList(encoders)
            self.pooler = nn.Linear(WIDTH, WIDTH)

        def forward(self, ids: Any, attended: Any) -> Any:
            x, chosen = self.embeddings(ids), attended[:, None, None, :]
            if mask == "choose":
                chosen = chosen.bool().expand(ids.shape[0], 1, ids.shape[1], ids.shape[1])
            else:
                chosen = (1.0 - chosen.to(x.dtype)) * torch.finfo(x.dtype).min
            for layer in self.layers:
                x = layer(x, chosen)
            return x, torch.tanh(self.pooler(x[:, 0]))

    return Bert().eval()


def _embeddings(torch: Any) -> Module:
    nn = torch.nn

    class Embeddings(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.positions, self.types = (nn.Embedding(n, WIDTH) for n in (LETTERS, 128, 2))
            self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
            self.register_buffer("position_ids", torch.arange(128).expand((1, -1)), persistent=False)
            self.register_buffer("type_ids", torch.zeros((1, 128), dtype=torch.long), persistent=False)

        def forward(self, ids: Any) -> Any:
            batch, length = ids.shape
            positions = self.position_ids[:, :length]
            buffered = self.type_ids.expand(positions.shape[0], -1)
            types = torch.gather(buffered, dim=1, index=positions).expand(batch, length)
            return self.norm(self.words(ids) + self.types(types) + self.positions(positions))

    return Embeddings()


def _layer(torch: Any, attend: Any) -> Module:
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.inner, self.outer = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

        def forward(self, x: Any, mask: Any) -> Any:
            split = (x.shape[0], x.shape[1], HEADS, WIDTH // HEADS)
            query, key, value = (part(x).view(split).transpose(1, 2) for part in (self.query, self.key, self.value))
            together = attend(query, key, value, mask).transpose(1, 2).reshape(x.shape)
            x = self.first(self.dense(together) + x)
            return self.second(self.outer(nn.functional.gelu(self.inner(x))) + x)

    return Layer()


def _attention(torch: Any, mask: str) -> Any:
    functional = torch.nn.functional

    def attend(query: Any, key: Any, value: Any, chosen: Any) -> Any:
        if mask == "choose":
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=chosen)
        scores = torch.matmul(query, key.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5 + chosen
        return torch.matmul(functional.softmax(scores, dim=-1), value)

    return attend
