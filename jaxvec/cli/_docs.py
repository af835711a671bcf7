"""`jaxvec docs`: the pages of `jaxvec/docs` and the reference from the docstrings, as a web site."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from jaxvec.cli._failure import FAILED, Failure

_CONFIG = Path(__file__).parents[1] / "docs" / "mkdocs.yml"
_NEEDED = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")
_MARK = "objects.inv"
"""A file that every built site has, and hardly another folder."""


def build_docs(output: Path) -> None:
    """Builds the site; a warning ends it, as an error does.

    Args:
      output: the folder; it is made, or emptied where it holds a site that was built before.

    Raises:
      Failure: if a library is missing, the folder holds something else, or mkdocs fails.
    """
    for name in _NEEDED:
        if find_spec(name) is None:
            raise Failure(f"{name} is not installed: pip install 'jaxvec[docs]'.")
    if output.exists() and not _may_be_replaced(output):
        raise Failure(
            f"--output {output} holds something else than a built site: building empties the folder. "
            "Name a new one."
        )
    words = ("build", "--strict", "--config-file", str(_CONFIG), "--site-dir", output.resolve())
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], env=os.environ | quiet, check=False
    )
    if done.returncode != 0:
        raise Failure(f"mkdocs ended with exit code {done.returncode}; it says why above.", FAILED)


def _may_be_replaced(output: Path) -> bool:
    return output.is_dir() and ((output / _MARK).is_file() or not any(output.iterdir()))
