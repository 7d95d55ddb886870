"""TOML files of any shape are read in time linear in their size, or refused with a line."""

import re

import pytest

from ppsim.engine.detailed.cluster import read as read_cluster
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import read
from ppsim.prices.trained import TrainedModel, TrainedOptions
from ppsim.schedules import generate

HEAD = 'schema = "ppsim.profile/1"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + "a = " + "[" * 2000 + "]" * 2000, "nested too deeply"),
        (HEAD + "a = " + "{a=" * 2000 + "1" + "}" * 2000, "nested too deeply"),
        (HEAD + "a." * 30000 + "a = 1", "line 2: a key of more than 16 parts"),
        (HEAD + '"a".' * 30000 + "a = 1", "line 2: a key of more than 16 parts"),
        (HEAD + "[" + "a." * 30000 + "a]", "line 2: a key of more than 16 parts"),
        (HEAD + "[[op]]\nkind = 1\n" * 3000, "'provenance' is missing"),
        (HEAD + "[model]\nlayers = " + "9" * 400, "'provenance' is missing"),
        (HEAD + "x = " + "9" * 5000, "not TOML"),
        (HEAD + "provenance = 0x" + "f" * 5000, "must be a table"),
        (HEAD + "provenance = [0x" + "f" * 5000 + "]", "must be a table"),
        ("schema = [0x" + "f" * 5000 + "]", "schema a number of thousands of digits"),
        (HEAD + "\x1b = 1", "not TOML"),
        (HEAD + '"\\u001b]0;x" = 1', "unknown key '\ufffd]0;x'"),
    ],
)
def test_a_hostile_profile_is_refused_in_one_short_line(tmp_path, text, says):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        read(str(tmp_path / "x.toml"))
    assert says in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("value", ["[{}]", "{{a = {}}}", "[[1, {}]]"])
def test_a_number_of_thousands_of_digits_is_refused_in_any_list_and_table(tmp_path, value):
    """Python reads such a number in base 16, and refuses to write it."""
    given = f"alpha_us = {value.format('0x' + 'f' * 5000)}"
    (tmp_path / "x.toml").write_text(
        f'schema = "ppsim.cluster/1"\ndevices_per_node = 2\n[intra]\n{given}\ngb_per_s = 1\n'
    )
    with pytest.raises(InputError, match="must be a number, got a number of thousands of digits"):
        read_cluster(str(tmp_path / "x.toml"))


def test_a_dotted_key_has_sixteen_parts_at_most(tmp_path):
    """Seventeen are too many, also where the value has no dot."""
    for parts, says in ((16, "unknown key 'a'"), (17, "line 2: a key of more than 16 parts")):
        (tmp_path / "x.toml").write_text(HEAD + ".".join("a" * parts) + " = 1")
        with pytest.raises(InputError, match=says):
            read(str(tmp_path / "x.toml"))


def test_prose_with_many_dots_is_no_dotted_key(tmp_path):
    (tmp_path / "x.toml").write_text(HEAD + f'x = "{"a. b. " * 20}" # {"." * 40}\n')
    with pytest.raises(InputError, match="unknown key 'x'"):
        read(str(tmp_path / "x.toml"))


@pytest.mark.parametrize(
    ("alpha", "says"), [("9" * 400, "must be 1e+300 at most"), ("1e999", "must be finite")]
)
def test_a_number_beyond_all_others_is_refused(tmp_path, alpha, says):
    path = tmp_path / "c.toml"
    path.write_text(
        f'schema = "ppsim.cluster/1"\ndevices_per_node = 8\n[intra]\nalpha_us = {alpha}\n'
    )
    with pytest.raises(InputError, match=f"line 4: 'alpha_us' {re.escape(says)}"):
        read_cluster(str(path))


@pytest.mark.parametrize(
    "key", ["devices_per_node", "message_bytes", "eager_bytes", "nics_per_node"]
)
@pytest.mark.parametrize("value", ["9223372036854775807", "99999999999999999999"])
def test_a_cluster_of_impossible_size_is_refused(tmp_path, key, value):
    text = (
        'schema = "ppsim.cluster/1"\ndevices_per_node = 8\nmessage_bytes = '
        "1\n[intra]\neager_bytes = 1\n"
    )
    text += "[shared]\nnics_per_node = 1\n"
    path = tmp_path / "c.toml"
    path.write_text(re.sub(f"{key} = .*", f"{key} = {value}", text))
    with pytest.raises(InputError, match=f"'{key}'.* must be "):
        read_cluster(str(path))


MODEL = {"hidden": "4096", "heads": "32", "layers": "32", "seq": "4096", "vocab": "32000"}


@pytest.mark.parametrize("key", [*MODEL, "ffn", "experts", "top_k", "mtp"])
@pytest.mark.parametrize(
    "value",
    [str((1 << 31) - 1), str((1 << 63) - 1), str(1 << 63), "1000000000000000003", "9" * 5000],
)
def test_a_model_of_any_size_is_refused_or_fits_the_numbers(tmp_path, key, value):
    rows = MODEL | {key: value}
    text = 'schema = "ppsim.model/2"\n' + "".join(f"{k} = {v}\n" for k, v in rows.items())
    (tmp_path / "x.toml").write_text(text)
    try:
        model = TrainedModel(str(tmp_path / "x.toml"), TrainedOptions())
        held = model.memory(generate("1f1b", devices=2, microbatches=2), None)
    except InputError:
        return
    assert held.activations.min() >= 0
    assert all(amount.min() >= 0 for amount in held.static.values())


def test_a_file_that_has_changed_is_read_again(tmp_path):
    """Of the same length, and within the resolution of a file system's clock."""
    path = tmp_path / "cluster.toml"
    text = 'schema = "ppsim.cluster/1"\ndevices_per_node = 8\n[intra]\nalpha_us = 1.0\n'
    for alpha in (1.0, 2.0):
        path.write_text(text.replace("1.0", str(alpha)))
        assert read_cluster(str(path)).intra.alpha_us == alpha
    path.write_text(text.replace("alpha_us", "alpha_xs"))
    with pytest.raises(InputError, match="unknown key 'alpha_xs'"):
        read_cluster(str(path))
