"""Options and fixtures that all tests share."""

import compileall
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

# Also where PYTHONDONTWRITEBYTECODE is set: else each of xdist's workers rewrites the asserts of all tests, each time,
# which takes twice as long as all else until the first test begins.
sys.dont_write_bytecode = False

# Where there is no GPU, Triton's kernels run in its interpreter: chosen when triton is first imported, which torch does
# as well.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A loaded machine is slow, not wrong: no example has a deadline. Of one commit, `make test` tries the same examples
# each time; `make test-slow` looks for others.
hypothesis.settings.register_profile("graphmill", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile("graphmill")

# What is run by tests is not put on the list of the person who runs them; processes that tests start share theirs.
_CONFIG = tempfile.TemporaryDirectory(prefix="graphmill-config-")
os.environ["XDG_CONFIG_HOME"] = _CONFIG.name

pytest_plugins = (
    "command_line",
    "chromium",
    "failing_disk",
    "instruction_sets",
    "planned_runs",
    "other_release",
    "real_slurm",
    "slurm_stand_ins",
    "second_user",
    "shared_out",
    "shared_data",
    "left_behind",
)  # in tests/plugins, see pyproject.toml

GOLDENS = Path(__file__).parent / "goldens"


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: thousands of processes import it, also where PYTHONDONTWRITEBYTECODE is set."""
    if not hasattr(config, "workerinput"):  # not in each of xdist's workers
        compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write what is seen as the new golden files")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test depends on the shell that it was started from."""
    for name in (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GRAPHMILL_DATA_ROOT",
        "PYG_DATA_ROOT",
        "SCRATCH",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name under tests/goldens; `pytest --update-goldens` writes it."""

    def compare(name: str, text: str) -> None:
        path = GOLDENS / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is missing: run `pytest --update-goldens` and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), (
            f"{path.name} differs; if that is meant: pytest --update-goldens"
        )

    return compare


@pytest.fixture
def source_environ() -> dict[str, str]:
    """The environment for a subprocess that imports graphmill, from this checkout also where it is not installed."""
    source = str(Path(__file__).parents[1] / "src")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))}
