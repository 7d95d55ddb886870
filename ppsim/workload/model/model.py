"""A language model: its sizes, from the library or a file, and its numbers of parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ppsim.base import toml
from ppsim.base.text import guess_of, quote
from ppsim.base.toml import RefusedValue, check_range
from ppsim.errors import InputError
from ppsim.workload.model.hugging_face import CONFIG, read_config

SCHEMA = "ppsim.model/2"
EXAMPLE = "hidden = 4096, heads = 32, layers = 32, seq = 4096 and vocab = 32000"
LIBRARY = Path(__file__).parents[1] / "library" / "models"
LARGEST = (1 << 31) - 1
MOST_LAYERS = 1 << 14
AT_LEAST_ONE = ("hidden", "heads", "layers", "seq", "head_dim", "moe_every", "o_groups", "streams")
# mixers that pass a state from token to token instead of keys and values
STATES = ("mamba", "delta", "kda", "linear")
COMPRESSED = ("csa", "hca")  # mixers that attend to a window and to compressed keys
MIXERS = ("attention", "window", "chunk", "sparse", *COMPRESSED, *STATES, "none")
MLPS = ("dense", "experts", "none")


class Layer(NamedTuple):
    """A kind of layer: a mixer of tokens, then an MLP; either may be missing.

    Attributes:
        mixer: attention; window (attention to the last tokens); chunk (attention within a part of
            the sequence); sparse (attention to tokens that an indexer selects, DeepSeek-V3.2); csa
            (a window, and compressed keys that an indexer selects, DeepSeek-V4); hca (a window, and
            all of fewer, more compressed keys, DeepSeek-V4); mamba (Mamba-2); delta (gated delta
            net, Qwen3-Next); kda (Kimi delta attention); linear (lightning attention, MiniMax-01);
            or none.
        mlp: dense, experts or none.
    """

    mixer: str = "attention"
    mlp: str = "dense"


@dataclass(frozen=True)
class Encoder:
    """An encoder in front of the model, such as one for images, without a causal mask.

    Attributes:
        hidden: hidden size.
        heads: attention heads.
        layers: number of layers.
        ffn: width of the MLP.
        tokens: tokens that it reads for each sequence of the model.
        gated: whether the MLP has a gate.
        frozen: whether it is not trained, and so runs forward only.
    """

    hidden: int
    heads: int
    layers: int
    ffn: int
    tokens: int
    gated: bool = False
    frozen: bool = False

    def __post_init__(self) -> None:
        check_range(self, 1, LARGEST, "hidden", "heads", "layers", "ffn", "tokens")
        if self.hidden % self.heads:
            raise RefusedValue("heads", f"must divide hidden = {self.hidden}, got {self.heads}")


@dataclass(frozen=True)
class Model:
    """The sizes of a transformer language model; 0 takes the default of a field that has one.

    Attributes:
        hidden: hidden size, h.
        heads: attention heads, a.
        layers: transformer layers, without layers of multi-token prediction.
        seq: sequence length, s.
        vocab: size of the vocabulary; 0 leaves out embedding and output matrix.
        name: its name in the library.
        ffn: width of a dense MLP; 4h by default.
        kv_heads: heads of keys and values (groups of queries); ``heads`` by default.
        head_dim: size of a head; h / a by default.
        gated: whether the MLP has a gate, and so three matrices instead of two.
        tied: whether the output matrix is the embedding.
        learned_positions: whether there is a table of s x h parameters for positions.
        biases: whether linear layers and norms have biases.
        clamped: whether experts have biases and a clamped activation, in separate kernels
            (GPT-OSS).
        experts: routed experts of an MoE layer; 0 if all layers are dense.
        top_k: experts that a token visits.
        expert_ffn: width of an expert; ``ffn`` by default.
        top_groups: limit of the nodes that a token's experts lie on, set by the router; 0: none.
        shared_ffn: total width of the experts that all tokens visit.
        dense_layers: number of first layers without experts.
        moe_every: period of layers with experts among the other layers: 2 is every second one.
        q_lora: rank of the queries in multi-head latent attention; 0 if they are not compressed.
        kv_lora: rank of keys and values in multi-head latent attention; 0 for other attention.
        rope_dim: dimensions of a head for the position in latent attention, in addition to
            ``head_dim``.
        v_dim: size of a value head; ``head_dim`` by default.
        o_lora: rank of attention's output in each of ``o_groups`` groups of heads; one head is then
            both key and value (DeepSeek-V4). 0: the output is one matrix.
        o_groups: groups of heads of attention's output.
        csa: tokens per key of compressed sparse attention.
        hca: tokens per key of heavily compressed attention.
        streams: parallel hidden states that hyper-connections mix before and after attention and
            MLP.
        mtp: layers of multi-token prediction.
        window: tokens in a sliding window or in a chunk; 0 without either.
        mixers: repeating pattern of the layers' mixers (:class:`Layer`); attention by default,
            window if ``window`` is given.
        mlps: repeating pattern of the layers' MLPs; follows from ``dense_layers`` and
            ``moe_every`` by default.
        attention_gate: whether attention's output has a gate as wide as the queries.
        expert_hidden: size of experts' inputs and outputs, between projections down and up;
            ``hidden`` by default.
        index_heads: heads of sparse attention's indexer.
        index_dim: size of the indexer's heads.
        index_top_k: tokens that a token attends to in sparse attention.
        state_heads: heads of layers with a state.
        state_dim: size of a state's value head.
        state_groups: heads of a state's keys and queries (of B and C in Mamba); ``state_heads`` by
            default.
        state_size: size of a state's key head.
        conv: width of the convolution before a state; 0 without one.
        encoder: an encoder that feeds the embedding, as a table; none by default.
        source: the source of the numbers.
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
    top_groups: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    moe_every: int = 1
    q_lora: int = 0
    kv_lora: int = 0
    rope_dim: int = 0
    v_dim: int = 0
    o_lora: int = 0
    o_groups: int = 1
    csa: int = 0
    hca: int = 0
    streams: int = 1
    mtp: int = 0
    window: int = 0
    mixers: tuple[str, ...] = ()
    mlps: tuple[str, ...] = ()
    attention_gate: bool = False
    expert_hidden: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_top_k: int = 0
    state_heads: int = 0
    state_dim: int = 0
    state_groups: int = 0
    state_size: int = 0
    conv: int = 0
    encoder: Encoder | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.head_dim == 0 and self.heads > 0 and self.hidden % self.heads:
            raise RefusedValue(
                "heads",
                f"must divide hidden = {self.hidden} where head_dim is not given, got {self.heads}",
            )
        usual = {
            "ffn": 4 * self.hidden,
            "kv_heads": self.heads,
            "head_dim": self.hidden // max(self.heads, 1),
            "expert_ffn": self.ffn or 4 * self.hidden,
            "expert_hidden": self.hidden,
            "state_groups": self.state_heads,
        }
        for name, value in usual.items():
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        if self.v_dim == 0:
            object.__setattr__(self, "v_dim", self.head_dim)
        for field in fields(self):
            if field.type == "int":
                most = MOST_LAYERS if field.name in ("layers", "mtp") else LARGEST
                check_range(self, int(field.name in AT_LEAST_ONE), most, field.name)
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise RefusedValue("kv_heads", f"must divide heads = {self.heads}, got {self.kv_heads}")
        if bool(self.experts) != bool(self.top_k) or self.top_k > self.experts:
            raise RefusedValue("top_k", f"must be 1 to {self.experts} experts, got {self.top_k}")
        if self.dense_layers > self.layers:
            raise RefusedValue(
                "dense_layers", f"must be {self.layers} layers at most, got {self.dense_layers}"
            )
        self._check_kinds()

    def _check_kinds(self) -> None:
        """Refuse unknown kinds of layers, and kinds whose sizes are missing (RefusedValue)."""
        for name, known in (("mixers", MIXERS), ("mlps", MLPS)):
            if wrong := set(getattr(self, name)) - set(known):
                expected = ", ".join(known)
                raise RefusedValue(name, f"must be among {expected}, got {sorted(wrong)[0]!r}")
            if len(getattr(self, name)) > self.layers:
                raise RefusedValue(
                    name,
                    f"must be at most {self.layers}, one per layer, got {len(getattr(self, name))}",
                )
        needed = {
            **dict.fromkeys(("window", "chunk"), ("window",)),
            "sparse": ("index_heads", "index_dim", "index_top_k", "q_lora"),
            "csa": ("csa", "window", "o_lora", "index_heads", "index_dim", "index_top_k", "q_lora"),
            "hca": ("hca", "window", "o_lora"),
            **dict.fromkeys(STATES, ("state_heads", "state_dim", "state_size")),
        }
        for mixer in sorted(set(self.mixers)):
            if missing := [name for name in needed.get(mixer, ()) if not getattr(self, name)]:
                raise RefusedValue(missing[0], f"is needed by layers of kind {mixer}")
        if "experts" in self.mlps and not self.experts:
            raise RefusedValue("experts", "is needed by layers with experts")
        if any(layer == ("none", "none") for layer in kinds_of(self)):
            raise RefusedValue("mixers", "and mlps must not both be none for the same layer")

    @property
    def moe_layers(self) -> int:
        """Number of layers with experts."""
        return sum(layer.mlp == "experts" for layer in kinds_of(self))


@lru_cache(maxsize=1024)
def kinds_of(model: Model) -> tuple[Layer, ...]:
    """Return the kind of each layer, in model order."""
    mixers = model.mixers or (("window",) if model.window else ("attention",))
    result = []
    for layer in range(model.layers):
        past = layer - model.dense_layers
        with_experts = model.experts and past >= 0 and past % model.moe_every == model.moe_every - 1
        mlp = (
            model.mlps[layer % len(model.mlps)]
            if model.mlps
            else "experts"
            if with_experts
            else "dense"
        )
        result.append(Layer(mixers[layer % len(mixers)], mlp))
    return tuple(result)


def mtp_kind(model: Model) -> Layer:
    """Return the kind of a layer of multi-token prediction.

    It has the most frequent attention of the model, and experts if the model has any.
    """
    attentions = [
        layer.mixer
        for layer in kinds_of(model)
        if layer.mixer in ("attention", "window", "chunk", "sparse")
    ]
    mixer = max(attentions, key=attentions.count) if attentions else "attention"
    return Layer(mixer, "experts" if model.experts else "dense")


def mixer_parameters(model: Model, mixer: str) -> int:
    """Return the parameters of a layer's mixer and its norm.

    Layers with a state are counted as in their models: Mamba-2 (arXiv 2405.21060) as in
    Megatron-LM, gated delta net as in Qwen3-Next, Kimi delta attention as in arXiv 2510.26692, and
    lightning attention as in MiniMax-01 (arXiv 2501.08313).
    """
    if mixer == "none":
        return 0
    if mixer == "sparse":
        return attention_parameters(model) + index_parameters(model)
    if mixer not in STATES:
        return attention_parameters(model) + compression_parameters(model, mixer)
    h, heads, values = model.hidden, model.state_heads, model.state_heads * model.state_dim
    keys = 2 * model.state_groups * model.state_size
    mixed, norm = values + keys, h * (2 if model.biases else 1)
    if mixer == "mamba":
        return (
            norm
            + h * (values + mixed + heads)
            + (model.conv + 1) * mixed
            + 3 * heads
            + values
            + values * h
        )
    if mixer == "delta":
        return (
            norm
            + h * (values + mixed + 2 * heads)
            + model.conv * mixed
            + 2 * heads
            + model.state_dim
            + values * h
        )
    if mixer == "kda":  # gates of decay and output are products of rank state_dim
        gates = 2 * h * model.state_dim + model.state_dim * (keys // 2 + values) + h * heads
        return (
            norm
            + h * mixed
            + gates
            + model.conv * mixed
            + heads
            + keys // 2
            + model.state_dim
            + values * h
        )
    return norm + h * (values + mixed) + values + values * h


def index_parameters(model: Model) -> int:
    """Return the parameters of sparse attention's indexer: queries, one key head, head weights."""
    return model.q_lora * model.index_heads * model.index_dim + model.hidden * (
        model.index_dim + model.index_heads
    )


def compression_parameters(model: Model, mixer: str) -> int:
    """Return the parameters of compressed attention's compressor, and of CSA's indexer.

    The compressor makes one key of several tokens; CSA's makes overlapping keys of twice as many.
    """
    if mixer not in COMPRESSED:
        return 0
    ratio, wide = (model.csa, 2) if mixer == "csa" else (model.hca, 1)
    widths = (model.head_dim, model.index_dim) if mixer == "csa" else (model.head_dim,)
    count = sum(2 * model.hidden * wide * width + ratio * wide * width + width for width in widths)
    return count + (
        model.index_heads * (model.q_lora * model.index_dim + model.hidden) if mixer == "csa" else 0
    )


def stream_parameters(model: Model) -> int:
    """Return the parameters of hyper-connections around one part of a layer (arXiv 2512.24880)."""
    mixed = (2 + model.streams) * model.streams
    return mixed * (model.streams * model.hidden + 1) + 3 if model.streams > 1 else 0


def attention_parameters(model: Model) -> int:
    """Return the parameters of a layer's attention: matrices of Q, K, V, output; biases; norm."""
    h, a = model.hidden, model.heads
    norm = h * (2 if model.biases else 1)
    if model.kv_lora:
        width = model.head_dim + model.rope_dim
        query = (
            h * model.q_lora + model.q_lora + model.q_lora * a * width
            if model.q_lora
            else h * a * width
        )
        keys = h * (model.kv_lora + model.rope_dim) + model.kv_lora
        return (
            norm
            + query
            + keys
            + model.kv_lora * a * (model.head_dim + model.v_dim)
            + a * model.v_dim * h
        )
    if model.o_lora:
        width = a * model.head_dim
        query = (
            h * model.q_lora + model.q_lora + model.q_lora * width if model.q_lora else h * width
        )
        output = width * model.o_lora + model.o_groups * model.o_lora * h
        return norm + query + (h + 1) * model.head_dim + output + a
    outer = ((2 if model.attention_gate else 1) * a + 2 * model.kv_heads) * model.head_dim
    bias = outer + h if model.biases else 0
    return norm + h * outer + a * model.head_dim * h + bias


def mlp_parameters(model: Model, mlp: str, active: bool = False) -> int:
    """Return the parameters of a layer's MLP or experts, and its norm.

    ``active`` counts only the experts that one token visits.
    """
    h, matrices = model.hidden, 3 if model.gated else 2
    norm = h * (2 if model.biases else 1)
    if mlp == "none":
        return 0
    if mlp == "dense":
        return (
            norm
            + matrices * h * model.ffn
            + ((matrices - 1) * model.ffn + h if model.biases else 0)
        )
    routed = expert_parameters(model) * (model.top_k if active else model.experts)
    between = 2 * h * model.expert_hidden if model.expert_hidden != h else 0
    return norm + routed + between + matrices * h * model.shared_ffn + h * model.experts


def expert_parameters(model: Model) -> int:
    """Return the parameters of one routed expert."""
    return (3 if model.gated else 2) * model.expert_hidden * model.expert_ffn


def layer_parameters(model: Model, layer: Layer, active: bool = False) -> int:
    """Return the parameters of one layer; ``active`` counts only experts that a token visits."""
    mixed = ((layer.mixer != "none") + (layer.mlp != "none")) * stream_parameters(model)
    return mixer_parameters(model, layer.mixer) + mlp_parameters(model, layer.mlp, active) + mixed


def copied_parameters(model: Model, layer: Layer) -> int:
    """Return the parameters of a layer outside experts that each tensor-parallel rank has in full.

    In Megatron-LM these are norms, biases of outputs, the projections of hidden states to latents
    (``parallel_mode="duplicated"`` in its multi_latent_attention.py), the router, the projections
    around latent experts, the indexer of sparse attention, and hyper-connections.
    """
    h = model.hidden
    norm = h * (2 if model.biases else 1)
    mixed = ((layer.mixer != "none") + (layer.mlp != "none")) * stream_parameters(model)
    copied = mixed + norm * ((layer.mixer != "none") + (layer.mlp != "none"))
    if layer.mixer not in (*STATES, "none"):
        copied += index_parameters(model) if layer.mixer == "sparse" else 0
        copied += compression_parameters(model, layer.mixer)
        if model.kv_lora or model.o_lora:
            copied += (h + 1) * model.q_lora
        if model.kv_lora:
            copied += h * (model.kv_lora + model.rope_dim) + model.kv_lora
        elif model.o_lora:
            copied += (h + 1) * model.head_dim
        elif model.biases:
            copied += h
    if layer.mixer == "kda":
        copied += 2 * h * model.state_dim
    if layer.mlp == "experts":
        copied += h * model.experts
        copied += 2 * h * model.expert_hidden if model.expert_hidden != h else 0
    if layer.mlp == "dense" and model.biases:
        copied += h
    return copied


def encoder_parameters(encoder: Encoder) -> int:
    """Return the parameters of an encoder's layers: four attention matrices, MLP, norms."""
    e = encoder
    return e.layers * (4 * e.hidden**2 + (3 if e.gated else 2) * e.hidden * e.ffn + 2 * e.hidden)


def embedding_parameters(model: Model) -> int:
    """Return the parameters before the first layer."""
    return model.vocab * model.hidden + (model.seq * model.hidden if model.learned_positions else 0)


def head_parameters(model: Model) -> int:
    """Return the parameters after the last layer, without a tied output matrix."""
    matrix = 0 if model.tied else model.vocab * model.hidden
    return matrix + model.hidden * (2 if model.biases else 1)


def count_parameters(model: Model, active: bool = False) -> int:
    """Return a model's parameters, without layers of multi-token prediction.

    ``active`` counts only the experts that a token visits. Layers of multi-token prediction are not
    used at inference; :func:`mtp_parameters` counts them.
    """
    layers = sum(layer_parameters(model, layer, active) for layer in kinds_of(model))
    encoder = encoder_parameters(model.encoder) if model.encoder else 0
    return layers + embedding_parameters(model) + head_parameters(model) + encoder


def mtp_parameters(model: Model) -> int:
    """Return the parameters of multi-token prediction: layers, each with a 2h x h projection."""
    return model.mtp * (
        layer_parameters(model, mtp_kind(model)) + 2 * model.hidden**2 + 3 * model.hidden
    )


@lru_cache(maxsize=64)
def flops_per_token(model: Model) -> float:
    """Return the FLOPs of training on one token: forward and backward without recomputation.

    They are six for each parameter of a matrix that the token visits, and three times those of the
    forward's products without weights. Attention counts by its causal half. An encoder's FLOPs are
    divided over the sequence; a frozen encoder has only those of its forward.
    """
    visited = mixing = 0.0
    for layer in (*kinds_of(model), *(mtp_kind(model),) * model.mtp):
        visited += layer_parameters(model, layer, active=True) - _vector_parameters(model, layer)
        mixing += mixing_flops(model, layer.mixer)
    visited += model.mtp * 2 * model.hidden**2 + (1 + model.mtp) * model.vocab * model.hidden
    encoder_flops = 0.0
    if e := model.encoder:
        each = (
            2.0 * (encoder_parameters(e) - 2 * e.layers * e.hidden)
            + 4.0 * e.layers * e.tokens * e.hidden
        )
        encoder_flops = (1 if e.frozen else 3) * each * e.tokens / model.seq
    return 6.0 * visited + 3.0 * mixing + encoder_flops


def _vector_parameters(model: Model, layer: Layer) -> int:
    """Return a layer's parameters outside matrices: norms, and scales and shifts of a state."""
    norm = model.hidden * (2 if model.biases else 1)
    result = norm * ((layer.mixer != "none") + (layer.mlp != "none"))
    values, keys = model.state_heads * model.state_dim, 2 * model.state_groups * model.state_size
    if layer.mixer == "mamba":
        return result + (model.conv + 1) * (values + keys) + 3 * model.state_heads + values
    if layer.mixer in STATES:
        return result + model.conv * (values + keys) + 3 * model.state_heads
    return result


def mixing_flops(model: Model, mixer: str) -> float:
    """Return the FLOPs of a token's forward in a mixer without weights.

    They are those of attention's products, or of a state's update. A head with a state of p x n
    takes 7 p n, as Megatron-LM counts Mamba; lightning attention has no gate and takes 5 p n.
    """
    if mixer == "none":
        return 0.0
    if mixer in STATES:
        return (
            (5.0 if mixer == "linear" else 7.0)
            * model.state_heads
            * model.state_dim
            * model.state_size
        )
    ratio = {"sparse": 1, "csa": model.csa}.get(mixer, 0)  # tokens per key of the indexer
    index = model.seq / ratio * model.index_heads * (model.index_dim + 1) if ratio else 0
    width = model.head_dim + model.rope_dim + model.v_dim
    return 2.0 * attended_tokens(model, mixer) * model.heads * width + index


def attended_tokens(model: Model, mixer: str) -> float:
    """Return the mean number of keys that a token attends to."""
    if mixer == "chunk":
        return min(model.window, model.seq) / 2
    if mixer in COMPRESSED:
        near = attended_tokens(model, "window")
        ratio, most = (model.csa, model.index_top_k) if mixer == "csa" else (model.hca, model.seq)
        return near + (
            most - most**2 * ratio / (2 * model.seq)
            if most * ratio < model.seq
            else model.seq / ratio / 2
        )
    w = {"window": model.window, "sparse": model.index_top_k}.get(mixer, 0)
    return model.seq / 2 if not w or w >= model.seq else w - w * w / (2 * model.seq)


def library() -> Mapping[str, Path]:
    """Return the files of the library's models, by name."""
    return toml.list_installed(LIBRARY)


def is_config(spec: str) -> bool:
    """Return whether a model is given by a config.json, or by a folder that may have one.

    Its ``seq`` is the longest sequence possible.
    """
    return spec.lower() not in library() and (spec.endswith(".json") or os.path.isdir(spec))


def read_model(spec: str, seq: int | None = None) -> Model:
    """Read a model by a name of the library, or from a TOML file or a Hugging Face config.json.

    Args:
        spec: the name, the path, or a folder with a config.json.
        seq: sequence length that replaces the model's.

    Raises:
        InputError: there is no such name or file, the file does not describe a model, or ``seq`` is
            out of range.
    """
    model = _read(spec, any_length=seq is not None)
    try:
        return model if seq is None else replace(model, seq=seq)
    except RefusedValue as refused:
        raise InputError(f"--{refused}", "such as --seq 4096") from None


def read_trained(spec: str, seq: int | None = None) -> Model:
    """Read a model for training; with a config.json, ``seq`` is required.

    A config.json states only the longest sequence possible.

    Raises:
        InputError: as :func:`read_model`; or ``seq`` is missing with a config.json.
    """
    model = read_model(spec, seq)
    if seq is None and is_config(spec):
        raise InputError(
            f"'{spec}' states the longest sequence possible ({model.seq:,} tokens), not the length "
            f"of yours",
            "--seq 8192",
        )
    return model


def _read(spec: str, any_length: bool) -> Model:
    known = library()
    if spec.lower() in known:
        return toml.read_installed(known[spec.lower()], Model, SCHEMA)
    if is_config(spec):
        path = str(Path(spec) / "config.json") if os.path.isdir(spec) else spec
        try:
            return Model(**read_config(path, any_length=any_length))
        except RefusedValue as refused:
            raise InputError(f"'{path}': {refused.key} {refused.why}", CONFIG) from refused
    if not spec.endswith(".toml") and not os.path.exists(spec):
        raise InputError(
            f"no model {quote(spec)} in the library and no such "
            f"file.{guess_of(spec.lower(), known)}",
            "the config.json of its page on Hugging Face (--model config.json --seq LENGTH), a "
            f".toml file, or one of {', '.join(known)}",
        )
    model = toml.read(spec, Model, SCHEMA, EXAMPLE)
    return model if model.name else replace(model, name=Path(spec).stem)
