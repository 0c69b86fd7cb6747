"""Bring the cluster up: the program that the first process of a new cluster starts."""

import argparse
import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill_devcluster import daemons, hosts
from graphmill_devcluster.configure import write_configuration, write_ssh
from graphmill_devcluster.description import HOME, Description, Host, environment

_MANY: Final = 8


def build(cluster: Description) -> None:
    """From empty namespaces to idle hosts."""
    HOME.mkdir(parents=True, exist_ok=True)
    write_configuration(cluster)
    with ThreadPoolExecutor(_MANY) as pool:
        database = pool.submit(daemons.start_database, cluster) if cluster.accounting else None
        munge = pool.submit(daemons.start_munge)
        keys = pool.submit(write_ssh, cluster) if cluster.ssh else None
        hosts.lay_network(cluster)
        hosts.share_names()
        hosts.make_disks(cluster)
        powered = list(pool.map(lambda host: hosts.power_on(cluster, host), cluster.hosts))
        del powered
        munge.result()
        if keys is not None:
            keys.result()
        if database is not None:
            database.result()
            daemons.start_accounting()
        daemons.start_slurmctld()
        accounts = pool.submit(daemons.add_accounts, cluster) if cluster.accounting else None
        list(pool.map(lambda host: daemons.start_services(cluster, host), cluster.hosts))
        wait_for_hosts(cluster)
        if accounts is not None:
            accounts.result()


def boot(cluster: Description, host: Host) -> None:
    """Power a host on, and start its daemons. They run when this returns; Slurm may take a second more."""
    hosts.power_on(cluster, host)
    daemons.start_services(cluster, host)


def wait_for_hosts(cluster: Description) -> None:
    """Wait until every host would accept a job."""
    wanted = {host.name for host in cluster.hosts}
    daemons.wait_until("its hosts", lambda: wanted <= daemons.idle_hosts())


def main() -> int:
    """Exit status 0 or 2. An error is written to standard error or, as a line of JSON, to a file descriptor."""
    parser = argparse.ArgumentParser()
    parser.add_argument("description")
    parser.add_argument("--report-to", type=int)
    parser.add_argument("--keep-logs")
    asked = parser.parse_args()
    error: UserError | None = None
    try:
        build(Description.model_validate_json(asked.description))
    except UserError as caught:
        error = caught
        if asked.keep_logs:
            shutil.copytree(HOME / "log", asked.keep_logs, dirs_exist_ok=True)
    if asked.report_to is not None:
        said = None if error is None else {"message": error.message, "fix": error.fix}
        os.write(asked.report_to, f"{json.dumps(said)}\n".encode())
    elif error is not None:
        sys.stderr.write(f"error: {error}\n")
    return exits.DONE if error is None else exits.BAD_REQUEST


if __name__ == "__main__":
    os.environ.update(environment(dict(os.environ)))
    sys.exit(main())
