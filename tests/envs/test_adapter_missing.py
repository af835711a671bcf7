"""A library that is not installed: the message names the extra, and there is such an extra."""

import sys
import tomllib
from pathlib import Path

import pytest

from jaxvec import envs
from jaxvec.errors import MissingExtraError

MODULES = {
    "brax": "brax",
    "craftax": "craftax",
    "crax": "crax",
    "gymnax": "gymnax",
    "jaxmarl": "jaxmarl",
    "jumanji": "jumanji",
    "navix": "navix",
    "octax": "octax",
    "pgx": "pgx",
    "playground": "mujoco_playground",
    "xminigrid": "xminigrid",
}
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_every_library_that_ids_may_name_is_in_the_table():
    assert set(MODULES) == set(envs._registry._NAMESPACES)


@pytest.mark.parametrize("library", MODULES)
def test_an_id_of_a_missing_library_says_how_to_install_it(library, monkeypatch):
    for name in list(sys.modules):
        if name.partition(".")[0] == MODULES[library]:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, MODULES[library], None)  # which Python takes for missing
    with pytest.raises(MissingExtraError, match=rf"pip install 'jaxvec\[{library}\]'") as caught:
        envs.make(f"{library}:Any")
    assert f"make('{library}:Any')" in str(caught.value) or library in str(caught.value)
    assert library in PROJECT["optional-dependencies"]


def test_a_name_in_place_of_an_environment_says_so_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgx", None)
    with pytest.raises(MissingExtraError, match="from_pgx: importing pgx failed"):
        envs.from_pgx("tic_tac_toe")
