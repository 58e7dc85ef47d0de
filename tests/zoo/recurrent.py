"""Recurrent networks that label each word of a sentence."""

from tests.zoo.blocks import Module, Tensor, functional, nn


class LSTMTagger(Module):
    """A bidirectional LSTM of two layers on word embeddings (Huang et al., Bidirectional LSTM-CRF Models, 2015)."""

    def __init__(self, words: int = 100, width: int = 48, tags: int = 9) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.recurrent = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.recurrent(self.embed(ids))[0])


class GRUTagger(Module):
    """A bidirectional GRU (Cho et al., Learning Phrase Representations, 2014) and logarithms of probabilities."""

    def __init__(self, words: int = 100, width: int = 48, tags: int = 9) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.recurrent = nn.GRU(width, width, 1, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, ids: Tensor) -> Tensor:
        states, _ = self.recurrent(self.norm(self.embed(ids)))
        return functional.log_softmax(self.head(states), -1)
