"""Factors that correct the efficiency curve's op times by the measured times of a profile.

A profile of transformer layers (``ppsim calibrate``) corrects dense layers, embedding and output;
the curve only scales the measured times to the sizes of the model. A profile of whole stages, from
a trace or the user's modules, corrects the times of stages; a profile of modules that are single
layers corrects dense layers. Collectives, messages, experts, reductions and the optimizer keep the
times of the curve and the cluster's links.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import Profile, Workload
from ppsim.schedules import generate
from ppsim.workload.cost.costs import content_times, stage_costs
from ppsim.workload.hardware.efficiency import efficiency_of, pass_seconds
from ppsim.workload.hardware.hardware import AS_THE_CURVE, Factors, Machine, Measured
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model.contents import StageContent, count_stage_parameters
from ppsim.workload.model.model import STATES, Layer, Model, kinds_of
from ppsim.workload.model.operators import (
    Floats,
    Operators,
    embedding_operators,
    head_operators,
    layer_operators,
)
from ppsim.workload.model.parallel import Parallel

PASSES = [Kind.F, Kind.I, Kind.W, Kind.B]
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
# largest ratio of the model's width or sequence to the measured one (or the reverse)
FARTHEST = 4.0
UNSAID = (
    ", taken as measured with these sizes, microbatches and recompute, which a profile does not say"
)
CLOSE = 0.05  # largest relative difference of measured modules' parameters from the model's
FROM_CURVE = "collectives, messages, gradient reductions and the optimizer are the curve's"


def use_profile(
    machine: Machine,
    profile: Profile,
    name: str,
    model: Model,
    parallel: Parallel,
    layout: Layout | None = None,
    *,
    by_stage: bool = True,
) -> Machine:
    """Return the machine with op times corrected by the measured times of a profile.

    Args:
        machine: the cluster; the profile must be measured on its GPU.
        profile: the measured times.
        name: the profile's name in messages, such as its file.
        model: the model to train.
        parallel: how it is trained. A profile of whole stages must be measured with the same
            sizes; the profile does not record them.
        layout: the layers of each stage.
        by_stage: whether each measured stage corrects the same stage of the model, where both have
            as many; otherwise the sum over all stages corrects the whole model.

    Raises:
        InputError: the profile was measured on another device, in another precision, or on layers
            too different from the model's.
    """
    _refuse_device(machine, profile, name)
    plain = replace(machine, measured=None)
    if profile.model is None:
        measured = _compare_stages(plain, profile, name, model, parallel, layout, by_stage)
    else:
        measured = _compare_layers(plain, profile, profile.model, name, model, parallel)
    return replace(machine, measured=measured)


def _refuse_device(machine: Machine, profile: Profile, name: str) -> None:
    """Refuse a profile of another device than the cluster's; a profile may name no device."""
    device, gpu = profile.provenance.device, machine.gpu.name
    chip = gpu.split("-")[0]
    if device not in ("", "unknown") and not re.search(
        rf"(?<![a-z0-9]){re.escape(chip.lower())}(?![0-9])", device.lower()
    ):
        raise InputError(
            f"'{name}' was measured on {device}, and the devices of {machine.name} are {gpu}",
            f"ppsim calibrate on one of them, or a cluster file whose gpu is named '{device}'",
        )


def _compare_layers(
    machine: Machine,
    profile: Profile,
    workload: Workload,
    name: str,
    model: Model,
    parallel: Parallel,
) -> Measured:
    """Return the measured times of layers, embedding and output over the curve's times."""
    _refuse_workload(workload, name, model, parallel)
    measured_model = Model(
        workload.hidden,
        workload.heads,
        workload.layers,
        workload.sequence,
        workload.vocab,
        biases=True,
        learned_positions=True,
    )
    alone = Parallel(
        mbs=workload.microbatch_size, precision=parallel.precision, kernels=parallel.kernels
    )
    content = ("", "t" * workload.layers, "E", "L")
    schedule = generate("gpipe", devices=len(content), microbatches=1)
    found = costs_from(profile, schedule, first_stage_splits=True, content=content)
    time = found.time[PASSES] / 1e3
    fixed = time[:, 0]
    if (time[[0, 3], 1] <= fixed[[0, 3]]).any():
        raise InputError(
            f"'{name}' has no time of a layer: {workload.layers} layers took no longer than a "
            "stage without layers",
            "measure again, with more --layers or --repeats",
        )

    def compare(column: int, operators: Operators, count: int = 1) -> Factors:
        curve = count * pass_seconds(
            operators, machine.gpu, efficiency_of(machine.gpu, parallel), parallel.precision
        )
        return _divide(time[:, column] - fixed, curve)

    ends = AS_THE_CURVE, AS_THE_CURVE
    if workload.vocab:
        ends = (
            compare(2, embedding_operators(measured_model, alone)),
            compare(3, head_operators(measured_model, alone)),
        )
    taken = "dense layers" + (", embedding and output" if workload.vocab else "")
    layer = compare(1, layer_operators(measured_model, alone, Layer()), workload.layers)
    return Measured(
        name=name,
        layer=layer,
        embedding=ends[0],
        head=ends[1],
        fixed=_split_full(fixed),
        taken=f"{taken}, measured with hidden {workload.hidden}, sequences of {workload.sequence}, "
        f"{workload.dtype} " + _factors_text(layer),
        left=("experts, " if model.experts else "")
        + ("" if workload.vocab else "embedding, output, ")
        + FROM_CURVE,
    )


def _refuse_workload(workload: Workload, name: str, model: Model, parallel: Parallel) -> None:
    """Refuse a profile whose precision, kind of layer or sizes are too far from the model's."""
    if PRECISIONS.get(workload.dtype) != parallel.precision:
        dtype = next((d for d, name in PRECISIONS.items() if name == parallel.precision), "")
        raise InputError(
            f"'{name}' was measured in {workload.dtype}, and the model is to be trained in "
            f"{parallel.precision}",
            f"ppsim calibrate --dtype {dtype} -o {name}"
            if dtype
            else "--precision bf16, or the profile of a real run: calibrate --from-trace",
        )
    if model.moe_layers == model.layers:
        raise InputError(
            f"'{name}' was measured on dense layers, and every layer of "
            f"{model.name or 'the model'} has experts",
            "the profile of a real run of it: ppsim calibrate --from-trace",
        )
    pairs = (("hidden", workload.hidden, model.hidden), ("sequence", workload.sequence, model.seq))
    for size, measured, wanted in pairs:
        if max(measured, wanted) > FARTHEST * min(measured, wanted):
            raise InputError(
                f"'{name}' was measured with {size} {measured}; {model.name or 'the model'} has "
                f"{wanted}, more than {FARTHEST:g} times off",
                f"ppsim calibrate --hidden {model.hidden} --heads {model.heads} --seq {model.seq} "
                f"--mbs {parallel.mbs} --vocab {model.vocab} --dtype {workload.dtype} -o {name}",
            )


def _compare_stages(
    machine: Machine,
    profile: Profile,
    name: str,
    model: Model,
    parallel: Parallel,
    layout: Layout | None,
    by_stage: bool,
) -> Measured:
    """Return the measured times of stages over the curve's, for each stage or for their sum."""
    stages = len({op.stage for op in profile.op if op.part == "stage"})
    costs = stage_costs(model, machine, parallel, layout)
    curve = costs.time[PASSES]
    found = costs_from(profile, generate("gpipe", devices=stages, microbatches=1))
    time = found.time[PASSES] / 1e3
    measured_parameters = np.array([stage.parameters for stage in profile.stage])
    model_parameters = float(costs.parameters.sum())
    difference = abs(measured_parameters.sum() - model_parameters)
    if measured_parameters.any() and difference > CLOSE * model_parameters:
        return _compare_user_layers(
            machine,
            name,
            model,
            parallel,
            time.sum(axis=1),
            measured_parameters,
            model_parameters,
        )
    one_by_one = by_stage and stages == parallel.stages
    if not one_by_one:
        time, curve = time.sum(axis=1, keepdims=True), curve.sum(axis=1, keepdims=True)
    factors = _divide(time.sum(axis=1), curve.sum(axis=1))
    return Measured(
        name=name,
        stages=tuple(_divide(time[:, i], curve[:, i]) for i in range(time.shape[1])),
        taken=f"{stages} whole stages with their collectives {_factors_text(factors)}"
        + ("" if one_by_one else ", their sum for the whole model")
        + UNSAID,
        left="messages, gradient reductions and the optimizer are the curve's",
    )


def _compare_user_layers(
    machine: Machine,
    name: str,
    model: Model,
    parallel: Parallel,
    time: Floats,
    measured_parameters: NDArray[np.int64],
    model_parameters: float,
) -> Measured:
    """Return the measured times of the user's modules over the curve's times of dense layers.

    Each module must have the parameters of a whole number of the model's dense layers. Only F and
    full B are compared: the first stage has no gradient of its input, so no I.
    """
    dense = [
        layer for layer in kinds_of(model) if layer.mlp == "dense" and layer.mixer not in STATES
    ]
    contents = [
        StageContent(((layer, 1),), 0, False, 0, int(parallel.recompute != "none"))
        for layer in dense[:1]
    ]
    each = sum(sum(count_stage_parameters(model, parallel, content)) for content in contents)
    counts = np.round(measured_parameters / max(each, 1))
    distance = abs(measured_parameters - counts * each)
    if not each or (distance > CLOSE * measured_parameters).any():
        stages_text = " + ".join(f"{count:,}" for count in measured_parameters)
        layer_text = f", {each:,.0f} a dense layer" if each else ""
        raise InputError(
            f"stages of '{name}' hold {stages_text} parameters, and of "
            f"{model.name or 'the model'} a GPU holds {model_parameters:,.0f}{layer_text}",
            "a profile of all its stages, or of some of its dense layers alone, with the sizes of "
            "groups measured",
        )
    curve = content_times(model, machine, parallel, contents[0])
    layer = _divide(time * [1, 0, 0, 1], counts.sum() * curve[PASSES])
    return Measured(
        name=name,
        layer=layer,
        taken=f"dense layers, of which modules have {counts.sum():.0f} "
        f"{_factors_text(layer)}{UNSAID}",
        left=("experts, " if model.experts else "") + "embedding, output, " + FROM_CURVE,
    )


def _factors_text(factors: Factors) -> str:
    return f"(F {factors.f:.2f} and B {factors.b:.2f} times the curve's)"


def _divide(time: Floats, curve: Floats) -> Factors:
    """Return the ratios of measured F, I, W and B to the curve's; B's ratio where I or W is 0."""
    f, i, w, b = (float(value) for value in time / np.maximum(curve, 1e-12))
    halves = i > 0 and w > 0
    full = b if b > 0 else 1.0
    return Factors(f if f > 0 else 1.0, i if halves else full, w if halves else full, full)


def _split_full(fixed: Floats) -> Factors:
    """Return the seconds of F, I, W and B; half of B for I and W that were not measured."""
    f, i, w, b = (max(float(value), 0.0) for value in fixed)
    return Factors(f, i, w, b) if i > 0 else Factors(f, b / 2, b / 2, b)
