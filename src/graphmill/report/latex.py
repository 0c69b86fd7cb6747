"""Compile a .tex file to PDF: with latexmk, else with pdflatex, else report that LaTeX is absent."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.base.files import replacing

INSTALL = "apt-get install --no-install-recommends texlive-latex-base texlive-pictures latexmk"

_SECONDS = 180
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.tex")


def find_latex() -> str | None:
    """Which of the two compilers this machine has, the better one first."""
    return next((name for name in ("latexmk", "pdflatex") if shutil.which(name)), None)


def build_tex(tex_file: Path, build_dir: Path = Path("plots/build")) -> Path:
    """Compile `tex_file` to `<build_dir>/<stem>.pdf`, whole or not at all; files next to it that LaTeX reads are found.

    Nothing in the file is executed: no shell escape, and no latexmkrc is read.
    """
    if not tex_file.is_file():
        raise UserError(
            f"{tex_file} does not exist", fix="graphmill figures, which writes plots/*.tex, or give another file"
        )
    if not _SAFE_NAME.fullmatch(tex_file.name):  # TeX would read a blank, # or ~ in it as something else
        raise UserError(
            f"{tex_file.name!r} is not a name that LaTeX reads safely",
            fix="rename it to letters, digits, dots, dashes and underscores, ending in .tex",
        )
    compiler = find_latex()
    if compiler is None:
        raise UserError(f"neither latexmk nor pdflatex is installed, so {tex_file} was not compiled", fix=INSTALL)
    with tempfile.TemporaryDirectory(prefix="graphmill-tex-") as scratch:
        made = _compile(compiler, tex_file, Path(scratch), build_dir)
        pdf = build_dir / f"{tex_file.stem}.pdf"
        with replacing(pdf) as temporary:
            shutil.copyfile(made, temporary)
    return pdf


def _command(compiler: str, tex_file: Path, scratch: Path) -> list[str]:
    flags = ["-interaction=nonstopmode", "-halt-on-error", "-file-line-error"]
    if compiler == "latexmk":
        engine = f"-pdflatex=pdflatex -no-shell-escape {' '.join(flags)} %O %S"
        return ["latexmk", "-norc", "-pdf", engine, f"-output-directory={scratch}", tex_file.name]
    return ["pdflatex", "-no-shell-escape", *flags, f"-output-directory={scratch}", tex_file.name]


def _compile(compiler: str, tex_file: Path, scratch: Path, build_dir: Path) -> Path:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1", "shell_escape": "f"}
    command = _command(compiler, tex_file, scratch)
    for _ in range(1 if compiler == "latexmk" else 2):  # latexmk repeats until references settle
        try:
            done = subprocess.run(
                command,
                cwd=tex_file.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UserError(
                f"{compiler} was still busy with {tex_file} after {_SECONDS} s, and was stopped",
                fix="draw fewer epochs, or look for a loop in the file",
            ) from None
        if done.returncode:
            _refuse(compiler, tex_file, scratch, build_dir, done.stdout.decode(errors="replace"))
    return scratch / f"{tex_file.stem}.pdf"


def _refuse(compiler: str, tex_file: Path, scratch: Path, build_dir: Path, output: str) -> None:
    """Keep the log where the user can read it, and show the first error."""
    log = scratch / f"{tex_file.stem}.log"
    kept = build_dir / log.name
    text = log.read_text(errors="replace") if log.is_file() else output
    with replacing(kept) as temporary:
        temporary.write_text(text, encoding="utf-8")
    error = re.search(r"^(?:!|[^\n]*\.tex:\d+:)[^\n]*(?:\n[^\n]*){0,2}", text, flags=re.MULTILINE)
    shown = error.group(0).strip() if error else text.strip()[-300:]
    raise UserError(f"{compiler} could not compile {tex_file}:\n{shown}", fix=f"read {kept}")
