"""The library's machines: what is listed, clusters in words, links by name, GPUs without 16-bit
brain floats.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.engine.detailed.cluster import Link, network
from ppsim.engine.detailed.links import parse_link
from ppsim.engine.detailed.named_links import NAMED
from ppsim.errors import InputError
from ppsim.workload.cost.costs import step_time
from ppsim.workload.hardware.efficiency import fitted
from ppsim.workload.hardware.hardware import (
    FAMILIES,
    Tflops,
    gpus,
    machines,
    read_cluster,
    read_gpu,
    read_machine,
)
from ppsim.workload.model.model import library, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.software import softwares
from tests.commands import invoke, refused


def test_all_of_the_library_is_listed():
    listed = json.loads(
        invoke("list", "--models", "--clusters", "--gpus", "--software", "--links", "--json").stdout
    )
    shelves = {shelf: rows for shelf, rows in listed.items() if isinstance(rows, list)}
    names = {shelf: {next(iter(row.values())) for row in rows} for shelf, rows in shelves.items()}
    assert names == {
        "models": set(library()),
        "clusters": set(machines()),
        "gpus": set(gpus()),
        "software": set(softwares()),
        "links": set(NAMED),
    }
    assert "h800" in invoke("list", "--clusters").stdout
    assert "1f1b" in invoke("list").stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dgx-h100", "shared.nics_per_node     8"),
        ("h100", "hbm_gb_per_s             3350"),
        ("primus", "zb-v"),
        ("h100x8,nvlink4,ethernet-25", "inter.gb_per_s           3.125"),
        ("gallery/cluster.toml", "intra.gb_per_s"),
        ("megatron-bridge@26.06", "dispatch                 hybridep"),
        ("gallery/two-nodes.toml", "devices_per_node"),
        ("ppsim/workload/library/gpus/h20.toml", "memory_gib               96"),
    ],
)
def test_a_name_of_the_library_shows_its_fields(name, text):
    assert text in invoke("model", name).stdout
    assert json.loads(invoke("model", name, "--json").stdout)["schema"] == "ppsim.card/1"


def test_a_cluster_in_words_is_that_of_a_file():
    """A card for each GPU, or one for a node where it is Ethernet, or as many as are said."""
    words, named = read_machine("h100x8,nvlink4,ib-400"), read_machine("dgx-h100")
    assert (words.intra_bytes_per_s, words.inter_bytes_per_s, words.per_node, words.gpu) == (
        named.intra_bytes_per_s,
        named.inter_bytes_per_s,
        named.per_node,
        named.gpu,
    )
    assert read_machine("a100-80gbx8,nvlink3,ethernet-25").inter_bytes_per_s == pytest.approx(
        25e9 / 8 / 8
    )
    assert read_machine("A100-80GBx4, nvlink3, ib-200x2").inter_bytes_per_s == pytest.approx(
        25e9 * 2 / 4
    )
    assert read_cluster("rtx-4090x2,pcie4,ethernet-10").intra.gb_per_s == 25


@pytest.mark.parametrize(
    "words",
    [
        "h100x8,nvlink4,ib-400x8",
        "8xh100,nvlink4,ib-400",
        "h100x8,ib-400,nvlink4",
        "nvlink4,h100x8,ib-400x8",
        "ib-400, 8xH100, nvlink4",
    ],
)
def test_the_order_of_words_does_not_matter(words):
    assert read_cluster(words) == read_cluster("h100x8,nvlink4,ib-400")


def test_two_links_of_one_kind_are_within_and_between_nodes_in_their_order():
    """As in a rack whose nodes are joined by NVLink."""
    found = read_cluster("gb200x4,nvlink5,pcie5")
    assert found.inter
    assert (found.intra.gb_per_s, found.inter.gb_per_s) == (900, 50)


@pytest.mark.parametrize(
    ("words", "gpus", "within"),
    [("h100x8,nvlink4", 8, 450), ("pcie4,2xrtx-4090", 2, 25), ("h100x1", 1, None)],
)
def test_words_without_a_card_are_one_node(words, gpus, within):
    """A plan takes all of it; more GPUs than it has are refused, with what is missing."""
    machine = read_machine(words)
    assert (machine.per_node, machine.gpus, machine.cluster.intra.gb_per_s) == (gpus, gpus, within)
    plan = ("plan", "--model", "llama3-8b", "--cluster", words, "--gbs", "16")
    error = refused(*plan, "--gpus", str(2 * gpus))
    assert f"{2 * gpus} GPUs are 2 nodes of {gpus}, and the cluster is one node" in str(error)
    assert "name the card between nodes" in error.hint
    error = refused(
        "run", "1f1b", "--devices", str(2 * gpus), "--mb", "4", "--unit", "ms", "--cluster", words
    )
    assert f"{2 * gpus} devices are 2 nodes" in str(error)


@pytest.mark.slow
def test_a_plan_on_one_node_takes_all_its_gpus():
    found = json.loads(
        invoke(
            "plan", "--model", "llama3-8b", "--cluster", "h100x8,nvlink4", "--gbs", "16", "--json"
        ).output
    )
    best = found["plans"][0]
    assert best["tp"] * best["cp"] * best["pp"] * best["dp"] == 8


def test_nodes_of_one_gpu_need_no_link_within():
    machine = read_machine("h100x1,ethernet-100")
    assert machine.per_node == 1
    assert machine.inter_bytes_per_s == pytest.approx(12.5e9)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("h100,nvlink4,ib-400", "lacks the number of GPUs in a node", "h100x8,nvlink4,ib-400"),
        ("h100,nvlink4", "lacks the number of GPUs in a node", "h100x8,nvlink4"),
        ("h900x8,nvlink4,ib-400", "no GPU 'h900' in the library", "h100"),
        ("h100x8", "names no link within a node", "h100x8,nvlink4"),
        ("h100x8,ib-400", "names no link within a node", "h100x8,nvlink4,ib-400"),
        ("h100x8,nvlink99,ib-400", "not a link: 'nvlink99'", "nvlink4"),
        ("h100x8,nvlink4x4,ib-400", "gives 'nvlink4' a number", "h100x8,nvlink4,ib-400"),
        ("h100x8,nvlink4,ib-400,ib-200", "names 3 links", "h100x8,nvlink4,ib-400"),
        ("h100x8,a100-80gbx8,nvlink4", "several kinds of nodes", "[[nodes]]"),
        ("2xh100x8,nvlink4,ib-400", "not a cluster in words", "GPUxCOUNT"),
        ("h100x0,nvlink4,ib-400", "not a cluster in words", "GPUxCOUNT"),
        ("nvlink4,ib-400", "not a cluster in words", "GPUxCOUNT"),
        ("h100x8,nvlink4,ib-400x" + "9" * 40, "not a link: 'ib-400x9", "ib-400"),
        (",,,", "not a cluster in words", "GPUxCOUNT"),
    ],
)
def test_words_that_are_no_cluster_are_refused(words, message, hint):
    """By what is missing; a hint that begins with words of a cluster works as it is."""
    with pytest.raises(InputError, match=message) as error:
        read_machine(words)
    assert hint in error.value.hint
    if error.value.hint.startswith("h100x8"):
        assert read_machine(error.value.hint.partition(";")[0]).per_node == 8


def test_a_cluster_of_no_known_name_is_guessed():
    with pytest.raises(
        InputError, match=r"no cluster 'dgx-h10' in the library\. Did you mean 'dgx-h100'\?"
    ):
        read_cluster("dgx-h10")
    with pytest.raises(InputError, match=r"cannot read 'dgx-h10\.toml': No such file"):
        read_cluster("dgx-h10.toml")


def test_a_link_may_have_a_name():
    assert (Link(link="nvlink4").gb_per_s, Link(link="nvlink4").alpha_us) == (450, 5)
    assert (
        Link(link="ib-400", alpha_us=3).alpha_us,
        Link(link="ib-400", gb_per_s=40).gb_per_s,
    ) == (3, 40)
    assert (
        parse_link("0-1=0.5,ib-400", 2).gb_per_s == parse_link("0-1=0.5,50GB/s", 2).gb_per_s == 50
    )
    with pytest.raises(InputError, match="unknown name of a link"):
        parse_link("0-1=0.5,wire", 2)
    made = network(read_cluster("dgx-v100"), 16, "ms", "overlap")
    assert np.asarray(made.beta)[0, 1] == pytest.approx(150e6)
    assert np.asarray(made.alpha)[0, 8] == pytest.approx(0.01)


def test_a_gpu_without_bf16_trains_in_fp16():
    model, machine = read_model("gpt3-5b"), read_machine("dgx-v100")
    with pytest.raises(InputError, match="v100-32gb has no bf16 units"):
        step_time(model, machine, Parallel(precision="bf16"))
    step = step_time(model, machine, Parallel(precision="fp16", dp=8, microbatches=4))
    assert 0.1 < step.mfu < 0.7
    with pytest.raises(ValueError, match="must be more than 0"):
        Tflops()
    assert replace(read_gpu("h100"), tflops=Tflops(fp16=1)).sixteen == "fp16"


@pytest.mark.parametrize("value", [-1.0, 5e-324, 1e-10, 1e10, 1e300])
@pytest.mark.parametrize("name", ["memory_gib", "hbm_gb_per_s", "host_gb_per_s", "watts"])
def test_a_gpu_has_numbers_that_can_be_counted_with(name, value):
    """Powers of them and bytes in a GiB overflow no float; a power of 0 is one that is not
    known.
    """
    with pytest.raises(ValueError, match=f"{name} must be more than 0 and 1e\\+09 at most, got"):
        replace(read_gpu("h100"), **{name: value})
    with pytest.raises(ValueError, match="fp8 must be more than 0 and"):
        Tflops(bf16=1, fp8=value)
    assert replace(read_gpu("h100"), watts=0.0).watts == 0


def test_a_slow_network_is_seen_in_a_plan():
    """Over one 25 Gb/s card for eight GPUs Llama 3 8B no longer scales as over InfiniBand."""
    model, parallel = read_model("llama3-8b", 4096), Parallel(dp=64, microbatches=1)
    fast, slow = (
        step_time(model, read_machine(f"h100x8,nvlink4,{card}"), parallel).mfu
        for card in ("ib-400", "ethernet-25")
    )
    assert slow < fast / 4


def test_a_family_of_chips_without_a_curve_is_refused_with_the_known_ones(tmp_path):
    """A slip would take the usual values instead, and change every price."""
    assert {curve.family for curve in fitted().curve} == {*FAMILIES}
    assert {read_gpu(name).family for name in gpus()} <= {"", *FAMILIES}
    gpu = 'schema = "ppsim.gpu/1"\nname = "x"\nmemory_gib = 80\nhbm_gb_per_s = 3000\n{}\n'
    file = tmp_path / "x.toml"
    file.write_text(gpu.format('family = "hoper"') + "[tflops]\nbf16 = 900\n")
    with pytest.raises(InputError, match=r"'family' must be one of ampere, hop.*'hoper'"):
        read_gpu(str(file))
    file.write_text(gpu.format("") + "[tflops]\nbf16 = 900\n")
    assert not read_gpu(str(file)).family
