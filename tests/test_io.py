"""Saving: what goes in comes out, to the last bit; whatever is no such file is named and refused."""

import collections
import copy
import dataclasses
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxvec.core._episode import episode_statistics
from jaxvec.core._frame_stack import frame_stack
from jaxvec.core._normalize import normalize_observation, normalize_reward, set_training
from jaxvec.core._transform import Transform, VecSpec, chain, named_chain
from jaxvec.errors import FileFormatError
from jaxvec.io import (
    load,
    load_statistics,
    read_metadata,
    read_statistics,
    save,
    save_statistics,
)
from jaxvec.random import hash_key
from tests.core.table import make_stream, on_device

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "jax"])


class Record(NamedTuple):
    x: Any
    empty: Any = None


@flax.struct.dataclass
class Physics:
    position: Any
    name: str = flax.struct.field(pytree_node=False, default="static")


@dataclasses.dataclass(frozen=True)
class Plain:
    speed: Any


def assert_identical(got: Any, want: Any, where: str = "") -> None:
    """The same types and the same bits, all the way down."""
    if not isinstance(want, np.generic):  # NumPy's sums turn arrays without axes into scalars
        assert type(got) is type(want), f"{where}: {type(got)}, wanted {type(want)}"
    if isinstance(want, Mapping):
        assert set(got) == set(want), where
        for key in want:
            assert_identical(got[key], want[key], f"{where}[{key!r}]")
    elif isinstance(want, tuple | list):
        for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            assert_identical(mine, theirs, f"{where}[{i}]")
    elif dataclasses.is_dataclass(want):
        for field in dataclasses.fields(want):
            assert_identical(getattr(got, field.name), getattr(want, field.name), field.name)
    elif isinstance(want, jax.Array) and jnp.issubdtype(want.dtype, jax.dtypes.prng_key):
        assert got.dtype == want.dtype, where
        assert_identical(jax.random.key_data(got), jax.random.key_data(want), where)
    elif isinstance(want, np.ndarray | np.generic | jax.Array):
        assert got.dtype == want.dtype, where
        assert got.shape == want.shape, where
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes(), where
    else:
        assert got == want, where


def blank(tree: Any) -> Any:
    """A tree to load into: other values, the same in everything else."""

    def other(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return np.zeros_like(leaf)
        if isinstance(leaf, np.generic | int | float):
            return type(leaf)(0)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.empty(leaf.shape, leaf.dtype)
        return jnp.zeros_like(leaf)

    if isinstance(tree, dict):
        return type(tree)({key: blank(branch) for key, branch in tree.items()})
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return type(tree)([blank(branch) for branch in tree])
    if isinstance(tree, Plain):
        return Plain(blank(tree.speed))
    return jax.tree.map(other, tree)


TREES: dict[str, Any] = {
    "dtypes": [
        np.arange(6).reshape(2, 3).astype(dtype)
        for dtype in ("bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64")
    ],
    "special values": np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324]),
    "empty": np.zeros((0, 3), np.float32),
    "numpy scalars": (np.float64(0.1), np.bool_(True), np.array(7)),
    "numbers": {"int": -(2**40), "float": 0.1, "bool": True},
    "alone": np.arange(3),
    "nothing": {"a": None, "b": (), "c": {}, "d": [None]},
    "records": Record([Record(np.ones(2)), {"k": np.ones(1)}], None),
    "keys": {"a/b": np.ones(1), "..": np.ones(2), 3: np.ones(3), "[0]": np.ones(4), "": np.ones(5)},
    "ordered": collections.OrderedDict(b=np.ones(1), a=np.ones(2)),
    "a dataclass": {"car": Plain({"v": np.ones(2)})},
    "not in order": np.asfortranarray(np.arange(6.0).reshape(2, 3))[:, ::2],
    "jax": {"x": jnp.arange(3), "y": (jnp.float32(2.5), jnp.ones((2, 2), jnp.bfloat16))},
    "jax narrow": [jnp.ones(3, jnp.float8_e4m3fn), jnp.arange(3, dtype=jnp.int4)],
    "flax": Physics(jnp.ones(3), "not saved"),
    "frozen": flax.core.FrozenDict({"w": jnp.ones(2)}),
    "typed keys": jax.random.split(jax.random.key(3), 4),
    "cheap keys": {"rows": hash_key(3), "one": (hash_key(4),)},
    "other keys": {"rbg": jax.random.key(1, impl="rbg"), "raw": jax.random.PRNGKey(5)},
}


@pytest.mark.parametrize("name", TREES)
def test_what_is_saved_comes_back_to_the_last_bit(name: str, tmp_path: Path) -> None:
    tree = TREES[name]
    save(tmp_path / "tree.npz", tree)
    like = blank(tree)
    before = copy.deepcopy(like)
    assert_identical(load(tmp_path / "tree.npz", like), tree)
    assert_identical(like, before)  # what is loaded into is not written to


def test_static_fields_are_those_of_the_tree_that_is_loaded_into(tmp_path: Path) -> None:
    save(tmp_path / "x", Physics(jnp.ones(3), "saved"))
    assert load(tmp_path / "x", Physics(jnp.zeros(3), "mine")).name == "mine"


def test_a_key_of_a_custom_implementation_comes_back_as_that_implementation(tmp_path: Path) -> None:
    from jax.extend.random import define_prng_impl

    impl = define_prng_impl(
        key_shape=(3,),
        seed=lambda seed: jnp.full(3, seed, jnp.uint32),
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 3)),
        random_bits=lambda key, bits, shape: jnp.broadcast_to(key[0], shape),
        fold_in=lambda key, data: key + data,
        name="mine",
        tag="mine",
    )
    keys = jax.random.split(jax.random.key(7, impl=impl), 2)
    save(tmp_path / "k.npz", {"key": keys})
    assert_identical(load(tmp_path / "k.npz", {"key": jax.random.split(keys[0], 2)})["key"], keys)
    with pytest.raises(FileFormatError, match=r"`\['key'\]` is key:mine .* needs key:threefry2x32"):
        load(tmp_path / "k.npz", {"key": jax.random.split(jax.random.key(0), 2)})
    with pytest.raises(FileFormatError, match=r"is key<mine> \[2\] .* needs key<mine> \[3\]"):
        load(tmp_path / "k.npz", {"key": jax.random.split(keys[0], 3)})


def test_arrays_come_back_where_the_tree_has_them(tmp_path: Path) -> None:
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("env",))
    sharding = NamedSharding(mesh, PartitionSpec("env"))
    x, key = jnp.arange(4), jax.random.split(jax.random.key(0), 4)
    save(tmp_path / "x.npz", (x, key))
    like = jax.device_put((x * 0, key), sharding)
    for got, want in zip(load(tmp_path / "x.npz", like), (x, key), strict=True):
        assert got.sharding == sharding
        assert bool((got == want).all())
    assert not load(tmp_path / "x.npz", (x, key))[
        0
    ].committed  # a choice that nobody made stays open


def test_shapes_and_dtypes_are_enough_to_load_into(tmp_path: Path) -> None:
    tree = {"x": jnp.arange(4), "key": jax.random.key(3)}
    save(tmp_path / "x.npz", tree)
    assert_identical(load(tmp_path / "x.npz", jax.eval_shape(lambda: tree)), tree)


def test_a_tree_of_numpy_is_saved_and_loaded_without_jax(tmp_path: Path) -> None:
    code = f"""
import sys
import numpy as np
from gymnasium import spaces
from jaxvec.core._normalize import normalize_observation
from jaxvec.core._transform import VecSpec
from jaxvec.io import load, load_statistics, save, save_statistics

spec = VecSpec(2, spaces.Box(-1, 1, (3,)), spaces.Discrete(2), backend="numpy")
state = normalize_observation().init(spec, None)
save({str(tmp_path / "a")!r}, state)
load({str(tmp_path / "a")!r}, state)
save_statistics({str(tmp_path / "b")!r}, state)
load_statistics({str(tmp_path / "b")!r}, state)
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- Files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x", "x.npz", "x.ckpt", "x.pkl"])
def test_a_file_has_exactly_the_name_it_is_given_as_str_or_path(name: str, tmp_path: Path) -> None:
    for path in (tmp_path / name, str(tmp_path / name)):
        save(path, {"x": 1})
        assert os.listdir(tmp_path) == [name]
        assert load(path, {"x": 0}) == {"x": 1}


def test_a_file_is_readable_by_numpy_alone(tmp_path: Path) -> None:
    save(tmp_path / "x.npz", {"x": np.arange(3)}, metadata={"steps": 5})
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        header = json.loads(file["header"].tobytes())
        assert file["leaf_0"].tolist() == [0, 1, 2]
    assert header["format"] == "jaxvec"
    assert header["leaves"] == [{"path": "['x']", "kind": "array"}]


def test_metadata_comes_back_and_what_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    metadata = {"env": "CartPole-v1", "steps": 10, "options": [1.5, None, {"a": True}]}
    save(tmp_path / "x.npz", (), metadata=metadata)
    assert read_metadata(tmp_path / "x.npz") == metadata
    save(tmp_path / "x.npz", ())
    assert read_metadata(tmp_path / "x.npz") == {}
    with pytest.raises(TypeError, match=r"metadata=.* JSON can hold"):
        save(tmp_path / "x.npz", (), metadata={"space": spaces.Discrete(2)})


@pytest.mark.parametrize("culprit", ["numpy.savez", "os.fsync", "os.replace"])
def test_a_failure_while_saving_leaves_the_old_file_and_nothing_else(
    culprit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "x.npz", {"x": 1})

    def fail(*args: Any, **kwargs: Any) -> None:
        if culprit == "numpy.savez":
            args[0].write(b"half a file")
        raise OSError("the disk is full")

    monkeypatch.setattr(culprit, fail)
    with pytest.raises(OSError, match="the disk is full"):
        save(tmp_path / "x.npz", {"x": 2})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["x.npz"]
    assert load(tmp_path / "x.npz", {"x": 0}) == {"x": 1}


def test_a_process_that_dies_while_saving_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    save(path, {"x": np.arange(3)})
    code = f"""
import os
import numpy as np
from jaxvec.io import save
def die(*args):
    os._exit(9)
os.replace = die  # the last moment before the new file takes the name
save({str(path)!r}, {{"x": np.ones(3, int)}})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 9
    assert load(path, {"x": np.zeros(3, int)})["x"].tolist() == [0, 1, 2]


def test_a_file_takes_its_name_after_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for name in ("fsync", "replace"):
        function = getattr(os, name)

        def noted(*args: Any, name: str = name, function: Any = function) -> Any:
            calls.append(name)
            return function(*args)

        monkeypatch.setattr(os, name, noted)
    save(tmp_path / "x.npz", {"x": 1})
    assert calls == [
        "fsync",
        "replace",
        "fsync",
    ]  # the file, its name, the folder that holds the name


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions and links")
def test_permissions_follow_the_umask_and_links_are_followed(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        save(tmp_path / "x.npz", {"x": 1})
    finally:
        os.umask(old)
    assert (tmp_path / "x.npz").stat().st_mode & 0o777 == 0o640
    (tmp_path / "link.npz").symlink_to(tmp_path / "x.npz")
    save(tmp_path / "link.npz", {"x": 2})
    assert (tmp_path / "link.npz").is_symlink()
    assert load(tmp_path / "x.npz", {"x": 0}) == {"x": 2}


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*runs' for "):
        save(tmp_path / "runs" / "x.npz", {"x": 1})
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "x.npz", {"x": 1})


# --- Files that are none -------------------------------------------------------------------------

LIKE = {"x": np.zeros((2, 3)), "y": np.zeros(64, np.int64)}


def good_bytes(tmp_path: Path) -> bytes:
    save(tmp_path / "good.npz", {"x": np.ones((2, 3)), "y": np.arange(64)})
    return (tmp_path / "good.npz").read_bytes()


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    whole, path = good_bytes(tmp_path), tmp_path / "cut.npz"
    for length in [*range(64), *range(64, len(whole) - 1, 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"cut\.npz"):
            load(path, LIKE)


def test_a_flipped_bit_in_the_data_is_noticed(tmp_path: Path) -> None:
    whole = bytearray(good_bytes(tmp_path))
    whole[bytes(whole).index(np.arange(64).tobytes()) + 100] ^= 1
    (tmp_path / "flipped.npz").write_bytes(whole)
    with pytest.raises(FileFormatError, match=r"damaged or was cut off: Bad CRC-32"):
        load(tmp_path / "flipped.npz", LIKE)


class Trap:
    """A pickle of it would run code."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was run",))


def test_pickles_are_refused_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "vecnormalize.pkl"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(FileFormatError, match=r"starts with b'\\x80.*looks like a pickle"):
        load(path, LIKE)
    good_bytes(tmp_path)
    with np.load(tmp_path / "good.npz") as file:
        arrays = {name: file[name] for name in file.files}
    arrays["leaf_0"] = np.array([Trap()], dtype=object)
    np.savez(path, **arrays)
    with pytest.raises(FileFormatError, match="damaged"):
        load(str(path) + ".npz", LIKE)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"#,r,l,t\n", "is no .npz file: it starts with b'#,r,'"),
        (b"\x93NUMPY\x01\x00", "is no .npz file"),
        (b"PK\x03\x04 and then nothing", "damaged"),
    ],
)
def test_other_files_are_refused(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    for read in (
        lambda: load(path, LIKE),
        lambda: read_metadata(path),
        lambda: read_statistics(path),
    ):
        with pytest.raises(FileFormatError, match=words):
            read()


def test_npz_files_of_other_programs_are_refused_with_what_they_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", weights=np.ones(2), bias=np.ones(1))
    with pytest.raises(FileFormatError, match=r"not saved by jaxvec: .* \['weights', 'bias'\]"):
        load(tmp_path / "x.npz", LIKE)
    for header in (b"not json", b"[]", b'{"format": "other"}', b'{"format": "jaxvec"}'):
        np.savez(tmp_path / "x.npz", header=np.frombuffer(header, np.uint8))
        with pytest.raises(FileFormatError, match="not saved by jaxvec: its header"):
            load(tmp_path / "x.npz", LIKE)


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    header = {"format": "jaxvec", "format_number": 2, "jaxvec_version": "9.1"}
    np.savez(tmp_path / "x.npz", header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    with pytest.raises(
        FileFormatError, match=r"jaxvec 9\.1 in format 2; .* up to format 1: upgrade"
    ):
        load(tmp_path / "x.npz", LIKE)


@pytest.fixture(scope="module")
def good_file(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Any]:
    """A checkpoint with moments, keys and numbers, and what was saved."""
    path = tmp_path_factory.mktemp("good") / "good.npz"
    tree = {"state": learnt("numpy", 2, num_steps=3), "key": jax.random.key(3), "steps": 3}
    save(path, tree, metadata={"env": "CartPole-v1"})
    return path.read_bytes(), tree


DAMAGES = ("flipped", "zeroed", "cut off")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_or_right(
    damage: str, good_file: tuple[bytes, Any], tmp_path: Path
) -> None:
    data, tree = good_file
    random = np.random.default_rng(DAMAGES.index(damage))
    # Half of them in the zip's directory at the end: most of what can go wrong is said there.
    places = [
        *random.integers(0, len(data), 100),
        *random.integers(len(data) - 2000, len(data), 100),
    ]
    path, refused = tmp_path / "x.npz", 0
    for place in places:
        broken = bytearray(data)
        if damage == "cut off":
            del broken[place:]
        else:
            broken[place] ^= broken[place] if damage == "zeroed" else 1 << random.integers(8)
        path.write_bytes(broken)
        try:
            got, metadata = load(path, blank(tree)), read_metadata(path)
        except FileFormatError:
            refused += 1
        else:
            assert_identical(got, tree)
            assert metadata == {"env": "CartPole-v1"}
    assert refused > 40


@pytest.mark.parametrize("what", ["compression", "encryption", "memory"])
def test_a_file_that_asks_for_what_there_is_not_is_damaged(what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    save(path, {"x": np.arange(4)})
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")  # the first in the directory: that of the header
    if what == "compression":
        data[entry + 10] = 77
    elif what == "encryption":
        data[entry + 8] |= 1
    else:
        data = data.replace(b"(4,), }" + b" " * 10, b"(4" + b"0" * 10 + b",), }")
        assert b"(40000000000,)" in data
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=r"x\.npz is damaged or was cut off: "):
        load(path, {"x": np.zeros(4, int)})


@pytest.mark.parametrize("reader", [read_metadata, read_statistics, lambda path: load(path, ())])
def test_what_is_no_regular_file_is_not_read(reader: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")  # to open it would wait for a writer, for ever
    with pytest.raises(FileFormatError, match=r"pipe\.npz is no regular file"):
        reader(tmp_path / "pipe.npz")


@pytest.mark.parametrize("write", [save, save_statistics])
@pytest.mark.parametrize("kind", ["pipe", "link to a folder", "link to a pipe", "no folder"])
def test_what_is_no_regular_file_is_not_replaced(write: Any, kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder" if kind.endswith("folder") else "pipe")
    path = tmp_path / {"pipe": "pipe", "no folder": "nowhere/x.npz"}.get(kind, "link")
    problem, said = {
        "pipe": (FileExistsError, "is a named pipe"),
        "link to a pipe": (FileExistsError, "is a named pipe"),
        "link to a folder": (IsADirectoryError, "is a folder"),
        "no folder": (FileNotFoundError, "there is no folder"),
    }[kind]
    before = sorted((each.name, each.lstat().st_mode) for each in tmp_path.iterdir())
    with pytest.raises(problem, match=rf"save: .*{said}"):
        write(path, learnt("numpy", 2, num_steps=1))
    assert before == sorted((each.name, each.lstat().st_mode) for each in tmp_path.iterdir())


def test_a_link_to_a_file_stays_one_and_the_file_is_replaced(tmp_path: Path) -> None:
    save(tmp_path / "real", {"x": 1})
    (tmp_path / "link").symlink_to("real")
    save(tmp_path / "link", {"x": 2})
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "real", {"x": 0}) == {"x": 2}


@pytest.mark.parametrize("closed", ["folder", "file"])
def test_what_may_not_be_written_is_named(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.npz"
    save(path, {"x": 1})
    barred = tmp_path if closed == "folder" else path
    # The tests may run as root, whom no permission stops.
    monkeypatch.setattr(os, "access", lambda each, mode: Path(each) != barred)
    with pytest.raises(
        PermissionError, match=rf"save: .*{re.escape(str(tmp_path))}.* not writable"
    ):
        save(path, {"x": 2})
    assert load(path, {"x": 0}) == {"x": 1}


# --- Files that do not fit -----------------------------------------------------------------------


def test_missing_and_surplus_leaves_are_named(tmp_path: Path) -> None:
    save(tmp_path / "x.npz", ({"a": 1, "b": 2}, 3))
    with pytest.raises(
        FileFormatError,
        match=r"Only the file has `\[0\]\['b'\]`; only the tree has `\[0\]\['c'\]`\.",
    ):
        load(tmp_path / "x.npz", ({"a": 1, "c": 2}, 3))
    with pytest.raises(FileFormatError, match=r"file has `\[1\]`; only the tree has nothing"):
        load(tmp_path / "x.npz", ({"a": 1, "b": 2}, None))


@pytest.mark.parametrize(
    ("saved", "like", "words"),
    [
        (np.ones(3), np.ones(4), r"float64 \[3\] in the file, .* needs float64 \[4\]"),
        (np.ones(3), np.ones(3, np.float32), r"float64 \[3\] in the file, .* needs float32 \[3\]"),
        (np.ones((3, 1)), np.ones(3), r"float64 \[3, 1\]"),
        (np.ones(1), 1.0, "a Python float"),
        (1.5, 1, r"float64 \[\] in the file, .* needs a Python int"),
        (1, True, "a Python bool"),
        (np.ones(2), jnp.ones(2), r"needs float32 \[2\]"),
        (jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.float16), r"is bfloat16 in the file"),
        (jax.random.key_data(jax.random.key(0)), jax.random.key(0), "needs key:threefry2x32"),
        (jax.random.key(0), jax.random.PRNGKey(0), r"is key:threefry2x32 .* needs uint32 \[2\]"),
        (jax.random.key(0), 1, "is key:threefry2x32"),
    ],
)
def test_a_leaf_of_another_kind_is_named_with_both(
    saved: Any, like: Any, words: str, tmp_path: Path
) -> None:
    save(tmp_path / "x.npz", {"obs": (saved,)})
    with pytest.raises(
        FileFormatError, match=r"`\['obs'\]\[0\]` is .*" + words.removeprefix("is ")
    ):
        load(tmp_path / "x.npz", {"obs": (like,)})


@pytest.mark.parametrize("leaf", ["text", np.array([None]), frame_stack, {1, 2}, 1j])
def test_what_is_no_number_is_refused_before_a_file_is_touched(leaf: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"save: `\[0\]\.x` "):
        save(tmp_path / "x.npz", (Record(leaf),))
    assert os.listdir(tmp_path) == []
    save(tmp_path / "x.npz", (Record(1),))
    if not isinstance(leaf, np.ndarray):
        with pytest.raises(TypeError, match=r"load: `\[0\]\.x` "):
            load(tmp_path / "x.npz", (Record(leaf),))


def test_two_leaves_of_one_name_are_refused(tmp_path: Path) -> None:
    class Key(str):
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(ValueError, match="two leaves are called"):
        save(tmp_path / "x.npz", {Key("a"): 1, Key("a"): 2})


# --- Statistics ----------------------------------------------------------------------------------

SPACE = spaces.Dict(camera=spaces.Box(0, 255, (4, 5, 1), np.uint8), state=spaces.Box(-1, 1, (2,)))


def layers(update: Any = "step") -> Transform:
    return named_chain(
        monitor=episode_statistics(),
        inner=chain(frame_stack(2), normalize_observation(update=update)),
        reward=normalize_reward(update=update),
    )


def learnt(
    backend: str, num_envs: int, *, num_steps: int = 40, seed: int = 0, update: Any = "step"
) -> Any:
    """The state of the layers after a stream."""
    stream = make_stream(SPACE, num_envs=num_envs, num_steps=num_steps, seed=seed)
    spec = stream.spec._replace(backend=backend)
    put = on_device if backend == "jax" else lambda tree: tree
    transform = layers(update)
    step = jax.jit(transform.update) if backend == "jax" else transform.update
    state = transform.init(spec, None)
    for timestep in stream.steps:
        state, _ = step(state, put(timestep))
    return state


def all_moments(state: Any) -> list[Any]:
    observation, reward = state["inner"][1].statistics, state["reward"].statistics
    return [*(each.moments for each in observation.values()), reward.moments]


@BACKENDS
def test_statistics_go_from_any_number_of_environments_to_any_other(
    backend: str, tmp_path: Path
) -> None:
    teacher, pupil = learnt(backend, 4), learnt(backend, 3, num_steps=5, seed=1)
    save_statistics(tmp_path / "s.npz", teacher)
    taught = load_statistics(tmp_path / "s.npz", pupil)
    assert_identical(all_moments(taught), all_moments(teacher))
    for name in ("returns", "training", "enabled"):
        assert_identical(getattr(taught["reward"], name), getattr(pupil["reward"], name))
    assert_identical(taught["monitor"], pupil["monitor"])
    assert_identical(taught["inner"][0], pupil["inner"][0])


def test_statistics_go_from_the_device_to_the_host_and_back_without_loss(tmp_path: Path) -> None:
    device, host = learnt("jax", 4), learnt("numpy", 2, num_steps=1)
    save_statistics(tmp_path / "device.npz", device)
    host = load_statistics(tmp_path / "device.npz", host)
    for mine, theirs in zip(all_moments(host), all_moments(device), strict=True):
        for high, want, low in zip(mine[:3], theirs[:3], theirs[3:], strict=True):
            assert np.asarray(high).dtype == np.float64
            exact = np.asarray(want, np.float64) + np.asarray(low, np.float64)
            assert np.array_equal(high, exact)
        assert not any(np.any(low) for low in mine[3:])
    save_statistics(tmp_path / "host.npz", host)
    again = load_statistics(tmp_path / "host.npz", learnt("jax", 1, num_steps=1))
    for mine, theirs in zip(all_moments(again), all_moments(device), strict=True):
        for high, low, want, rest in zip(mine[:3], mine[3:], theirs[:3], theirs[3:], strict=True):
            assert high.dtype == low.dtype == np.float32
            np.testing.assert_array_equal(high, want)
            np.testing.assert_allclose(low, rest, rtol=0, atol=1e-15 * np.max(np.abs(want)))


@BACKENDS
def test_what_a_rollout_set_aside_is_neither_saved_nor_lost(backend: str, tmp_path: Path) -> None:
    state = learnt(backend, 4, update="rollout")
    save_statistics(tmp_path / "s.npz", layers("rollout").end_rollout(state))
    running = learnt(backend, 3, num_steps=7, seed=2, update="rollout")
    taught = load_statistics(tmp_path / "s.npz", running)
    pending = taught["reward"].statistics.pending
    assert_identical(pending, running["reward"].statistics.pending)
    assert np.asarray(pending.count).sum() > 0
    assert float(taught["reward"].statistics.moments.count) == pytest.approx(4 * 40, rel=1e-4)


def test_statistics_can_be_read_without_a_state(tmp_path: Path) -> None:
    state = learnt("jax", 4)
    save_statistics(tmp_path / "s.npz", {"env": state}, metadata={"gamma": 0.99})
    moments = read_statistics(tmp_path / "s.npz")
    inner = "['env']['inner'][1].statistics"
    assert list(moments) == [
        f"{inner}['camera']",
        f"{inner}['state']",
        "['env']['reward'].statistics",
    ]
    assert isinstance(moments[f"{inner}['state']"].mean, np.ndarray)
    assert moments[f"{inner}['camera']"].mean.shape == (4, 5, 2)
    assert read_metadata(tmp_path / "s.npz") == {"gamma": 0.99}


def test_statistics_of_other_layers_or_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    save_statistics(path, learnt("numpy", 2, num_steps=1))
    spec = VecSpec(2, SPACE, spaces.Discrete(2), backend="numpy")
    with pytest.raises(FileFormatError, match=r"file has .*inner.*tree has `\.statistics`\."):
        load_statistics(path, normalize_reward().init(spec, None))
    other = named_chain(
        monitor=episode_statistics(),
        inner=chain(frame_stack(3), normalize_observation()),
        reward=normalize_reward(),
    )
    with pytest.raises(FileFormatError, match=r"float64 \[4, 5, 2\] .* needs float64 \[4, 5, 3\]"):
        load_statistics(path, other.init(spec, None))
    with pytest.raises(ValueError, match="no normalize_observation or normalize_reward in it"):
        save_statistics(
            path, frame_stack(2).init(spec._replace(observation_space=SPACE["state"]), None)
        )


def test_statistics_and_checkpoints_are_not_taken_for_each_other(tmp_path: Path) -> None:
    state = learnt("numpy", 2, num_steps=1)
    save_statistics(tmp_path / "s.npz", state)
    save(tmp_path / "c.npz", state)
    with pytest.raises(
        FileFormatError, match="holds statistics, not a tree of `save`: read it by load_stat"
    ):
        load(tmp_path / "s.npz", state)
    with pytest.raises(
        FileFormatError, match="holds a tree of `save`, not statistics: read it by load"
    ):
        load_statistics(tmp_path / "c.npz", state)


# --- Going on ------------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("update", ["step", "rollout"])
def test_a_run_continued_from_a_checkpoint_equals_the_uninterrupted_one_bit_for_bit(
    update: Any, backend: str, tmp_path: Path
) -> None:
    stream = make_stream(SPACE, num_steps=40)
    spec = stream.spec._replace(backend=backend)
    put = on_device if backend == "jax" else lambda tree: tree
    transform = layers(update)
    step = jax.jit(transform.update) if backend == "jax" else transform.update
    state, _ = transform.reset(transform.init(spec, None), put(stream.opening), None)
    outputs = []
    for t, timestep in enumerate(stream.steps):
        if t == 17:
            state = set_training(state, False)
            save(tmp_path / "checkpoint.npz", {"layers": state, "t": t})
        state, out = step(state, put(timestep))
        outputs.append(out)
    carry = load(tmp_path / "checkpoint.npz", {"layers": transform.init(spec, None), "t": 0})
    resumed = carry["layers"]
    for timestep, want in zip(stream.steps[carry["t"] :], outputs[carry["t"] :], strict=True):
        resumed, out = step(resumed, put(timestep))
        assert_identical(jax.tree.map(lambda x: x, out), jax.tree.map(lambda x: x, want))
    assert_identical(transform.end_rollout(resumed), transform.end_rollout(state))


def test_a_loaded_state_compiles_nothing_again(tmp_path: Path) -> None:
    transform, traces = layers(), []
    timestep = on_device(make_stream(SPACE).steps[0])

    @jax.jit
    def step(state: Any) -> Any:
        traces.append(1)
        return transform.update(state, timestep)[0]

    state = step(transform.init(VecSpec(4, SPACE, spaces.Discrete(2)), None))
    save(tmp_path / "x.npz", state)
    step(load(tmp_path / "x.npz", state))
    assert len(traces) == 1


def test_scalars_and_arrays_of_numpy_come_back_as_the_tree_has_them(tmp_path: Path) -> None:
    save(tmp_path / "x.npz", [np.float64(1), np.array(2.0)])
    scalar, array = load(tmp_path / "x.npz", [np.float64(0), np.array(0.0)])
    assert type(scalar) is np.float64
    assert type(array) is np.ndarray
    array[...] = 3  # what is loaded can be written to


def test_a_zip_of_nothing_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w"):
        pass
    with pytest.raises(FileFormatError, match=r"no \.npz file"):
        load(tmp_path / "x.npz", ())
