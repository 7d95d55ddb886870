"""Made of the options that each question declares, by ``python -m tests.refresh_stub``; a test compares."""

import os
from collections.abc import Sequence
from ppsim.core.costs import Costs as Costs, Prices, costs_for as costs_for
from ppsim.core.ops import Kind as Kind
from ppsim.core.schedule import Placement as Placement, Schedule as Schedule
from ppsim.core.timeline import Timeline as Timeline
from ppsim.engine.simple.longest_path import simulate as simulate
from ppsim.engine.simple.metrics import Metrics as Metrics, measure as measure
from ppsim.errors import PpsimError as PpsimError
from ppsim.questions.across.check import Check
from ppsim.questions.across.convert import Converted
from ppsim.questions.across.diff import Diff
from ppsim.questions.across.explain import Explained
from ppsim.questions.optimum.optimize import Optimized
from ppsim.questions.optimum.partition import Partitioned
from ppsim.questions.plans.layout import Layout
from ppsim.questions.plans.model import Card, ModelCost
from ppsim.questions.plans.plan import Plans
from ppsim.questions.runs.calibrate import Calibration
from ppsim.questions.runs.read import ObservedRun
from ppsim.questions.runs.validate import Validated, ValidatedJob
from ppsim.questions.timelines.compare import Comparison
from ppsim.questions.timelines.jitter import Jitter
from ppsim.questions.timelines.list import Shelves
from ppsim.questions.timelines.memory import Memory
from ppsim.questions.timelines.run import Run
from ppsim.questions.timelines.sweep import Shapes
from ppsim.show.drawing.gantt.figure import plot as plot
from ppsim.show.drawing.notebook import figure as figure
from ppsim.show.files.document import Document as Document, save as save
from typing import Any, Literal

__version__: str
__all__ = [
    "Costs",
    "Document",
    "Kind",
    "Metrics",
    "Placement",
    "PpsimError",
    "Schedule",
    "Timeline",
    "calibrate",
    "check",
    "compare",
    "convert",
    "costs_for",
    "diff",
    "explain",
    "figure",
    "jitter",
    "layout",
    "measure",
    "memory",
    "model",
    "optimize",
    "partition",
    "plan",
    "plot",
    "read",
    "run",
    "save",
    "simulate",
    "sweep",
    "validate",
]

def calibrate(
    *,
    hidden: int = 512,
    heads: int = 8,
    seq: int = 256,
    microbatch_size: int = 1,
    layers: int = 2,
    vocab: int = 4096,
    dtype: Literal["float32", "bfloat16", "float16", "float64"] | None = None,
    device: Literal["auto", "cpu", "cuda"] = 'auto',
    repeats: int = 10,
    warm_up: int = 2,
    max_bytes: int | None = None,
    sizes: int | Sequence[int] | str | None = None,
    real_time: bool = False,
    note: str = '',
    module: str | None = None,
    stages: int | None = None,
    from_trace: str | Sequence[str] = (),
    iteration: str = 'all',
) -> Calibration | None:
    """Measure the times of a transformer stage's ops and of messages on this machine, in ms.

    ``save("profile.toml")`` of the answer writes them.

    Args:
        options: the options of ``ppsim calibrate`` by name: ``hidden``, ``layers``, ``module``,
            ``from_trace``, ...

    Returns:
        The measurements; None in all processes of torchrun but the first.

    Raises:
        InputError: an option is refused.
        MissingDependency: torch is not installed, or a GPU is asked for and there is none.

    Options:
        hidden: Width of the model. (default 512)
        heads: Attention heads; they divide the width. (default 8)
        seq: Tokens of one sample. (default 256)
        microbatch_size: Samples of a microbatch. (default 1)
        layers: Layers of each device. (default 2)
        vocab: Vocabulary; 0 leaves embedding and head out. (default 4096)
        dtype: Type of parameters and activations (float32 on a CPU, bfloat16 on a GPU).
        device: The device that computes; auto: a GPU if there is one. (default auto)
        repeats: Measured repetitions of every op. (default 10)
        warm_up: Repetitions before those, not counted. (default 2)
        max_bytes: Largest message; the smallest is 1 KiB (default: 16 MiB on a CPU, 256 MiB on
            a GPU).
        sizes: All sizes of messages: 1024,65536 or 1024:65536:x4.
        real_time: Ask the system for real-time priority while messages travel.
        note: A remark for the profile, e.g. on other load of the machine.
        module: A function of yours that makes the stages: stage(stage, stages, device) returns
            a torch module and an example input (above).
        stages: Stages of --module.
        from_trace: Derive the profile from a real run instead: a folder, or files such as
            Kineto traces, one per rank.
        iteration: The iteration of a real run: a number or median; where medians over several
            are printed, all or a range such as 4-20. (default all)
    """
    ...

def check(
    file: str,
    *,
    mode: str | Sequence[str] = (),
    runtime: Literal["torch-2.13", "torch-2.15", "megatron"] | None = None,
    queues: Literal["edge", "pair", "rank"] | None = None,
    shapes: Literal["exchange"] | None = None,
    lengths: str | None = None,
    schedule: str | None = None,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    github: bool = False,
) -> Check:
    """Prove that a schedule's file is valid, or find its faults.

    ``options`` are the options of ``ppsim check`` by name.

    Raises:
        InputError: the file cannot be read, or an option is refused.

    Options:
        mode: Look for deadlocks if sends and receives overlap, are batched, or block;
            repeatable (default: all three; with --for or --queues, overlap).
        runtime: Check the limits of a runtime, and the queues of its communicators.
        queues: Sends and receives run in order on each directed pair of devices (edge), pair,
            or device (rank); run simulates this with --p2p overlap --channel direction, pair or
            group.
        shapes: Look for deadlocks if shapes are sent ahead of messages and both sides wait for
            them (Megatron's variable_seq_lengths): for each message, or with --for megatron for
            each batch.
        lengths: A loader's file of sequences, to check that every replica has as many
            microbatches as the schedule.
        schedule: Expect the ops of this schedule, in the given shape.
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        github: Print GitHub annotations, for a workflow.
    """
    ...

def compare(
    schedules: Sequence[str],
    *,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    layouts: str | None = None,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] | None = None,
    p2p: Literal["latency", "overlap", "blocking", "batched"] | None = None,
    order: str | None = None,
    channel: Literal["message", "direction", "pair", "group"] | None = None,
    cluster: str | None = None,
    message: str | None = None,
    unshard: int | None = None,
    reduce_grad: bool = False,
    shapes: Literal["exchange"] | None = None,
    t_shape: float | None = None,
    replicas: int | str | None = None,
    t_reduce: float = 0.0,
    lengths: str | None = None,
    padded: bool = False,
    cp_of: str | None = None,
    mbs: int | None = None,
    deal: bool = False,
    across: bool = False,
    max_tokens: int | None = None,
    deal_for: float = 2.0,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
    cap: float | str | Sequence[float | str] | None = None,
    memory: bool = False,
    tradeoff: bool = False,
) -> Comparison:
    """Time schedules on the same devices, in the unit of the costs (t_F by default).

    ``options`` are the options of ``ppsim compare`` by name.

    Raises:
        InputError: an option is refused, or no schedule supports the shape.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        model: Times and bytes of a model on --cluster, as ppsim plan has them (--help-all:
            --tp).
        tp: Tensor-parallel ranks (1).
        cp: Context-parallel ranks (1).
        ep: Expert-parallel ranks, inside dp x cp x tp (1).
        dp: Data-parallel replicas (1).
        seq: Tokens in a sequence (the model's).
        zero: ZeRO stage: data-parallel ranks shard the optimizer (1, the default), also
            gradients (2), also weights (3).
        recomputes: Recompute in every backward (none).
        layouts: Split of the layers over stages, by its name in ppsim plan: even, light-last,
            light-ends, light-last:2, light-first:3, ... (even).
        precision: Precision of the linear layers' products (bf16).
        p2p: Simulate sends and receives as ops: in parallel with compute, blocking, or batched.
        order: Order of sends and receives: early (default; a lowered file states its order),
            even-first, torch (default of --lowered), torch-2.15, deferred, prefetch:K. The last
            two may deadlock if both directions of two devices share a queue (ppsim check
            --queues pair); the others never do.
        channel: With --p2p overlap, one message at a time travels in each direction of two
            devices (default), on a pair of devices, or from and to a device (group); message:
            no limit. check --queues calls the first three edge, pair and rank.
        cluster: Simulate messages on the links of a cluster, such as dgx-h100, or of a TOML
            file, with host costs.
        message: Size of a message on the cluster, such as 4MiB.
        unshard: FSDP: number of stages to gather ahead (0; torch uses 3), with the times of the
            cluster's [fsdp].
        reduce_grad: FSDP: reduce each stage's gradients after its last backward.
        shapes: Send the shape of each message before it and wait for it on both sides, as
            Megatron does with variable_seq_lengths; with --p2p batched (the default then) or
            blocking.
        t_shape: Time that the host waits between a shape and its message, added to the latency
            of the shape (0).
        replicas: Data-parallel replicas, and factors of the times of slow ones: 8,2=1.2 (all of
            replica 2), 8,5.3=1.5 (device 3 of replica 5), or a factor for each: 1,1,1.2. Each
            draws a distribution of --mb-scale again. The slowest is shown, as it decides the
            step.
        t_reduce: Time from the end of the slowest replica's pipeline to the end of the step:
            the collectives of replicas and the optimizer (0).
        lengths: Lengths of the sequences of every replica: csv, jsonl or parquet with columns
            replica, microbatch, tokens (or factor) and perhaps stage; or
            lognormal:MEAN:SIGMA:SEED, uniform:LEAST:MOST:SEED, zipf:EXPONENT:MOST:SEED,
            choice:512,1024:SEED of tokens. The times given are those of a mean microbatch.
        padded: Pad every sequence to the longest of its microbatch (packed).
        cp_of: Context parallelism of microbatches: csv, jsonl or parquet with columns
            microbatch, cp and perhaps replica, factor (1/cp), collective (time of the one in
            parallel with each forward, twice as long with B and I; an op takes the longer of
            both).
        mbs: Sequences in each microbatch of --model or of a distribution of --lengths (1).
        deal: Deal the sequences of --lengths again over as many microbatches of their replica;
            the step never gets longer. -o FILE.csv writes the assignment.
        across: Deal sequences to other replicas too.
        max_tokens: Pack the sequences again into microbatches of at most this many tokens,
            padding included; their number is the one with the shortest step.
        deal_for: Time limit of the search for a dealing, in seconds. (default 2.0)
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
        cap: Memory cap of a device: a number of activations of a device's 1/P share of the
            model, or of one layer with --layout; or a size such as 60GiB, which needs
            --profile, or --model with --cluster. A list has one cap for each device.
        memory: Draw the memory of the devices below each chart.
        tradeoff: Draw time against peak activations, with the Pareto front, instead of charts.
    """
    ...

def convert(
    file: str,
    *targets: str,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    iteration: str = 'median',
    lossy: bool = False,
    merge_bw: bool = False,
    split_bw: bool = False,
) -> Converted:
    """Write a schedule's file in other formats.

    ``options`` are the options of ``ppsim convert`` by name.

    Raises:
        InputError: the file cannot be read, or a format would lose a part of it.

    Options:
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        iteration: The iteration of a real run: a number or median; where medians over several
            are printed, all or a range such as 4-20. (default median)
        lossy: Write a format even if it loses a part of the file.
        merge_bw: Write I and W of a microbatch, where W follows its I, as one B.
        split_bw: Write every B as I and W, one after the other.
    """
    ...

def diff(
    before: str,
    after: str,
    *,
    iteration: str = 'median',
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    p2p: Literal["latency", "overlap", "blocking", "batched"] | None = None,
    order: str | None = None,
    channel: Literal["message", "direction", "pair", "group"] | None = None,
    cluster: str | None = None,
    message: str | None = None,
    unshard: int | None = None,
    reduce_grad: bool = False,
    shapes: Literal["exchange"] | None = None,
    t_shape: float | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
) -> Diff | Any:
    """Return the difference of two runs' device time by cause, in the unit of their times.

    Args:
        before: a schedule, or a file or folder with times.
        after: another one; differences are ``after`` - ``before``.
        options: the options of ``ppsim diff`` by name.

    Raises:
        InputError: an option is refused, or files contain no run.

    Options:
        iteration: The iteration of a real run: a number or median; where medians over several
            are printed, all or a range such as 4-20. (default median)
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        p2p: Simulate sends and receives as ops: in parallel with compute, blocking, or batched.
        order: Order of sends and receives: early (default; a lowered file states its order),
            even-first, torch (default of --lowered), torch-2.15, deferred, prefetch:K. The last
            two may deadlock if both directions of two devices share a queue (ppsim check
            --queues pair); the others never do.
        channel: With --p2p overlap, one message at a time travels in each direction of two
            devices (default), on a pair of devices, or from and to a device (group); message:
            no limit. check --queues calls the first three edge, pair and rank.
        cluster: Simulate messages on the links of a cluster, such as dgx-h100, or of a TOML
            file, with host costs.
        message: Size of a message on the cluster, such as 4MiB.
        unshard: FSDP: number of stages to gather ahead (0; torch uses 3), with the times of the
            cluster's [fsdp].
        reduce_grad: FSDP: reduce each stage's gradients after its last backward.
        shapes: Send the shape of each message before it and wait for it on both sides, as
            Megatron does with variable_seq_lengths; with --p2p batched (the default then) or
            blocking.
        t_shape: Time that the host waits between a shape and its message, added to the latency
            of the shape (0).
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
    """
    ...

def explain(
    schedule: str | None = None,
    *,
    trace: str | None = None,
    iteration: str = 'median',
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    layouts: str | None = None,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] | None = None,
    p2p: Literal["latency", "overlap", "blocking", "batched"] | None = None,
    order: str | None = None,
    channel: Literal["message", "direction", "pair", "group"] | None = None,
    cluster: str | None = None,
    message: str | None = None,
    unshard: int | None = None,
    reduce_grad: bool = False,
    shapes: Literal["exchange"] | None = None,
    t_shape: float | None = None,
    what_if: str | Sequence[str] = (),
    device: int | None = None,
    op: str | None = None,
    cap: float | str | None = None,
    replicas: int | str | None = None,
    t_reduce: float = 0.0,
    lengths: str | None = None,
    padded: bool = False,
    cp_of: str | None = None,
    mbs: int | None = None,
    deal: bool = False,
    across: bool = False,
    max_tokens: int | None = None,
    deal_for: float = 2.0,
    heat: bool = False,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
) -> Explained:
    """Explain a run: its idle time by cause, its critical path, and changes that would help.

    Times are in the run's unit.

    Args:
        schedule: a name, or a file; None with ``trace=``.
        options: the options of ``ppsim explain`` by name; ``what_if`` is a list of changes.

    Raises:
        InputError: an option is refused, or files contain no run.

    Options:
        trace: Explain a real run as measured, from a file or a folder: a table of ops, Primus'
            pp_rank_N.json, Kineto traces, or a record (-s chooses one of its runs).
        iteration: The iteration of a real run: a number or median; where medians over several
            are printed, all or a range such as 4-20. (default median)
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        model: Times and bytes of a model on --cluster, as ppsim plan has them (--help-all:
            --tp).
        tp: Tensor-parallel ranks (1).
        cp: Context-parallel ranks (1).
        ep: Expert-parallel ranks, inside dp x cp x tp (1).
        dp: Data-parallel replicas (1).
        seq: Tokens in a sequence (the model's).
        zero: ZeRO stage: data-parallel ranks shard the optimizer (1, the default), also
            gradients (2), also weights (3).
        recomputes: Recompute in every backward (none).
        layouts: Split of the layers over stages, by its name in ppsim plan: even, light-last,
            light-ends, light-last:2, light-first:3, ... (even).
        precision: Precision of the linear layers' products (bf16).
        p2p: Simulate sends and receives as ops: in parallel with compute, blocking, or batched.
        order: Order of sends and receives: early (default; a lowered file states its order),
            even-first, torch (default of --lowered), torch-2.15, deferred, prefetch:K. The last
            two may deadlock if both directions of two devices share a queue (ppsim check
            --queues pair); the others never do.
        channel: With --p2p overlap, one message at a time travels in each direction of two
            devices (default), on a pair of devices, or from and to a device (group); message:
            no limit. check --queues calls the first three edge, pair and rank.
        cluster: Simulate messages on the links of a cluster, such as dgx-h100, or of a TOML
            file, with host costs.
        message: Size of a message on the cluster, such as 4MiB.
        unshard: FSDP: number of stages to gather ahead (0; torch uses 3), with the times of the
            cluster's [fsdp].
        reduce_grad: FSDP: reduce each stage's gradients after its last backward.
        shapes: Send the shape of each message before it and wait for it on both sides, as
            Megatron does with variable_seq_lengths; with --p2p batched (the default then) or
            blocking.
        t_shape: Time that the host waits between a shape and its message, added to the latency
            of the shape (0).
        what_if: Simulate a change; repeatable. Any option of shape, costs, model or messages:
            mb=16 · schedule=zb-1p · tp=4 · comm=0.1 · speed.3=0.9 (device 3) · tf.2=0.9
            (forward of stage 2), tf.2=x0.9 (times 0.9), tf=x0.9 (every stage) · link.0-1=0.5,
            link.0>1=x2 (one direction) · layers.3>2=1/8 (moves one of the eight layers of stage
            3 to stage 2).
        device: Show every gap of this device.
        op: Show the op or message that an op waits for, and its slack: 2B5 or B5@2 (stage 2).
        cap: Memory cap of a device for advised changes (default: the peak of this run). A
            number counts activations of a device's 1/P share of the model, or of one layer with
            --layout; a size such as 40GiB needs --profile or --model.
        replicas: Data-parallel replicas, and factors of the times of slow ones: 8,2=1.2 (all of
            replica 2), 8,5.3=1.5 (device 3 of replica 5), or a factor for each: 1,1,1.2. Each
            draws a distribution of --mb-scale again. The slowest is shown, as it decides the
            step.
        t_reduce: Time from the end of the slowest replica's pipeline to the end of the step:
            the collectives of replicas and the optimizer (0).
        lengths: Lengths of the sequences of every replica: csv, jsonl or parquet with columns
            replica, microbatch, tokens (or factor) and perhaps stage; or
            lognormal:MEAN:SIGMA:SEED, uniform:LEAST:MOST:SEED, zipf:EXPONENT:MOST:SEED,
            choice:512,1024:SEED of tokens. The times given are those of a mean microbatch.
        padded: Pad every sequence to the longest of its microbatch (packed).
        cp_of: Context parallelism of microbatches: csv, jsonl or parquet with columns
            microbatch, cp and perhaps replica, factor (1/cp), collective (time of the one in
            parallel with each forward, twice as long with B and I; an op takes the longer of
            both).
        mbs: Sequences in each microbatch of --model or of a distribution of --lengths (1).
        deal: Deal the sequences of --lengths again over as many microbatches of their replica;
            the step never gets longer. -o FILE.csv writes the assignment.
        across: Deal sequences to other replicas too.
        max_tokens: Pack the sequences again into microbatches of at most this many tokens,
            padding included; their number is the one with the shortest step.
        deal_for: Time limit of the search for a dealing, in seconds. (default 2.0)
        heat: Instead of the schedule, draw each worker's slowdown over the steps of a job, or
            with --lengths the times of every replica's microbatches, as given and as dealt.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
    """
    ...

def jitter(
    schedules: Sequence[str],
    *,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    layouts: str | None = None,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] | None = None,
    cluster: str | None = None,
    cv: float = 0.05,
    slow_devices: int = 0,
    slowdown: float = 1.5,
    slow_links: int = 0,
    link_slowdown: float = 4.0,
    replicas: int | str | None = None,
    t_reduce: float = 0.0,
    lengths: str | None = None,
    padded: bool = False,
    cp_of: str | None = None,
    mbs: int | None = None,
    samples: int = 10000,
    seed: int = 0,
    dask: str | None = None,
    results: str | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
) -> Jitter:
    """Time schedules many times on uneven hardware, in the unit of the costs.

    ``options`` are the options of ``ppsim jitter`` by name.

    Raises:
        InputError: an option is refused, or no schedule supports the shape.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        model: Times and bytes of a model on --cluster, as ppsim plan has them (--help-all:
            --tp).
        tp: Tensor-parallel ranks (1).
        cp: Context-parallel ranks (1).
        ep: Expert-parallel ranks, inside dp x cp x tp (1).
        dp: Data-parallel replicas (1).
        seq: Tokens in a sequence (the model's).
        zero: ZeRO stage: data-parallel ranks shard the optimizer (1, the default), also
            gradients (2), also weights (3).
        recomputes: Recompute in every backward (none).
        layouts: Split of the layers over stages, by its name in ppsim plan: even, light-last,
            light-ends, light-last:2, light-first:3, ... (even).
        precision: Precision of the linear layers' products (bf16).
        cluster: The cluster of --model, such as dgx-h100, or a TOML file.
        cv: Noise of each op, copy, collective and message: standard deviation over mean. An op
            on all devices takes the longest of one draw for each. (default 0.05)
        slow_devices: Number of slow devices, picked at random.
        slowdown: Factor of the compute times of slow devices; their copies are not slower.
            (default 1.5)
        slow_links: Number of slow links, picked at random.
        link_slowdown: Factor of the message times on slow links. (default 4.0)
        replicas: Data-parallel replicas, and factors of the times of slow ones: 8,2=1.2 (all of
            replica 2), 8,5.3=1.5 (device 3 of replica 5), or a factor for each: 1,1,1.2. Each
            draws a distribution of --mb-scale again. The slowest is shown, as it decides the
            step.
        t_reduce: Time from the end of the slowest replica's pipeline to the end of the step:
            the collectives of replicas and the optimizer (0).
        lengths: Lengths of the sequences of every replica: csv, jsonl or parquet with columns
            replica, microbatch, tokens (or factor) and perhaps stage; or
            lognormal:MEAN:SIGMA:SEED, uniform:LEAST:MOST:SEED, zipf:EXPONENT:MOST:SEED,
            choice:512,1024:SEED of tokens. The times given are those of a mean microbatch.
        padded: Pad every sequence to the longest of its microbatch (packed).
        cp_of: Context parallelism of microbatches: csv, jsonl or parquet with columns
            microbatch, cp and perhaps replica, factor (1/cp), collective (time of the one in
            parallel with each forward, twice as long with B and I; an op takes the longer of
            both).
        mbs: Sequences in each microbatch of --model or of a distribution of --lengths (1).
        samples: Number of iterations to simulate. (default 10000)
        seed: Seed of the random numbers.
        dask: Run on the workers of a Dask scheduler (dask scheduler, dask worker ADDRESS);
            local starts both here.
        results: Keep finished work in a .parquet or .csv file, and continue from it.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
    """
    ...

def layout(
    string: str | None = None,
    *,
    devices: int | None = None,
    chunks: int | None = None,
    num_layers: int | None = None,
    mtp_num_layers: int | None = None,
    decoder_first_pipeline_num_layers: int | None = None,
    decoder_last_pipeline_num_layers: int | None = None,
    account_for_embedding_in_pipeline_split: bool = False,
    account_for_loss_in_pipeline_split: bool = False,
    layers_per_stage: int | Sequence[int] | str | None = None,
    placement: Literal["loop", "v"] | None = None,
) -> Layout:
    """Return the layers of each stage, of a layout string or of Megatron's flags.

    ``options`` are the options of ``ppsim layout`` by name.

    Raises:
        InputError: the text is not a layout, or Megatron refuses it.

    Options:
        devices: Pipeline devices, P.
        chunks: Stages per device, V.
        num_layers: Transformer layers of the model; a string must have as many.
        mtp_num_layers: MTP layers of the model (0); a string must have as many.
        decoder_first_pipeline_num_layers: Layers of the first device.
        decoder_last_pipeline_num_layers: Layers of the last device.
        account_for_embedding_in_pipeline_split: Embedding counts as a layer.
        account_for_loss_in_pipeline_split: Loss counts as a layer.
        layers_per_stage: Layers of each stage in model order: 3,4,4,3.
        placement: Placement of the stages: stage i on device i mod P (loop), or V-shaped.
    """
    ...

def memory(
    schedule: str,
    *,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    mbs: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    cap: float | str | Sequence[float | str] | None = None,
    lengths: str | None = None,
    padded: bool = False,
    cp_of: str | None = None,
    measured: str | None = None,
    serve: bool = False,
    weight_bits: int | None = None,
    kv_bits: int | None = None,
    block: int | None = None,
    breakdown: bool = False,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
) -> Memory | Any:
    """Return the memory of every device over time: in activations, or in bytes with a model or a
    profile.

    ``options`` are the options of ``ppsim memory`` by name. Returns a :class:`Memory`, with
    ``serve`` a :class:`MemoryServed`.

    Raises:
        InputError: an option or a shape is refused.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        model: Bytes of a model: of the library (ppsim list --models), TOML, or config.json with
            --seq.
        tp: Tensor-parallel ranks of the model.
        cp: Context-parallel ranks.
        ep: Expert-parallel ranks, inside dp x cp x tp.
        dp: Data-parallel replicas.
        mbs: Sequences in a microbatch.
        seq: Sequence length instead of the model's.
        zero: ZeRO stage: 1 shards optimizer states (1), 2 gradients too, 3 weights too.
        recomputes: Recompute in every backward (none).
        cap: Memory cap of a device: a number of activations of a device's 1/P share of the
            model, or of one layer with --layout; or a size such as 60GiB, which needs --model
            or --profile. A list has one cap for each device.
        lengths: Lengths of the sequences of every replica: csv, jsonl or parquet with columns
            replica, microbatch, tokens (or factor) and perhaps stage; or
            lognormal:MEAN:SIGMA:SEED, uniform:LEAST:MOST:SEED, zipf:EXPONENT:MOST:SEED,
            choice:512,1024:SEED of tokens. The times given are those of a mean microbatch.
        padded: Pad every sequence to the longest of its microbatch (packed).
        cp_of: Context parallelism of microbatches: csv, jsonl or parquet with columns
            microbatch, cp and perhaps replica, factor (1/cp), collective (time of the one in
            parallel with each forward, twice as long with B and I; an op takes the longer of
            both).
        measured: Compare with the measured peaks of the devices.
        serve: Memory of a pipeline that serves --model: weights, and the keys and values that
            fit --cap.
        weight_bits: Bits of a parameter of a layer (16); the embedding and the head have 16.
        kv_bits: Bits of a number of keys, values and states (16).
        block: Tokens of a block of keys and values (16).
        breakdown: Print the parts of each device's peak; draw those of the fullest device over
            time.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
    """
    ...

def model(
    name: str | None = None,
    *,
    cluster: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    devices: int | None = None,
    dp: int | None = None,
    chunks: int | None = None,
    mbs: int | None = None,
    microbatches: int | None = None,
    seq: int | None = None,
    schedule: str | None = None,
    layout: str | None = None,
    recompute: Literal["none", "selective", "full"] | None = None,
    zero: int | None = None,
    offload: float | None = None,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32"] | None = None,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    post_validation: bool | None = None,
    profile: str | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
) -> Shelves | ModelCost | Card:
    """Return a model's parameters, FLOPs and operators, and the costs of training it.

    A step is in seconds, memory in GiB. Without a name, the library's models are returned.

    Args:
        name: a model of the library, or a TOML or config.json file.
        options: the options of ``ppsim model`` by name.

    Raises:
        InputError: an option is refused, there is no such model, or sizes do not divide it.

    Options:
        cluster: The cluster, for times: a name such as dgx-h100, or a file that names its GPU.
        tp: Tensor-parallel ranks.
        cp: Context-parallel ranks.
        ep: Expert-parallel ranks, inside dp x cp x tp.
        devices: Pipeline devices, P.
        dp: Data-parallel replicas.
        chunks: Stages per device, V.
        mbs: Sequences in a microbatch.
        microbatches: Microbatches in a step.
        seq: Sequence length instead of the model's.
        schedule: The schedule: 1f1b, or interleaved with chunks, by default.
        layout: The layers of each stage: Et*3|(tt|)*14,tL.
        recompute: Parts of the forward that run again before the backward.
        zero: ZeRO stage: data-parallel ranks divide the optimizer (1), also gradients (2), also
            weights (3).
        offload: Share of activations to offload to the host until their backward.
        precision: Precision of the linear layers' products.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        post_validation: A device's optimizer step waits for no other device, as zero-bubble's
            (the software's).
        profile: A profile of ppsim calibrate: measured op times instead of the efficiency
            curve's.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
    """
    ...

def optimize(
    *,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    placement: Literal["linear", "v", "loop", "auto"] = 'linear',
    cap: float | Sequence[float] | str | None = None,
    after_i: float = 1.0,
    objective: str = 'span',
    front: bool = False,
    time_limit: float = 30.0,
    seed: int = 0,
    dask: str | None = None,
    results: str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
    gantt: bool = True,
) -> Optimized:
    """Find the best schedule for given costs and memory.

    ``options`` are the options of ``ppsim optimize`` by name.

    Returns:
        The best schedule found within ``time_limit`` seconds, and its bound; with ``front`` a
            :class:`Front`.

    Raises:
        InputError: an option, a size or costs are refused.
        PpsimError: no schedule fits the cap, or none was timed before the time ended.

    Options:
        devices: Pipeline devices, P.
        chunks: Stages per device, V (2 for v and loop).
        microbatches: Microbatches, M.
        placement: The placement of stages on devices; auto tries all. (default linear)
        cap: Memory cap of a device: a number of activations of a device's 1/P share of the
            model, or of one layer with --layout; a list has one number for each device.
        after_i: Share of an activation that is still held between I and W. (default 1.0)
        objective: The time to minimize: the span, which is the longest time from a device's
            first start to its last end, or the makespan. (default span)
        front: Find the best schedule for each cap, the Pareto front of time and memory; -o
            draws it.
        time_limit: Seconds of the search, which ends earlier with a proof. The first run on a
            machine compiles for up to 20 s more. (default 30.0)
        seed: Seed of the random numbers. The same seed and number of cores give the same
            answer, unless the time limit ends the search.
        dask: Run on the workers of a Dask scheduler (dask scheduler, dask worker ADDRESS);
            local starts both here.
        results: Keep finished work in a .parquet or .csv file, and continue from it.
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
        gantt: Draw the chart in the terminal (on). (default True)
    """
    ...

def partition(
    schedule: str,
    *,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    num_layers: int | None = None,
    mtp_num_layers: int = 0,
    min_layers: int = 0,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    mbs: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    cap: float | str | None = None,
    serve: Literal["tokens", "period"] | None = None,
    weight_bits: int | None = None,
    kv_bits: int | None = None,
    block: int | None = None,
    time_limit: float = 60.0,
) -> Partitioned | Any:
    """Find the split of layers over stages with the least makespan.

    ``options`` are the options of ``ppsim partition`` by name. Returns a :class:`Partitioned`, with
    ``serve`` a :class:`ppsim.questions.optimum.partition_served.ServedSplit`.

    Raises:
        InputError: an option or a shape is refused, or the number of layers is not clear.
        PpsimError: no split was found that fits the cap, or none was timed before the time ended.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        num_layers: Number of transformer layers, if --t-layer is one time.
        mtp_num_layers: MTP layers, on the last stage.
        min_layers: Minimum number of layers of a stage (0: a stage may have only the embedding,
            only the head, or nothing).
        model: Bytes for --cap of a model: of the library (ppsim list --models), TOML, or
            config.json with --seq.
        tp: Tensor-parallel ranks of the model.
        cp: Context-parallel ranks.
        ep: Expert-parallel ranks, inside dp x cp x tp.
        dp: Data-parallel replicas.
        mbs: Sequences in a microbatch.
        seq: Sequence length instead of the model's.
        zero: ZeRO stage: 1 shards optimizer states (1), 2 gradients too, 3 weights too.
        recomputes: Recompute in every backward (none).
        cap: Memory cap of a device: a number of activations of one layer, or a size such as
            80GiB, which needs --model or --profile.
        serve: Split for a pipeline that serves --model (decode, forward-only): for the most
            tokens of keys and values in --cap, or for the shortest period; ties are decided by
            the other.
        weight_bits: Bits of a parameter of a layer (16); the embedding and the head have 16.
        kv_bits: Bits of a number of keys, values and states (16).
        block: Tokens of a block of keys and values (16).
        time_limit: Seconds to search; Ctrl-C ends it earlier and keeps the best. (default 60.0)
    """
    ...

def plan(
    model: str,
    cluster: str,
    *,
    gpus: int | None = None,
    gbs: int | None = None,
    tp: int | Sequence[int] | str | None = None,
    cp: int | Sequence[int] | str | None = None,
    ep: int | Sequence[int] | str | None = None,
    pp: int | Sequence[int] | str | None = None,
    dp: int | Sequence[int] | str | None = None,
    vp: int | Sequence[int] | str | None = None,
    mbs: int | Sequence[int] | str | None = None,
    schedules: str | Sequence[str] | None = None,
    recomputes: str | Sequence[str] | None = None,
    recompute_modules: str | Sequence[str] | None = None,
    layouts: str | Sequence[str] | None = None,
    zero: int | Sequence[int] | str | None = None,
    offload: float | Sequence[float] | str = 0.0,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] = 'bf16',
    seq: int | None = None,
    cap: str | None = None,
    profile: str | None = None,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    post_validation: bool | None = None,
    any: bool = False,
    top: int = 5,
    front: bool = False,
    flags: Literal["megatron", "torchtitan"] | None = None,
    ranks: bool = False,
    anchor: str | Sequence[str] = (),
    against: str | None = None,
    improve: bool = False,
    dask: str | None = None,
    results: str | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
) -> Plans:
    """Return the fastest plans for training a model within the memory of a number of GPUs.

    Steps are in seconds, memory is in bytes.

    Args:
        model: a name of the library, or a file.
        cluster: a name of the library, or a file.
        options: the options of ``ppsim plan`` by name, at least ``gpus`` and ``gbs`` (sequences in
            a step); lists of names may be Python lists.

    Raises:
        InputError: an option is refused, or no plan has these sizes.
        PpsimError: no plan fits the memory.

    Options:
        gpus: Number of GPUs (default: all of a cluster that has several kinds of nodes).
        gbs: Global batch size: sequences in a step.
        tp: Tensor-parallel ranks: 4,8 (default: powers of 2 inside a node).
        cp: Context-parallel ranks (default: 1 to 4; from 8,192 tokens on 1 to 16).
        ep: Expert-parallel ranks (default: all that divide the experts).
        pp: Pipeline devices (default: all that divide the GPUs).
        dp: Data-parallel replicas (default: all that divide the GPUs).
        vp: Chunks of the model on each pipeline device (default: 1 to 12).
        mbs: Sequences in a microbatch (default: 1,2,4,8,16).
        schedules: Schedules to try: 1f1b,zb-v (default: all of ppsim list that can be the
            fastest).
        recomputes: Kinds of recompute to try, of none,selective,full (default: all).
        recompute_modules: Modules that selective recompute runs again, of
            core_attn,layernorm,moe_act,mla_up_proj,mlp,shared_experts,moe (default: core_attn;
            for experts with fused kernels layernorm,moe_act,mla_up_proj).
        layouts: Splits of the layers over stages to try, of even,light-last,light-ends,by-
            speed,by-speed-reversed; for a head that takes as long as several layers light-
            last:2 to light-last:8, so many fewer on the last stage; for an encoder light-
            first:1 to light-first:8 (default: all).
        zero: ZeRO stages to try, of 0,1,2,3 (default: 1; without a pipeline also 3).
        offload: Shares of activations to offload to the host: 0,0.5,1 (default: 0).
        precision: Precision of the linear layers' products. (default bf16)
        seq: Tokens in a sequence (default: the model's).
        cap: Usable memory of a GPU: 75GiB (default: 94% of its memory).
        profile: A profile of ppsim calibrate: measured op times instead of the efficiency
            curve's.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        post_validation: A device's optimizer step waits for no other device, as zero-bubble's
            (the software's).
        any: Also try schedules, kinds of parallelism and ZeRO stages that the software lacks.
        top: Number of plans to print, without near copies. (default 5)
        front: Also print plans that need less memory: the Pareto front of time and memory.
        flags: Plan for this framework; print the best plan as launch flags, or as TOML.
        ranks: Print the nodes of the best plan's ranks, and the links that they use.
        anchor: Correct predictions by runs that you measured: a table as for --against, or a
            profile of ppsim calibrate.
        against: Predict the runs of a table (json, csv, parquet) instead of planning; its rows
            may also name your --model and --cluster.
        improve: With --against: also plan each run, and show the changes of the plan.
        dask: Run on the workers of a Dask scheduler (dask scheduler, dask worker ADDRESS);
            local starts both here.
        results: Keep finished work in a .parquet or .csv file, and continue from it.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
    """
    ...

def read(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    schedule: str = '',
    iteration: str = 'all',
    unit: Literal["s", "ms", "us", "ns"] | None = None,
) -> ObservedRun | Any:
    """Return the facts of a real run, in the unit of its files, or of a schedule's file.

    Args:
        files: a folder, a file, or the files of all devices.
        options: the options of ``ppsim read`` by name: ``schedule``, ``iteration``, ``unit``.

    Raises:
        InputError: an option is refused, or the files contain neither a whole run nor a schedule.

    Options:
        schedule: The run to show, of a record of several.
        iteration: The iteration of a real run: a number or median; where medians over several
            are printed, all or a range such as 4-20. (default all)
        unit: Unit of the times of a table of ops, if neither a column's name nor a header
            states it.
    """
    ...

def run(
    schedule: str | os.PathLike[str] | Schedule,
    *,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    layouts: str | None = None,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    title: str = '',
    palette: Literal["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"] = 'default',
    base: int = 0,
    labels: Literal["auto", "mb", "op", "none"] = 'auto',
    font_size: float | None = None,
    note: str | Sequence[str] = (),
    window: tuple[float, float] | str | None = None,
    until: float = 0.0,
    fold: bool = False,
    highlight: str | None = None,
    phases: bool = False,
    per_device: bool = False,
    cap: float | str | Sequence[float | str] | None = None,
    p2p: Literal["latency", "overlap", "blocking", "batched"] | None = None,
    order: str | None = None,
    channel: Literal["message", "direction", "pair", "group"] | None = None,
    cluster: str | None = None,
    message: str | None = None,
    unshard: int | None = None,
    reduce_grad: bool = False,
    shapes: Literal["exchange"] | None = None,
    t_shape: float | None = None,
    blank: bool = False,
    lowered: bool = False,
    merge_bw: bool = False,
    gantt: bool = True,
    lanes: bool = False,
    memory: bool | None = None,
    grid: bool = False,
    reorder: bool = False,
    replicas: int | str | None = None,
    t_reduce: float = 0.0,
    lengths: str | None = None,
    padded: bool = False,
    cp_of: str | None = None,
    mbs: int | None = None,
    deal: bool = False,
    across: bool = False,
    max_tokens: int | None = None,
    deal_for: float = 2.0,
) -> Run | Any:
    """Time one schedule, in the unit of the costs (t_F by default).

    Args:
        schedule: a name such as ``1f1b`` or ``interleaved:2``, a file, or a schedule object.
        options: the options of ``ppsim run`` by name: ``devices``, ``microbatches``, ``tf``,
            ``p2p``, ...

    Returns:
        A :class:`Run`, with ``grid`` a :class:`Grid`.

    Raises:
        InputError: an option or a shape is refused.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        model: Times and bytes of a model on --cluster, as ppsim plan has them (--help-all:
            --tp).
        tp: Tensor-parallel ranks (1).
        cp: Context-parallel ranks (1).
        ep: Expert-parallel ranks, inside dp x cp x tp (1).
        dp: Data-parallel replicas (1).
        seq: Tokens in a sequence (the model's).
        zero: ZeRO stage: data-parallel ranks shard the optimizer (1, the default), also
            gradients (2), also weights (3).
        recomputes: Recompute in every backward (none).
        layouts: Split of the layers over stages, by its name in ppsim plan: even, light-last,
            light-ends, light-last:2, light-first:3, ... (even).
        precision: Precision of the linear layers' products (bf16).
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        title: Title of the figure or page.
        palette: Colours in files: default and okabe-ito for colour-blind readers, default and
            mono for grey print, others as in papers. (default default)
        base: Number of the first device, stage, microbatch.
        labels: Text in the cells of figures: the microbatch (auto adds the chunk if there are
            three or more), the op, or none; every:N numbers every N-th microbatch. (default
            auto)
        font_size: Size of texts in figures, points (6 to 6.5).
        note: Write a text on a figure's first chart, at a time and device: 'W fills
            here@12:dev2'. If it would cover ops, it is above them, with a line to its place;
            repeatable.
        window: Show the time from A to B only, in the unit of the costs.
        until: End of the time axis of figures, so that several files have the same axis.
        fold: Draw the repeating middle only once, with its number of repetitions.
        highlight: Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path,
            and dim the rest.
        phases: Mark warm-up, steady phase and cool-down in figures.
        per_device: Write idle share and peak next to every row of figures.
        cap: Memory cap of a device: a number of activations of a device's 1/P share of the
            model, or of one layer with --layout; or a size such as 60GiB, which needs
            --profile, or --model with --cluster. A list has one cap for each device.
        p2p: Simulate sends and receives as ops: in parallel with compute, blocking, or batched.
        order: Order of sends and receives: early (default; a lowered file states its order),
            even-first, torch (default of --lowered), torch-2.15, deferred, prefetch:K. The last
            two may deadlock if both directions of two devices share a queue (ppsim check
            --queues pair); the others never do.
        channel: With --p2p overlap, one message at a time travels in each direction of two
            devices (default), on a pair of devices, or from and to a device (group); message:
            no limit. check --queues calls the first three edge, pair and rank.
        cluster: Simulate messages on the links of a cluster, such as dgx-h100, or of a TOML
            file, with host costs.
        message: Size of a message on the cluster, such as 4MiB.
        unshard: FSDP: number of stages to gather ahead (0; torch uses 3), with the times of the
            cluster's [fsdp].
        reduce_grad: FSDP: reduce each stage's gradients after its last backward.
        shapes: Send the shape of each message before it and wait for it on both sides, as
            Megatron does with variable_seq_lengths; with --p2p batched (the default then) or
            blocking.
        t_shape: Time that the host waits between a shape and its message, added to the latency
            of the shape (0).
        blank: Write a page with empty rows, for its reader to place the ops.
        lowered: Write csv with sends and receives (torch's compute_comms).
        merge_bw: Merge I and W of a microbatch into one B if W directly follows I.
        gantt: Draw the chart in the terminal (on). (default True)
        lanes: Show copies and collectives in a line below each device of the chart.
        memory: Draw the memory of the devices below figures (on, except in style paper).
        grid: Show the ops on integer time slots, empty ones where a device must wait; -o writes
            csv or json.
        reorder: Search for a faster order of unequal microbatches (--mb-scale).
        replicas: Data-parallel replicas, and factors of the times of slow ones: 8,2=1.2 (all of
            replica 2), 8,5.3=1.5 (device 3 of replica 5), or a factor for each: 1,1,1.2. Each
            draws a distribution of --mb-scale again. The slowest is shown, as it decides the
            step.
        t_reduce: Time from the end of the slowest replica's pipeline to the end of the step:
            the collectives of replicas and the optimizer (0).
        lengths: Lengths of the sequences of every replica: csv, jsonl or parquet with columns
            replica, microbatch, tokens (or factor) and perhaps stage; or
            lognormal:MEAN:SIGMA:SEED, uniform:LEAST:MOST:SEED, zipf:EXPONENT:MOST:SEED,
            choice:512,1024:SEED of tokens. The times given are those of a mean microbatch.
        padded: Pad every sequence to the longest of its microbatch (packed).
        cp_of: Context parallelism of microbatches: csv, jsonl or parquet with columns
            microbatch, cp and perhaps replica, factor (1/cp), collective (time of the one in
            parallel with each forward, twice as long with B and I; an op takes the longer of
            both).
        mbs: Sequences in each microbatch of --model or of a distribution of --lengths (1).
        deal: Deal the sequences of --lengths again over as many microbatches of their replica;
            the step never gets longer. -o FILE.csv writes the assignment.
        across: Deal sequences to other replicas too.
        max_tokens: Pack the sequences again into microbatches of at most this many tokens,
            padding included; their number is the one with the shortest step.
        deal_for: Time limit of the search for a dealing, in seconds. (default 2.0)
    """
    ...

def sweep(
    schedules: Sequence[str],
    *,
    stages: int | Sequence[int] | str | None = None,
    devices: int | Sequence[int] | str | None = None,
    chunks: int | Sequence[int] | str | None = None,
    microbatches: int | Sequence[int] | str | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    metric: Literal["period", "period_per_mb", "round_bubble", "makespan_per_mb", "makespan", "gap", "bubble_rate", "bubble_over_ideal", "bubble_rate_span", "peak"] = 'bubble_rate',
    tf: float | Sequence[float] | str | None = None,
    tb: float | Sequence[float] | str | None = None,
    ti: float | Sequence[float] | str | None = None,
    tw: float | Sequence[float] | str | None = None,
    tfb: float | Sequence[float] | str | None = None,
    tr: float | Sequence[float] | str | None = None,
    offload: bool | float | str | None = None,
    t_offload: float | Sequence[float] | str | None = None,
    t_reload: float | Sequence[float] | str | None = None,
    t_evict: float | Sequence[float] | str | None = None,
    host_link: str | None = None,
    host_link_shared: int | None = None,
    te: float | Sequence[float] | str | None = None,
    ts: float | Sequence[float] | str | None = None,
    tt: float | Sequence[float] | str | None = None,
    td: float | Sequence[float] | str | None = None,
    tl: float | Sequence[float] | str | None = None,
    tgf: float | Sequence[float] | str | None = None,
    tgb: float | Sequence[float] | str | None = None,
    t_collective: float | None = None,
    comm: float | None = None,
    link: str | Sequence[str] = (),
    steps: int | None = None,
    t_optimizer: float | Sequence[float] | str | None = None,
    post_validation: bool = False,
    t_gather: float | Sequence[float] | str | None = None,
    t_reduce_grad: float | Sequence[float] | str | None = None,
    feedback: float | None = None,
    tokens: int | None = None,
    chunked: int | None = None,
    chunk: float | str | None = None,
    law: str | None = None,
    page: int | None = None,
    mb_scale: str | Sequence[float | str] = (),
    slice_scale: str | Sequence[float | str] = (),
    speed: float | Sequence[float] | str | None = None,
    cost_per: Literal["device", "stage"] | None = None,
    layout: str | None = None,
    t_layer: float | Sequence[float] | str | None = None,
    t_embedding: float | None = None,
    t_head: float | None = None,
    t_mtp: float | None = None,
    b_over_f: float | None = None,
    unit: str | None = None,
    profile: str | None = None,
    segments: str | None = None,
    encoder: str | None = None,
    costs: Prices | None = None,
    recompute: bool | str = False,
    software: str | None = None,
    dispatch: Literal["alltoall", "deepep", "hybridep"] | None = None,
    dispatch_bytes: int | None = None,
    expert_load: float | None = None,
    overlap_a2a: bool | None = None,
    cuda_graphs: Literal["none", "partial", "full"] | None = None,
    fused_experts: bool | None = None,
    overlap_tp: bool | None = None,
    overlap_dp: bool | None = None,
    optimizer: Literal["adamw", "muon"] | None = None,
    gradient_precision: Literal["bf16", "fp32"] | None = None,
    moment_precision: Literal["bf16", "fp32"] | None = None,
    narrow_activation: bool | None = None,
    narrow_weights: bool | None = None,
    rank_order: str | None = None,
    model: str | None = None,
    tp: int | None = None,
    cp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    seq: int | None = None,
    zero: int | None = None,
    recomputes: Literal["none", "selective", "full"] | None = None,
    layouts: str | None = None,
    precision: Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4"] | None = None,
    mbs: int | None = None,
    p2p: Literal["latency", "overlap", "blocking", "batched"] | None = None,
    order: str | None = None,
    channel: Literal["message", "direction", "pair", "group"] | None = None,
    cluster: str | None = None,
    message: str | None = None,
    unshard: int | None = None,
    reduce_grad: bool = False,
    shapes: Literal["exchange"] | None = None,
    t_shape: float | None = None,
    cap: float | str | Sequence[float | str] | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
    heat: bool = False,
    dask: str | None = None,
    results: str | None = None,
) -> Shapes:
    """Return the rows of ``ppsim sweep --json``, for pandas, polars or pyarrow.

    A row is a schedule in a shape. If the schedule refuses the shape, ``applies`` is False and
    ``reason`` says why.

    Args:
        schedules: names or files.
        options: the options of ``ppsim sweep`` by name; ``devices``, ``microbatches`` and
            ``chunks`` may be lists.

    Raises:
        InputError: an option is refused, or no shape of the grid works.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        metric: The metric of the table. (default bubble_rate)
        tf: Time of a forward (1), or one per stage: 1,1.3*2,1 (2*3 is 2,2,2); in ms: --unit ms.
        tb: Time of a full backward (ti + tw).
        ti: Time of a backward for the input (1).
        tw: Time of a backward for the weights (1).
        tfb: Time of a fused pair of F and B (tf + tb).
        tr: Time of a recompute (tf).
        offload: Copy activations to the host after their forward and back before their
            backward: those of N chunks of every device, of all (also without a value), or of a
            share.
        t_offload: Time of a copy of an activation to the host (0).
        t_reload: Time of a copy back from the host (0).
        t_evict: Time of a copy of an activation to another device, and of one back (0).
        host_link: Bandwidth of a device's link to its host in each direction, such as 55GB/s:
            gives copies their times; needs bytes of --profile or --model.
        host_link_shared: N devices share a link to their host, which carries one copy at a time
            in each direction (1).
        te: Time of a device's share of the input embedding, or one per device (0).
        ts: Time of a device's share of the output layer, or one per device (0).
        tt: Time of the backward of the output layer's share, or one per device (0).
        td: Time of the backward of the embedding's share, or one per device (0).
        tl: Time of the loss on the last device, in schedules that have it as an op (0).
        tgf: Time of a part of the model that all devices run before a stage (1f1b-plus), or one
            per stage (0).
        tgb: Time of the backward of that part, or one per stage (0).
        t_collective: Time of a collective over all devices (0).
        comm: Latency of a message between two devices (0).
        link: Latency of one link that differs, and its bandwidth: 6-7=30, or 6-7=0.1,25GB/s;
            A>B for one direction; repeatable.
        steps: Number of rounds: decode (4) makes a token of every batch in each round, forward-
            only runs all its microbatches again, and a training schedule runs a step with its
            optimizer step (1).
        t_optimizer: Time of the optimizer step that ends a training step, or one per device
            (0).
        post_validation: Each device runs its optimizer step once its gradients are complete,
            without waiting for other devices.
        t_gather: FSDP: time to gather a stage's weights at the start of a step, in order of use
            and in parallel with compute.
        t_reduce_grad: Time to reduce a stage's gradients after its last backward of a step, in
            parallel with compute.
        feedback: Time until a step's result is back at the first stage (the latency of that
            link), for decode.
        tokens: Tokens of a microbatch, or of a batch in flight in each step: the rate is in
            tokens.
        chunked: Run the prefill of a prompt of this many tokens in chunks, each a microbatch of
            forward-only, with the times of --law; in --mb chunks, or in the best number of
            them.
        chunk: Tokens of a chunk; or equal (default): sizes that take equal times, in the best
            number of chunks.
        law: Time of x tokens after a prefix of L tokens: C + G L + B x + A (2 L x + x^2), or a
            table of measured chunks (csv, parquet: tokens, time, prefix), to which the law is
            fitted. C,B,A leaves G out. With --lengths: of a sequence, without a prefix, in any
            unit (0,1,0; with --profile, the law of its model). With --chunked: of a chunk on
            one stage, in ms; in ppsim sweep, on a stage of the fewest devices.
        page: Tokens of a page: sizes of all chunks but the last are multiples of it (64).
        mb_scale: Factors of the times of microbatches: 1,1.3,0.8,..., a file, or
            lognormal:0.2:SEED (uniform, normal); with 0 a microbatch takes no time; W=... is
            for one kind of op; repeatable. Schedules with slices also accept a factor for each
            slice. For decode a shorter list repeats.
        slice_scale: Factors of the times of a sequence's slices: 0.7,0.9,1.1,1.3, a file, or
            attention:0.3 (attention's share of a forward; without a number, the share of the
            model of --profile); W=... is for one kind of op; repeatable.
        speed: Speed of each device: op times are divided by it: 1,1,0.9,1.
        cost_per: Times are for a device's 1/P share of the model (device, the default) or for
            each stage as given.
        layout: Layers of each stage, which give op times: 'Et*3|(tt|)*29,m|L' (ppsim layout).
        t_layer: Forward time of a layer of the layout (1), or one for each.
        t_embedding: Forward time of the layout's embedding, E (0).
        t_head: Forward time of the layout's head and its loss, L (0).
        t_mtp: Forward time of an MTP layer of the layout, m (a layer's).
        b_over_f: Time of a layer's full backward over its forward's (2); I and W take half.
        unit: Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times.
        profile: Measured costs, in ms, instead of given ones (ppsim calibrate).
        segments: Work of each op on the compute and the communication stream (TOML); times of
            ops and of pairs follow from it.
        encoder: Put the forwards and backwards of an encoder into the bubbles of the pipeline
            (TOML: their times).
        costs: Times of all ops: Costs.of(F=1, B=2, comm=0.1), or Costs.of a function.
        recompute: Run forwards again (R) before their backward, as soon as their device is
            free: all (full, and without a value), those of the first N microbatches, all but
            the first N of each window of forwards in flight, the first N layers of each stage,
            or modules (core_attn, mlp, ...) of every layer; or one per stage: full*2,none. A
            part takes its layers' time (of a layout, model or profile) or --tr. For recompute
            inside the backward, which waits for the gradient first, give a longer --tb instead.
        software: Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan,
            deepspeed ... (megatron-core).
        dispatch: Dispatch of tokens to experts: alltoall, or once per node and rank: deepep,
            hybridep (the software's).
        dispatch_bytes: Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3
            (the software's, 2).
        expert_load: Tokens of the busiest expert-parallel rank over the mean (1).
        overlap_a2a: Overlap all-to-all with another microbatch's compute (the software's).
        cuda_graphs: Part of an expert layer that runs as CUDA graphs (the software's).
        fused_experts: Fuse routing and casts into the experts' products (the software's).
        overlap_tp: Overlap tensor-parallel messages with matrix products, as async TP (the
            software's).
        overlap_dp: Overlap the reduction of gradients, and FSDP's gathers of weights, with
            compute (the software's).
        optimizer: adamw, or muon for the matrices of layers: one moment instead of two,
            orthogonalized by Newton-Schulz.
        gradient_precision: Precision of gradients that are summed and reduced (the software's).
        moment_precision: Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the
            software's, fp32).
        narrow_activation: In FP8 training, keep the inputs of activation functions in FP8, as
            those of linear layers (the software's, no).
        narrow_weights: Hold and gather weights in the precision of their products (the
            software's).
        rank_order: Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with
            pipelines inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also
            gives sizes.
        model: Times and bytes of a model on --cluster, as ppsim plan has them (--help-all:
            --tp).
        tp: Tensor-parallel ranks (1).
        cp: Context-parallel ranks (1).
        ep: Expert-parallel ranks, inside dp x cp x tp (1).
        dp: Data-parallel replicas (1).
        seq: Tokens in a sequence (the model's).
        zero: ZeRO stage: data-parallel ranks shard the optimizer (1, the default), also
            gradients (2), also weights (3).
        recomputes: Recompute in every backward (none).
        layouts: Split of the layers over stages, by its name in ppsim plan: even, light-last,
            light-ends, light-last:2, light-first:3, ... (even).
        precision: Precision of the linear layers' products (bf16).
        mbs: Sequences in each microbatch of --model (1).
        p2p: Simulate sends and receives as ops: in parallel with compute, blocking, or batched.
        order: Order of sends and receives: early (default; a lowered file states its order),
            even-first, torch (default of --lowered), torch-2.15, deferred, prefetch:K. The last
            two may deadlock if both directions of two devices share a queue (ppsim check
            --queues pair); the others never do.
        channel: With --p2p overlap, one message at a time travels in each direction of two
            devices (default), on a pair of devices, or from and to a device (group); message:
            no limit. check --queues calls the first three edge, pair and rank.
        cluster: Simulate messages on the links of a cluster, such as dgx-h100, or of a TOML
            file, with host costs.
        message: Size of a message on the cluster, such as 4MiB.
        unshard: FSDP: number of stages to gather ahead (0; torch uses 3), with the times of the
            cluster's [fsdp].
        reduce_grad: FSDP: reduce each stage's gradients after its last backward.
        shapes: Send the shape of each message before it and wait for it on both sides, as
            Megatron does with variable_seq_lengths; with --p2p batched (the default then) or
            blocking.
        t_shape: Time that the host waits between a shape and its message, added to the latency
            of the shape (0).
        cap: Memory cap of a device: a number of activations of a device's 1/P share of the
            model, or of one layer with --layout; or a size such as 60GiB, which needs
            --profile, or --model with --cluster. A list has one cap for each device.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
        heat: Draw --metric over the grid as a heat map, instead of time against memory.
        dask: Run on the workers of a Dask scheduler (dask scheduler, dask worker ADDRESS);
            local starts both here.
        results: Keep finished work in a .parquet or .csv file, and continue from it.
    """
    ...

def validate(
    schedules: str | Sequence[str] = (),
    *,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    microbatches: int | None = None,
    group_size: int | None = None,
    rule: Literal["torch", "megatron"] | None = None,
    limit: int | None = None,
    after_i: float | None = None,
    slices: int | None = None,
    placement: Literal["loop", "v"] | None = None,
    everywhere: int | Sequence[int] | str | None = None,
    ops: Literal["compute", "timed"] = 'compute',
    runner: Literal["own", "torch", "partitioned"] = 'own',
    device: Literal["auto", "cpu", "cuda"] = 'auto',
    tf: float = 5.0,
    ti: float = 5.0,
    tw: float = 5.0,
    t_other: float = 1.0,
    message: int = 65536,
    hidden: int = 256,
    heads: int = 4,
    seq: int = 64,
    microbatch_size: int = 4,
    layers: int = 2,
    vocab: int = 1000,
    repeats: int = 7,
    warm_up: int = 2,
    real_time: bool = False,
    module: str | None = None,
    calibrate_on: str | Sequence[str] = (),
    only: str | Sequence[str] = (),
    tolerance: float | str = 0.1,
    record: str | None = None,
    from_record: str | None = None,
    trace: str | None = None,
    iteration: str = 'median',
    unit: Literal["s", "ms", "us", "ns"] | None = None,
    profile: str | None = None,
    format: str | None = None,
    style: Literal["screen", "paper"] | None = None,
    width: float = 6.75,
) -> Validated | ValidatedJob:
    """Run schedules for real, one process per device, and compare times (in ms) with predictions.

    Args:
        schedules: names or files; none with ``from_record`` or ``trace``.
        options: the options of ``ppsim validate`` by name: ``devices``, ``microbatches``, ``ops``,
            ``record``, ...

    Raises:
        InputError: an option or a schedule is refused, or a record or a trace cannot be used.
        MissingDependency: torch is not installed, or a GPU is asked for and there is none.
        PpsimError: a process of the run died or hung.

    Options:
        stages: Stages of the model, S.
        devices: Pipeline devices, P.
        chunks: Stages per device, V; any two of S, P and V give the third.
        microbatches: Microbatches, M.
        group_size: Microbatches per group of interleaved schedules, N.
        rule: Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.
        limit: Most activations of one stage on a device, for schedules with a limit; with two
            stages per device, --limit 8 is --cap 4.
        after_i: Share of an activation that is held from I until W, for zb-auto.
        slices: Slices of each sequence, K, for seq1f1b and similar schedules.
        placement: Placement of several chunks in forward-only and decode: stage s on device s
            mod P (loop), or V-shaped.
        everywhere: Stages before which a part of the model runs on all devices at once, for
            1f1b-plus: such as 0,4 (0).
        ops: The ops: transformer stages that compute, or timed ops, which only wait for their
            time (allows more devices than cores). (default compute)
        runner: The runner: ppsim's own; torch.distributed.pipelining with ppsim's CSV; or
            ppsim's own with all devices on partitions of one GPU. (default own)
        device: The devices that compute; auto: GPUs if there is one for each device. (default
            auto)
        tf: Timed ops: ms of a forward per device. (default 5.0)
        ti: Timed ops: ms of a backward for the input. (default 5.0)
        tw: Timed ops: ms of a backward for the weights. (default 5.0)
        t_other: Timed ops: ms of every op other than F, B, I and W, such as a copy or
            collective. (default 1.0)
        message: Timed ops: bytes of a message. (default 65536)
        hidden: Width of the model. (default 256)
        heads: Attention heads; they divide the width. (default 4)
        seq: Tokens of one sample. (default 64)
        microbatch_size: Samples of a microbatch. (default 4)
        layers: Layers of each device. (default 2)
        vocab: Vocabulary; 0 leaves embedding and head out. (default 1000)
        repeats: Measured repetitions. (default 7)
        warm_up: Repetitions before those, not counted. (default 2)
        real_time: Ask the system for real-time priority while a schedule runs.
        module: A function of yours that makes the stages: stage(stage, stages, device) returns
            a torch module and an example input (above).
        calibrate_on: Derive costs from these runs only (default: timed ops from the first run,
            else from all other runs).
        only: Draw only these schedules in -o files; repeatable (default: all).
        tolerance: Largest error that passes (10%). (default 0.1)
        record: Write the raw measurements as JSON; .gz compresses them.
        from_record: Read the measurements from a record instead of running.
        trace: Read the measurements from a run made elsewhere: see ppsim read.
        iteration: The step of --trace: a number, a range, median or all. (default median)
        unit: Unit of the times of a table of ops, if neither a column's name nor a header
            states it.
        profile: A profile of ppsim calibrate: times of ops and messages measured alone.
        format: Format of every -o instead of its suffix's, such as svg.
        style: Style of figures (default: screen, and paper for pdf).
        width: Figure width, inches. (default 6.75)
    """
    ...
