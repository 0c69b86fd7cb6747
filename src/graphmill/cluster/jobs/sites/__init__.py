"""Site profiles: those that come with graphmill, and the user's own."""

import os
from pathlib import Path

from graphmill.runtime.roots import config_folder
from graphmill.spec.job.site import Site, load_site


def site_folders() -> list[Path]:
    """Where profiles are looked for: the user's own first, then those packaged here."""
    config = config_folder(os.environ)
    return [*([] if config is None else [config / "sites"]), Path(__file__).parent]


def find_site(source: str) -> Site:
    """The profile that `slurm.site` names."""
    return load_site(source, folders=site_folders())
