"""A language model: its sizes, from a description, the library or a Hugging Face config.json, and its parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

from ppsim.base import toml
from ppsim.base.source import name_of, read_text
from ppsim.base.text import quote
from ppsim.base.toml import Refused
from ppsim.errors import InputError
from ppsim.workload.model.hugging_face import CONFIG, LARGEST_CONFIG, read_config

SCHEMA = "ppsim.model/2"
SCHEMA_OF_SIZES = "ppsim.model/1"  # the sizes and training settings that `ppsim memory --model` reads
EXAMPLE = "hidden = 4096, heads = 32, layers = 32, seq = 4096 and vocab = 32000"
LIBRARY = Path(__file__).parents[1] / "library" / "models"
LARGEST = (1 << 31) - 1
MOST_LAYERS = 1 << 14


@dataclass(frozen=True)
class Model:
    """The sizes of a transformer language model; a number of 0 that has a usual value stands for that value.

    Attributes:
        hidden: hidden size, h.
        heads: attention heads, a.
        layers: transformer layers, those of multi-token prediction not counted.
        seq: sequence length, s.
        vocab: size of the vocabulary; 0 leaves embedding and output matrix out.
        name: as the library calls it.
        ffn: width of a dense MLP; 4h by default.
        kv_heads: heads of keys and values (groups of queries); ``heads`` by default.
        head_dim: size of a head; h / a by default.
        gated: whether the MLP has a gate, and so three matrices instead of two.
        tied: whether the output matrix is the embedding.
        learned_positions: whether positions have a table of s x h parameters.
        biases: whether linear layers have biases, and norms too.
        clamped: whether experts have biases and a clamped activation, which run as kernels of their own (GPT-OSS).
        experts: routed experts of an MoE layer; 0 where all layers are dense.
        top_k: experts that a token visits.
        expert_ffn: width of an expert; ``ffn`` by default.
        shared_ffn: width of the experts that all tokens visit, together.
        dense_layers: layers without experts at the front.
        moe_every: every how many of the other layers has experts.
        q_lora: rank of the queries in multi-head latent attention; 0 where they are not compressed.
        kv_lora: rank of keys and values in it; 0 where attention is the usual one.
        rope_dim: dimensions of a head that hold the position, in latent attention; ``head_dim`` are the others.
        v_dim: size of a value head; ``head_dim`` by default.
        mtp: layers of multi-token prediction.
        window: tokens that a layer with a sliding window attends to; 0 without one.
        window_every: every how many layers has the window.
        source: where the numbers are from.
    """

    hidden: int
    heads: int
    layers: int
    seq: int
    vocab: int
    name: str = ""
    ffn: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = False
    tied: bool = False
    learned_positions: bool = False
    biases: bool = False
    clamped: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    moe_every: int = 1
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    v_dim: int = 0
    mtp: int = 0
    window: int = 0
    window_every: int = 1
    source: str = ""

    def __post_init__(self) -> None:
        if self.head_dim == 0 and self.heads > 0 and self.hidden % self.heads:
            raise Refused("heads", f"must divide hidden = {self.hidden} where head_dim is not given, got {self.heads}")
        usual = {
            "ffn": 4 * self.hidden,
            "kv_heads": self.heads,
            "head_dim": self.hidden // max(self.heads, 1),
            "expert_ffn": self.ffn or 4 * self.hidden,
        }
        for name, value in usual.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        if self.v_dim == 0:
            object.__setattr__(self, "v_dim", self.head_dim)
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool):
                continue
            least = field.name in ("hidden", "heads", "layers", "seq", "head_dim", "moe_every", "window_every")
            most = MOST_LAYERS if field.name in ("layers", "mtp") else LARGEST
            if not least <= value <= most:
                raise Refused(field.name, f"must be {int(least)} or more and {most} at most, got {value}")
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise Refused("kv_heads", f"must divide heads = {self.heads}, got {self.kv_heads}")
        if bool(self.experts) != bool(self.top_k) or self.top_k > self.experts:
            raise Refused("top_k", f"must be 1 to {self.experts} experts, got {self.top_k}")
        if self.dense_layers > self.layers:
            raise Refused("dense_layers", f"must be {self.layers} layers at most, got {self.dense_layers}")

    @property
    def moe_layers(self) -> int:
        """Layers that have experts."""
        return sum(has_experts(self, layer) for layer in range(self.layers))


def has_experts(model: Model, layer: int) -> bool:
    """Return whether the layer of that number, from 0, has experts."""
    if not model.experts or layer < model.dense_layers:
        return False
    return (layer - model.dense_layers) % model.moe_every == model.moe_every - 1


def attention_parameters(model: Model) -> int:
    """Count the parameters of a layer's attention: query, key, value and output matrices, their biases, its norm."""
    h, a = model.hidden, model.heads
    norm = h * (2 if model.biases else 1)
    if model.kv_lora:
        width = model.head_dim + model.rope_dim
        query = h * model.q_lora + model.q_lora + model.q_lora * a * width if model.q_lora else h * a * width
        keys = h * (model.kv_lora + model.rope_dim) + model.kv_lora
        return norm + query + keys + model.kv_lora * a * (model.head_dim + model.v_dim) + a * model.v_dim * h
    outer = (a + 2 * model.kv_heads) * model.head_dim
    bias = outer + h if model.biases else 0
    return norm + h * outer + a * model.head_dim * h + bias


def mlp_parameters(model: Model, experts: bool, active: bool = False) -> int:
    """Count the parameters of a layer's MLP and its norm; of its experts, all or those that one token visits."""
    h, matrices = model.hidden, 3 if model.gated else 2
    norm = h * (2 if model.biases else 1)
    if not experts:
        return norm + matrices * h * model.ffn + ((matrices - 1) * model.ffn + h if model.biases else 0)
    visited = model.top_k if active else model.experts
    return norm + matrices * h * (visited * model.expert_ffn + model.shared_ffn) + h * model.experts


def layer_parameters(model: Model, experts: bool, active: bool = False) -> int:
    """Count the parameters of one transformer layer."""
    return attention_parameters(model) + mlp_parameters(model, experts, active)


def embedding_parameters(model: Model) -> int:
    """Count the parameters before the first layer."""
    return model.vocab * model.hidden + (model.seq * model.hidden if model.learned_positions else 0)


def head_parameters(model: Model) -> int:
    """Count the parameters after the last layer; an output matrix that is tied counts as the embedding's."""
    matrix = 0 if model.tied else model.vocab * model.hidden
    return matrix + model.hidden * (2 if model.biases else 1)


def count_parameters(model: Model, active: bool = False) -> int:
    """Count a model's parameters, without the layers of multi-token prediction; ``active``: those that a token visits.

    Multi-token prediction shares embedding and output matrix and is left out at inference; see :func:`mtp_parameters`.
    """
    with_experts = model.moe_layers
    layers = with_experts * layer_parameters(model, True, active)
    layers += (model.layers - with_experts) * layer_parameters(model, False)
    return layers + embedding_parameters(model) + head_parameters(model)


def mtp_parameters(model: Model) -> int:
    """Count the parameters of the layers of multi-token prediction: a layer each, and a 2h x h projection."""
    return model.mtp * (layer_parameters(model, bool(model.experts)) + 2 * model.hidden**2 + 3 * model.hidden)


def flops_per_token(model: Model) -> float:
    """Count the FLOPs of training a token, forward and backward, without recomputation; attention by its causal half.

    Six for each parameter of a matrix that the token visits, and 6 s a (d + d_v) / 2 a layer for attention's products.
    """
    norms = model.hidden * (2 if model.biases else 1)
    visited = 0
    for layer in range(model.layers):
        visited += layer_parameters(model, has_experts(model, layer), active=True) - 2 * norms
    visited += model.mtp * (layer_parameters(model, bool(model.experts), active=True) + 2 * model.hidden**2)
    head = (1 + model.mtp) * model.vocab * model.hidden
    attended = sum(attended_tokens(model, layer) for layer in range(model.layers)) + model.mtp * model.seq / 2
    width = model.heads * (model.head_dim + model.rope_dim + model.v_dim)
    return 6.0 * (visited + head) + 6.0 * attended * width


def attended_tokens(model: Model, layer: int) -> float:
    """Return the mean number of tokens that a token attends to in a layer: half the sequence, or its window's."""
    if not model.window or model.window >= model.seq or (layer + 1) % model.window_every:
        return model.seq / 2
    w = model.window
    return w - w * w / (2 * model.seq)


def library() -> dict[str, Path]:
    """List the models of the library: names and files."""
    return {path.stem: path for path in sorted(LIBRARY.glob("*.toml"))}


def is_config(spec: str) -> bool:
    """Return whether a model is named by a config.json or a folder with one, whose ``seq`` is the longest possible."""
    return spec.lower() not in library() and (spec.endswith(".json") or Path(spec).is_dir())


def read_model(spec: str, seq: int | None = None) -> Model:
    """Read a model: a name of the library, a TOML file, a Hugging Face config.json, or a folder with one.

    Args:
        spec: the name or path.
        seq: the sequence length instead of the model's own.

    Raises:
        InputError: no such name or file, or one that describes no model; the message says what is wrong where. Or
            sequences that are too long.
    """
    model = _read(spec, any_length=seq is not None)
    try:
        return model if seq is None else replace(model, seq=seq)
    except Refused as refused:
        raise InputError(f"--{refused}", "such as --seq 4096") from None


def _read(spec: str, any_length: bool) -> Model:
    known = library()
    if spec.lower() in known:
        return toml.read(str(known[spec.lower()]), Model, SCHEMA, EXAMPLE)
    if is_config(spec):
        path = str(Path(spec) / "config.json") if Path(spec).is_dir() else spec
        try:
            return Model(**read_config(path, any_length=any_length))
        except Refused as refused:
            raise InputError(f"'{path}': {refused.key} {refused.why}", CONFIG) from refused
    if not spec.endswith(".toml") and not Path(spec).exists():
        import difflib

        close = difflib.get_close_matches(spec.lower(), known, n=1)
        guess = f" Did you mean '{close[0]}'?" if close else ""
        raise InputError(
            f"no model {quote(spec)} in the library and no such file.{guess}",
            f"one of {', '.join(known)} (ppsim model), a .toml file, or a Hugging Face config.json",
        )
    text = read_text(spec, f'a file with schema = "{SCHEMA}", {EXAMPLE}', largest=LARGEST_CONFIG)
    if f'"{SCHEMA_OF_SIZES}"' in text:
        return _from_sizes(spec)
    model = toml.read(spec, Model, SCHEMA, EXAMPLE)
    return model if model.name else replace(model, name=Path(spec).stem)


def _from_sizes(path: str) -> Model:
    """Take the sizes of a description that `ppsim memory --model` reads; its training settings are not a model's."""
    from ppsim.workload.model.transformer import read_model as read_sizes

    sizes = read_sizes(path)
    layers = sum(sizes.layers) if isinstance(sizes.layers, tuple) else sizes.layers
    return Model(
        sizes.hidden,
        sizes.heads,
        layers,
        sizes.seq,
        sizes.vocab,
        name=Path(path).stem,
        learned_positions=bool(sizes.vocab),
        biases=True,
        source=name_of(path),
    )
