"""`jaxvec docs`: what keeps it from building, and that nothing else is deleted. CI builds the site itself."""

from types import SimpleNamespace

import pytest

from jaxvec.cli import _docs, main


@pytest.mark.parametrize("missing", ["mkdocs", "material", "mkdocstrings_handlers"])
def test_a_missing_library_is_named_with_its_extra(missing, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(_docs, "find_spec", lambda name: None if name == missing else object())
    assert main(["docs", "--output", str(tmp_path / "site")]) == 2
    assert capsys.readouterr().err == (
        f"jaxvec: {missing} is not installed: pip install 'jaxvec[docs]'.\n"
    )


@pytest.fixture
def mkdocs(monkeypatch):
    """Stands for mkdocs: keeps the words it was called with, ends with a code."""
    calls = SimpleNamespace(words=None, returncode=0)

    def run(words, **options):
        calls.words = words
        return SimpleNamespace(returncode=calls.returncode)

    monkeypatch.setattr(_docs, "find_spec", lambda name: object())
    monkeypatch.setattr(_docs, "subprocess", SimpleNamespace(run=run))
    return calls


def test_a_folder_that_holds_something_else_is_left_alone(mkdocs, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("three years")
    assert main(["docs", "--output", str(tmp_path)]) == 2
    assert "holds something else than a built site" in capsys.readouterr().err
    assert mkdocs.words is None
    assert main(["docs", "--output", str(tmp_path / "thesis.tex")]) == 2


@pytest.mark.parametrize("before", ["nothing", "empty", "a site"])
def test_a_new_folder_an_empty_one_or_an_older_site_is_built_into(before, mkdocs, tmp_path, capsys):
    site = tmp_path / "site"
    if before != "nothing":
        site.mkdir()
    if before == "a site":
        (site / "objects.inv").touch()
        (site / "index.html").touch()
    assert main(["docs", "--output", str(site)]) == 0
    assert capsys.readouterr().out == f"{site / 'index.html'}\n"
    assert "--strict" in mkdocs.words
    assert mkdocs.words[-1] == site.resolve()


def test_a_warning_of_mkdocs_is_a_failure(mkdocs, tmp_path, capsys):
    mkdocs.returncode = 1
    assert main(["docs", "--output", str(tmp_path / "site")]) == 1
    assert "mkdocs ended with exit code 1" in capsys.readouterr().err
