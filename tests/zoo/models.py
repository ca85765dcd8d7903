"""Small models of the kinds that people have: each a case with its batches, its predictions and its loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from ray import tune
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import stn_tune as stn

BATCH, CLASSES, WORDS, TIME, WIDTH = 4, 5, 11, 6, 8


def classify(model: nn.Module, batch: Any) -> Tensor:
    return model(batch[0])


@dataclass(frozen=True)
class Case:
    """A model, what it is fed, and how it is self-tuned."""

    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
    predict: Callable[[nn.Module, Any], Tensor] = classify
    bind: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    decay: Callable[[nn.Module, Tensor, Any], Tensor] = lambda model, logits, strength: stn.nn.l2(model, strength)
    needs: str = ""
    """A package without which the case is skipped."""

    def hyper(self) -> stn.Hyper:
        space = {"decay": tune.loguniform(1e-5, 1)}
        if self.bind:
            space["rate"] = tune.uniform(0, 0.9)
        return stn.Hyper(space, init={"decay": 1e-2})

    def loss(self, model: nn.Module, batch: Any, hp: Mapping[str, Any]) -> Tensor:
        logits = self.predict(model, batch)
        target = batch["labels"] if hasattr(batch, "keys") else batch[-1]
        loss = F.cross_entropy(logits.flatten(0, -2), target.flatten())
        return loss + self.decay(model, logits, hp["decay"]) if model.training else loss

    def tuner(self, seed: int = 0, **options: Any) -> stn.SelfTuner:
        """A freshly built, self-tuned model and its tuner."""
        torch.manual_seed(seed)
        hyper = self.hyper()
        model = stn.self_tune(self.build(), hyper, bind=self.bind, **self.options)
        moved = [p for p in model.parameters() if p.requires_grad]
        return stn.SelfTuner(model, hyper, torch.optim.Adam(moved, lr=0.01), hyper_lr=0.05, **options)

    def steps(self, tuner: stn.SelfTuner, count: int = 2) -> None:
        for _ in range(count):
            tuner.train_step(self.loss, self.batch())
            tuner.valid_step(self.loss, self.batch())


def vectors() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))


def images(channels: int = 3, size: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, channels, size, size), torch.randint(0, CLASSES, (BATCH,))


def words() -> tuple[Tensor, Tensor]:
    return torch.randint(0, WORDS, (BATCH, TIME)), torch.randint(0, WORDS, (BATCH, TIME))


def labelled_words() -> tuple[Tensor, Tensor]:
    return torch.randint(0, WORDS, (BATCH, TIME)), torch.randint(0, CLASSES, (BATCH,))


def sequences() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, TIME, WIDTH), torch.randint(0, CLASSES, (BATCH,))


def time_major() -> tuple[Tensor, Tensor]:
    """As many steps as examples: no shape tells the two apart."""
    return torch.randn(BATCH, BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH, BATCH))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, CLASSES))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Dropout2d(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )


class GPT(nn.Module):
    """As nanoGPT: learned positions, fused attention that reads its dropout as a number, a tied head."""

    def __init__(self, tied_by_attribute: bool):
        super().__init__()
        self.tok, self.pos = nn.Embedding(WORDS, WIDTH), nn.Embedding(TIME, WIDTH)
        self.offset = nn.Parameter(torch.zeros(1, TIME, WIDTH))
        self.norm, self.qkv, self.proj = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))
        self.dropout, self.drop = 0.1, nn.Dropout(0.1)
        self.head = None
        if tied_by_attribute:
            self.head = nn.Linear(WIDTH, WORDS, bias=False)
            self.head.weight = self.tok.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.tok(tokens) + self.pos(torch.arange(tokens.shape[1])) + self.offset)
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        rate = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        x = x + self.mlp(x)
        return F.linear(x, self.tok.weight) if self.head is None else self.head(x)


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM | nn.GRU], packed: bool = False, **options: Any):
        super().__init__()
        self.rnn = kind(WIDTH, 6, batch_first=True, **options)
        self.head = nn.Linear(12 if options.get("bidirectional") else 6, CLASSES)
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        if not self.packed:
            return self.head(self.rnn(x)[0].mean(1))
        lengths = torch.tensor([TIME, TIME - 1, TIME - 3, 2])
        output, _ = self.rnn(pack_padded_sequence(x, lengths, batch_first=True))
        return self.head(pad_packed_sequence(output, batch_first=True)[0].mean(1))


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4, CLASSES, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


def volumes() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, 2, 4, 4, 4), torch.randint(0, CLASSES, (BATCH,))


def conv3d() -> nn.Module:
    return nn.Sequential(nn.Conv3d(2, 4, 3), nn.Dropout3d(0.1), nn.Flatten(), nn.ReLU(), nn.Linear(32, CLASSES))


def bag() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(WORDS, WIDTH), nn.Dropout(0.1), nn.Linear(WIDTH, CLASSES))


class SwinBlock(nn.Module):
    """Window attention with a relative position bias: a table of as many rows as the batch has examples."""

    index: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(BATCH * TIME, 2))
        self.register_buffer("index", torch.randint(0, BATCH * TIME, (TIME, TIME)))
        self.norm, self.qkv, self.proj = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        bias = self.table[self.index.flatten()].view(TIME, TIME, 2).permute(2, 0, 1)
        weights = self.drop((q @ k.transpose(-2, -1) + bias).softmax(-1))
        return self.head((x + self.proj((weights @ v).transpose(1, 2).flatten(2))).mean(1))


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, channels last, layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 8, 2, 2), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.gamma, self.drop, self.head = nn.Parameter(torch.full((8,), 0.1)), nn.Dropout(0.1), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = (self.gamma * self.drop(self.down(F.gelu(self.up(y))))).permute(0, 3, 1, 2)
        return self.head((x + y).mean((2, 3)))


class MobileBlock(nn.Module):
    """Inverted residual with squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.depthwise = nn.Conv2d(3, 12, 1, bias=False), nn.Conv2d(12, 12, 3, 2, 1, groups=12, bias=False)
        self.norm, self.squeeze, self.project = nn.BatchNorm2d(12), nn.Conv2d(12, 12, 1), nn.Conv2d(12, 8, 1)
        self.drop, self.head = nn.Dropout(0.2), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.norm(self.depthwise(self.expand(x))))
        x = x * F.hardsigmoid(self.squeeze(x.mean((2, 3), keepdim=True)))
        return self.head(self.drop(self.project(x).mean((2, 3))))


class TiedLinears(nn.Module):
    """Two layers of the same kind with one weight, and one layer under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.b.weight = self.a.weight
        self.head = self.again = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.head(self.b(self.a(x).tanh())))[:, :CLASSES]


class Bare(nn.Module):
    """A module with parameters of its own and no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.shift = nn.Parameter(torch.randn(WIDTH, CLASSES) / 3), nn.Parameter(torch.zeros(CLASSES))
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.matrix + self.shift) * self.temperature


class Scaled(nn.Linear):
    """A subclass with a forward pass of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * F.linear(input, self.weight * 0.5, self.bias)


class Cosine(nn.Linear):
    """A cosine head: it reads its weight functionally."""

    def forward(self, input: Tensor) -> Tensor:
        return 5 * F.linear(F.normalize(input, dim=-1), F.normalize(self.weight, dim=-1))


def headed(head: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), head)


def hook_norms() -> nn.Module:
    from warnings import catch_warnings, simplefilter

    with catch_warnings():
        simplefilter("ignore", FutureWarning)
        return nn.Sequential(
            torch.nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH)),
            nn.Tanh(),
            torch.nn.utils.weight_norm(nn.Linear(WIDTH, CLASSES)),
        )


def parametrized() -> nn.Module:
    return nn.Sequential(
        nn.utils.parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH)),
        nn.Tanh(),
        nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, CLASSES)),
    )


def pruned() -> nn.Module:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES))
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


class LoRALinear(nn.Linear):
    """As loralib: the base is frozen, and eval mode adds the update to it."""

    def __init__(self, n_in: int, n_out: int, merge: bool = True):
        super().__init__(n_in, n_out)
        self.weight.requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, n_in) / 3), nn.Parameter(torch.randn(n_out, 2) / 3)
        self.merge, self.merged = merge, False

    def train(self, mode: bool = True) -> LoRALinear:
        super().train(mode)
        if self.merge and self.merged == mode:
            self.weight.data += (self.b @ self.a).detach() * (-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, input: Tensor) -> Tensor:
        output = F.linear(input, self.weight, self.bias)
        return output if self.merged else output + input @ self.a.t() @ self.b.t()


def lora(merge: bool) -> nn.Module:
    return nn.Sequential(LoRALinear(WIDTH, WIDTH, merge), nn.Tanh(), nn.Linear(WIDTH, CLASSES))


def bitfit() -> nn.Module:
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, CLASSES))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    return model


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool):
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.Tanh()) for _ in range(2)
        )
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            saves = self.training or not self.reentrant
            x = checkpoint(block, x, use_reentrant=self.reentrant) if saves else block(x)
        return self.head(x)


class Experts(nn.Module):
    """A mixture of experts, each with as many rows as the router sends it."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.drop = nn.Linear(WIDTH, 3), nn.Dropout(0.1)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        gates = self.router(x).softmax(-1)
        chosen, output = gates.argmax(-1), x.new_zeros(*x.shape[:-1], CLASSES)
        for k, expert in enumerate(self.experts):
            rows = chosen == k
            output[rows] = gates[rows][:, k, None] * expert(self.drop(x[rows]))
        return output


class TimeMajor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.drop, self.head = nn.LSTM(WIDTH, 6), nn.Dropout(0.1), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.rnn(x)[0]))


class Wrapper(nn.Module):
    """As DataParallel: the model is ``module``."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return self.module(*inputs, **options)


def encoded(labels: Callable[[], Tensor]) -> Callable[[], Any]:
    def batch() -> Any:
        from transformers import BatchEncoding

        tokens = torch.randint(0, WORDS, (BATCH, TIME))
        return BatchEncoding({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels()})

    return batch


word_labels = encoded(lambda: torch.randint(0, WORDS, (BATCH, TIME)))
class_labels = encoded(lambda: torch.randint(0, CLASSES, (BATCH,)))


def logits(model: nn.Module, batch: Any) -> Tensor:
    return model(**batch).logits


def gpt2(**options: Any) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": WORDS, "n_positions": TIME, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **options))


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 16, "max_position_embeddings": TIME}
    config = BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_labels=CLASSES)
    return BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    sizes = {"vocab_size": WORDS, "max_position_embeddings": TIME, "dim": WIDTH, "hidden_dim": 16}
    config = DistilBertConfig(**sizes, n_layers=2, n_heads=2, num_labels=CLASSES)
    return DistilBertForSequenceClassification(config)


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": WORDS, "d_model": WIDTH, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    config = T5Config(**sizes, decoder_start_token_id=0, pad_token_id=0)
    return T5ForConditionalGeneration(config)


def peft_lora() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(gpt2(), LoraConfig(r=2, target_modules=["c_attn"], lora_dropout=0.1, fan_in_fan_out=True))


def timm_model() -> nn.Module:
    import timm

    return timm.create_model("convnext_atto", num_classes=CLASSES)


CASES: dict[str, Case] = {
    "mlp": Case(mlp, vectors, bind={"2": "rate"}),
    "cnn with batch norm": Case(cnn, images, bind={"3": "rate"}),
    "gpt tied by attribute": Case(lambda: GPT(True), words, bind={"drop": "rate", "dropout": "rate"}),
    "gpt tied by F.linear": Case(lambda: GPT(False), words, bind={"drop": "rate", "dropout": "rate"}),
    "gpt, tied embedding responds": Case(lambda: GPT(True), words, options={"include": ["tok"]}),
    "TransformerEncoder": Case(Encoder, sequences, bind={"encoder.*": "rate"}),
    "MultiheadAttention": Case(Attention, sequences, bind={"attention": "rate"}),
    "gru": Case(lambda: Recurrent(nn.GRU), sequences),
    "bidirectional lstm": Case(
        lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True, dropout=0.1), sequences, bind={"rnn": "rate"}
    ),
    "PackedSequence": Case(lambda: Recurrent(nn.LSTM, packed=True), sequences),
    "ConvTranspose2d": Case(autoencoder, images),
    "Conv3d": Case(conv3d, volumes, bind={"1": "rate"}),
    "EmbeddingBag": Case(bag, labelled_words, bind={"1": "rate"}),
    "swin block": Case(SwinBlock, sequences, bind={"drop": "rate"}),
    "convnext block": Case(ConvNeXtBlock, images, bind={"drop": "rate"}),
    "mobilenet block": Case(MobileBlock, images, bind={"drop": "rate"}),
    "linears tied to each other": Case(TiedLinears, vectors),
    "bare parameters": Case(Bare, vectors),
    "subclass of Linear": Case(lambda: headed(Scaled(WIDTH, CLASSES)), vectors),
    "cosine head": Case(lambda: headed(Cosine(WIDTH, CLASSES, bias=False)), vectors),
    "spectral_norm and weight_norm hooks": Case(hook_norms, vectors),
    "parametrizations": Case(parametrized, vectors),
    "pruned": Case(pruned, vectors),
    "lora, merged in eval mode": Case(lambda: lora(True), vectors),
    "lora": Case(lambda: lora(False), vectors),
    "bitfit": Case(bitfit, vectors, bind={"2": "rate"}),
    "checkpointed": Case(lambda: Checkpointed(False), vectors, bind={"blocks.*.1": "rate"}),
    "checkpointed, reentrant": Case(
        lambda: Checkpointed(True), vectors, bind={"blocks.*.1": "rate"},
        decay=lambda model, logits, strength: strength * logits.square().mean(),
    ),
    "mixture of experts": Case(Experts, vectors, bind={"drop": "rate"}),
    "time-major": Case(TimeMajor, time_major, bind={"drop": "rate"}),
    "wrapped": Case(lambda: Wrapper(mlp()), vectors, bind={"module.2": "rate"}),
    "gpt2": Case(gpt2, word_labels, logits, bind={"*.h.*_dropout": "rate"}, needs="transformers"),
    "bert": Case(bert, class_labels, logits, bind={"*.dropout": "rate"}, needs="transformers"),
    "distilbert": Case(distilbert, class_labels, logits, bind={"dropout": "rate"}, needs="transformers"),
    "t5": Case(t5, word_labels, logits, bind={"*.dropout": "rate"}, needs="transformers"),
    "peft lora": Case(peft_lora, word_labels, logits, bind={"*.lora_dropout.default": "rate"}, needs="peft"),
    "timm convnext": Case(timm_model, lambda: images(3, 32), needs="timm"),
}  # fmt: skip
