"""Language models by their Hugging Face config.json."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ppsim.base.source import name_of, read_text
from ppsim.base.text import quote
from ppsim.base.typed_json import check_type, decode
from ppsim.errors import InputError

KEYS = {
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "seq": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num", "num_kv_heads"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts"),
    "top_k": ("num_experts_per_tok", "experts_per_token"),
    "expert_ffn": ("moe_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "moe_every": ("interleave_moe_layer_step", "decoder_sparse_step"),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "rope_dim": ("qk_rope_head_dim",),
    "v_dim": ("v_head_dim",),
    "mtp": ("num_nextn_predict_layers",),
}
LARGEST_CONFIG = 4 << 20
CONFIG = "the config.json of a language model"
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
PLAIN_MLPS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "gelu_fast")
# Kinds whose files leave out what is usual for them: MLPs without a gate, a tied output, biases, windows.
PLAIN = ("bloom", "falcon", "gpt_bigcode", "gpt_neox", "mpt", "opt", "phi", "starcoder2")
TIED = ("bloom", "falcon", "mpt", "opt")
BIASED = ("bloom", "gpt_neox", "opt", "phi")
WINDOWED = {"mistral": 1, "mixtral": 1, "phi3": 1, "starcoder2": 1, "gemma2": 2}  # every how many layers
NEEDED = ("hidden", "heads", "layers", "seq", "vocab")
OTHER_COUNTS = ("head_dim", "qk_nope_head_dim", "shared_expert_intermediate_size", "n_shared_experts", "sliding_window")
_POSITIVE, _COUNT = Annotated[int, msgspec.Meta(ge=1)] | None, Annotated[int, msgspec.Meta(ge=0)] | None
# What the keys that are read may hold; null is as good as none.
Config = msgspec.defstruct(
    "Config",
    [
        *((key, _POSITIVE, None) for name in (*NEEDED, "kv_heads") for key in KEYS[name]),
        *((key, _COUNT, None) for name in KEYS.keys() - {*NEEDED, "kv_heads"} for key in KEYS[name]),
        *((key, _COUNT, None) for key in (*OTHER_COUNTS, "intermediate_size_mlp")),
        *((key, str | None, None) for key in (*ACTIVATIONS, "model_type", "_name_or_path")),
        *((key, list[str] | None, None) for key in ("layer_types", "architectures")),
        *((key, bool | None, None) for key in ("tie_word_embeddings", "is_encoder_decoder", "use_sliding_window")),
        *((key, bool | None, None) for key in ("multi_query", "new_decoder_architecture")),
        ("mlp_only_layers", list[int] | None, None),
    ],
)


def read_config(path: str, *, any_length: bool = False) -> dict[str, Any]:
    """Read a config.json as the fields of a :class:`ppsim.workload.model.model.Model`.

    Args:
        path: the file.
        any_length: whether it need not say how long sequences may be, which are then of one token.

    Raises:
        InputError: it is no config.json, or of a model that is not known here.
    """
    data = _read_object(path)
    _refuse_other_layers(data, path)
    given = _sizes(data if not any_length else {**data, KEYS["seq"][0]: 1}, path)
    latent = "kv_lora" in given
    head_dim = data.get("qk_nope_head_dim" if latent else "head_dim")
    if not latent:
        given.pop("rope_dim", None)
        given.pop("v_dim", None)
    elif not head_dim:
        raise InputError(f"'{path}' has kv_lora_rank and no qk_nope_head_dim", CONFIG)
    shared = data.get("shared_expert_intermediate_size")
    if shared is None and (count := data.get("n_shared_experts")):
        shared = count * given.get("expert_ffn", given.get("ffn", 0))
    gpt, kind = "n_embd" in data, str(data.get("model_type") or "")
    if kind.startswith("llama4") and (dense := data.get("intermediate_size_mlp")):
        shared = given["expert_ffn"] = given.get("ffn", 0)
        given["ffn"] = dense
    gemma = kind.startswith("gemma")
    usual = "gelu" if gpt or kind in PLAIN else "silu"
    activation = next((data[key] for key in ACTIVATIONS if data.get(key)), usual)
    return {
        **given,
        **_window(data, kind),
        "head_dim": head_dim or 0,
        "shared_ffn": shared or 0,
        "gated": gemma or activation not in PLAIN_MLPS,
        "tied": bool(data.get("tie_word_embeddings", gpt or gemma or kind in TIED)),
        "learned_positions": gpt or kind == "opt",
        "biases": gpt or kind in BIASED,
        "clamped": kind == "gpt_oss",
        "name": str(data.get("_name_or_path") or Path(path).parent.name or Path(path).stem),
        "source": name_of(path),
    }


def _read_object(path: str) -> Mapping[str, Any]:
    text, source = read_text(path, CONFIG, largest=LARGEST_CONFIG), f"'{name_of(path)}'"
    data = decode(text, dict[str, Any], source, CONFIG)
    if isinstance(data.get("text_config"), dict):
        data, source = data["text_config"], f"{source}: text_config"
    check_type(data, Config, source, CONFIG)
    return data


def _sizes(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the numbers that the file has, by the model's fields."""
    found = {name: [key for key in keys if data.get(key) is not None] for name, keys in KEYS.items()}
    given: dict[str, Any] = {name: data[keys[0]] for name, keys in found.items() if keys}
    for name in (*NEEDED, "top_k") if given.get("experts") else NEEDED:
        if name not in given:
            raise _missing(data, KEYS[name], path, found["experts"][0] if name == "top_k" else "")
    if data.get("multi_query") is True and not data.get("new_decoder_architecture"):
        given["kv_heads"] = 1
    if dense := data.get("mlp_only_layers"):
        if dense != list(range(len(dense))):
            raise InputError(f"'{path}': mlp_only_layers are not the first layers: {quote(dense)}", CONFIG)
        given["dense_layers"] = len(dense)
    return given


def _refuse_other_layers(data: Mapping[str, Any], path: str) -> None:
    """Refuse encoders, and models whose layers are not all attention, which the cost model does not know."""
    names = data.get("architectures")
    masked = isinstance(names, list) and any("MaskedLM" in str(name) for name in names)
    if masked or data.get("is_encoder_decoder") is True:
        raise InputError(f"'{path}' is of a model with an encoder", "a decoder: encoders are not modelled")
    kinds = data.get("layer_types")
    others = {str(kind) for kind in kinds if "attention" not in str(kind)} if isinstance(kinds, list) else set()
    others |= {str(kind) for kind in kinds if "linear" in str(kind)} if isinstance(kinds, list) else set()
    others |= {key for key in data if re.search("mamba|hybrid|linear_attn|^ssm_", key)}
    if "mamba" in str(data.get("model_type")):
        others.add(str(data["model_type"]))
    if others:
        raise InputError(
            f"'{path}' has layers that are no attention ({', '.join(sorted(others)[:3])})",
            "a transformer: hybrid models are not modelled",
        )


def _window(data: Mapping[str, Any], kind: str) -> dict[str, int]:
    """Return the sliding window where all layers or every second one has it; otherwise none, which costs more."""
    kinds, width = data.get("layer_types"), data.get("sliding_window")
    if not isinstance(width, int) or isinstance(width, bool) or data.get("use_sliding_window") is False:
        return {}
    if isinstance(kinds, list) and kinds:
        every = len(kinds) / max(sum("sliding" in str(kind) for kind in kinds), 1)
    else:
        every = WINDOWED.get(kind, 0)
    return {"window": width, "window_every": int(every)} if every in (1, 2) else {}


def _missing(data: Mapping[str, Any], keys: tuple[str, ...], path: str, beside: str) -> InputError:
    """Say which key is missing, and which unknown one may stand for it."""
    known = Config.__struct_fields__
    near = [key for name in keys for key in difflib.get_close_matches(name, data.keys() - set(known), n=1, cutoff=0.8)]
    kind = f" of type {quote(family)}" if (family := data.get("model_type")) else ""
    what = f"'{path}'{kind} has {f'{beside} and ' if beside else ''}no {keys[0]}"
    what += f"; {quote(near[0])} is not known here" if near else ""
    return InputError(what, "--seq 4096" if keys == KEYS["seq"] else f"{CONFIG} that has {' or '.join(keys)}")
