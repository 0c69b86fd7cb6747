"""`site list|probe`: what clusters give and refuse."""

import datetime
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.base.cells import is_number
from graphmill.base.errors import UserError
from graphmill.cli.options import Json
from graphmill.cli.show import print_json, print_line, print_table
from graphmill.cli.tree import Commands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphmill.cluster.jobs.probe import Folder, OpenKey, Tried

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)
    group.command("list")(list_)
    group.command("probe")(probe)
    group.callback()(site)
    app.add_typer(group, name="site")


def site() -> None:
    """Site profiles: what a cluster gives by default, and what it refuses.

    \b
    Example:
      graphmill site list
      graphmill site probe --name ours
    """


def list_(*, json: Json = False) -> None:
    """List the site profiles that --site finds: yours and those that come with graphmill.

    \b
    Example:
      graphmill site list --json
    """
    from graphmill.cluster.jobs.sites import site_folders
    from graphmill.spec.job.site import known_sites, load_site

    folders = site_folders()
    rows = [
        (load_site(name, folders=folders), (folders[0] / f"{name}.yaml").is_file()) for name in known_sites(folders)
    ]
    if json:
        fields = ("name", "description", "checked")
        print_json({"sites": [{**each.model_dump(include=set(fields)), "own": own} for each, own in rows]})
        return
    print_table(
        ("site", "yours", "what it is", "compared"),
        [[each.name, "yes" if own else "", each.description, each.checked] for each, own in rows],
    )


def probe(
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", show_default=False, help="Of the profile; else the cluster's own name."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            show_default=False,
            help="Where to write it; else where --site NAME finds it.",
        ),
    ] = None,
    *,
    with_job: Annotated[
        bool,
        typer.Option("--with-job", help="Run a job of one minute on one host too, to see its scratch and local disks."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a profile that is there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the profile; write no file and start no job.")
    ] = False,
    json: Json = False,
) -> None:
    """Write a site profile from what the cluster says of itself, and ask Slurm about a job by it on every kind of host.

    Reads `scontrol show config|partition|node` and sacctmgr. What Slurm does not know (account, modules, scratch) is
    asked for on a terminal, with what sacctmgr and the environment know of it; else the lines to fill in are shown.
    Nothing is submitted unless --with-job is given: scripts
    are only shown to `sbatch --test-only`. Exit status 1: Slurm would refuse one of them.

    \b
    Example:
      graphmill site probe --dry-run
      graphmill site probe --name ours --with-job
      graphmill submit my.yaml --site ours --dry-run
    """
    from graphmill.cluster.jobs.probe import filled_in, left_open, probe_job, profile_of, try_profile, with_lines
    from graphmill.cluster.jobs.sites import site_folders
    from graphmill.slurm.configuration import read_cluster
    from graphmill.spec.job.site import Site

    cluster = read_cluster()
    name = name or re.sub(r"[^A-Za-z0-9._-]", "-", cluster.setting("ClusterName") or "cluster")
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is None:
        raise UserError(f"--name {name!r} cannot name a profile", fix="letters, digits, . _ and - only")
    path = output or site_folders()[0] / f"{name}.yaml"
    if path.exists() and not (force or dry_run):
        raise UserError(f"{path} is there already", fix="--force replaces it, and --name or --output writes another")
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    profile = profile_of(cluster, name, date=date)
    if with_job and not dry_run:
        folders = probe_job(profile.get("defaults", {}).get("slurm_partition"))
        _tell_folders(folders)
        profile = profile_of(cluster, name, date=date, folders=folders)
    open_keys = left_open(cluster, profile, os.environ)
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not (dry_run or json)
    answers = ask(open_keys) if asks else {}
    profile = filled_in(profile, answers)
    tried = list(try_profile(Site.model_validate(profile)))
    written = None if dry_run else path
    text = with_lines(text_of(profile), [each for each in open_keys if each.key not in answers])
    if written is not None:
        _write(written, text)
    if json:
        print_json({"path": written and str(written), "profile": profile, "tried": [_fields(each) for each in tried]})
    else:
        _tell(profile, tried, written, text)
        _tell_open([] if asks else open_keys, written)
    if not all(each.is_accepted for each in tried):
        raise typer.Exit(1)


def ask(open_keys: "Sequence[OpenKey]") -> dict[str, Any]:
    """Answers by dotted key; an empty one leaves the key to what is known, or out."""
    answers = {}
    for each in open_keys:

        def value(text: str, each: "OpenKey" = each) -> Any:  # noqa: ANN401  # of a YAML key
            try:
                return each.value_of(text) if text.strip() else None
            except ValueError as error:
                raise typer.BadParameter(str(error)) from error

        said = typer.prompt(f"{each.about}\n  {each.key}", default=each.known, value_proc=value, err=True)
        if said:
            answers[each.key] = said
    return answers


def _tell_open(open_keys: "Sequence[OpenKey]", written: Path | None) -> None:
    if not open_keys:
        return
    where = written or "the profile"
    _log.info(f"Slurm does not know these: fill in what holds, in {where}, and take off the #")
    for each in open_keys:
        _log.info(f"  {'under defaults, ' if each.key.startswith('defaults.') else ''}{each.line()}")


def _write(path: Path, text: str) -> None:
    from graphmill.base.files import write_text

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def text_of(profile: dict[str, Any]) -> str:
    """YAML in the order of the keys; quotes where this reader, or an older one, would not take text for text."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, text: str) -> yaml.ScalarNode:
            # YAML 1.2 reads 0E0 as a number; YAML 1.1, whose rules PyYAML's dumper knows, reads it as text
            return self.represent_scalar("tag:yaml.org,2002:str", text, style="'" if is_number(text) else None)

    Dumper.add_representer(str, Dumper.represent_str)
    head = "# Written by `graphmill site probe`. Modules, setup_lines, interface and account are not known to Slurm.\n"
    return head + yaml.dump(profile, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


def _tell_folders(folders: "list[Folder]") -> None:
    for folder in folders:
        _log.info(f"in a job ${folder.variable} is {folder.path}, {folder.free_mib / 1024:.1f} GiB free")
    if not folders:
        _log.info("in a job no variable names a scratch folder or a local disk: give scratch: and host_local: by hand")


def _tell(profile: dict[str, Any], tried: "list[Tried]", written: Path | None, text: str) -> None:
    if written is None:
        typer.echo(text, nl=False)
    rows = [[each.slurm_partition, each.kind, "yes" if each.is_accepted else "no", each.answer] for each in tried]
    print_table(("partition", "one whole host", "accepted", "sbatch --test-only"), rows)
    gpus = profile.get("defaults", {}).get("gpus_per_host")
    if gpus:
        _log.info(f"by default, a job asks for {gpus} GPUs of each host; with train.device=cpu for none")
    if not tried:
        _log.warning("no host is in a partition that you may use: nothing was tried")
    if written is not None:
        print_line(f"wrote {written}; `graphmill submit EXPERIMENT --site {profile['name']} --dry-run` uses it")


def _fields(tried: "Tried") -> dict[str, Any]:
    return {field: getattr(tried, field) for field in tried.__slots__}
