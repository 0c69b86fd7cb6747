"""What Slurm's states and reasons mean, in words for the user. Pure."""

import re
from dataclasses import dataclass
from typing import Final, Literal

Phase = Literal["waits", "runs", "ended"]
"""Of a job: it waits for its start, holds hosts, or will do nothing more."""

_PHASES: Final[dict[str, Phase]] = {
    **dict.fromkeys(
        ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT", "POWER_UP_NODE"),
        "waits",
    ),
    **dict.fromkeys(
        ("RUNNING", "CONFIGURING", "COMPLETING", "STAGE_OUT", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"), "runs"
    ),
}
_ENDS: Final[dict[str, str]] = {
    "COMPLETED": "the script ended with 0",
    "FAILED": "the script ended with an error",
    "CANCELLED": "the job was cancelled",
    "TIMEOUT": "time limit reached before the run had stopped",
    "NODE_FAIL": "a host failed",
    "PREEMPTED": "a job of higher priority took the hosts",
    "OUT_OF_MEMORY": "a rank used more memory than the job asked for",
    "BOOT_FAIL": "a host did not boot",
    "DEADLINE": "it could not start before the deadline it was given",
    "LAUNCH_FAILED": "the ranks could not be started",
    "RECONFIG_FAIL": "a host could not be set up as the job wants it",
    "REVOKED": "the job runs on another cluster of the federation",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job waits."""

    meaning: str
    advice: str  # what to do; empty if one can only wait
    is_hopeless: bool = False  # it will wait for ever unless someone intervenes


def phase(state: str) -> Phase:
    """Whether a job in this state waits, runs or has ended. A state we do not know counts as ended."""
    return _PHASES.get(state, "ended")


def explain_end(state: str) -> str:
    """What the state of an ended job means."""
    return _ENDS.get(state, f"Slurm calls it {state}")


def explain_reason(reason: str) -> Reason:
    """What Slurm's reason for a waiting job means, and what to do. An unknown one is passed on as Slurm wrote it.

    Slurm adds to some: "ReqNodeNotAvail, UnavailableNodes:node[1-2]", "(launch failed requeued held)".
    """
    name, _, more = reason.strip("() ").partition(",")
    known = REASONS.get(name) or _of_a_family(name)
    if known is None:
        return Reason(f"Slurm says {reason}", "") if reason else Reason("Slurm has not looked at it yet", "")
    detail = more.strip().removeprefix("UnavailableNodes:")
    return Reason(f"{known.meaning} ({detail})", known.advice, known.is_hopeless) if detail else known


_ASK_LESS: Final = "ask for less, or another slurm.slurm_partition or slurm.qos: `graphmill stop`, then submit again"
_ACCOUNT: Final = "give what is yours (slurm.account, slurm.qos); `sacctmgr show assoc user=$USER` lists it"

REASONS: Final[dict[str, Reason]] = {
    "None": Reason("Slurm has not looked at it yet", ""),
    "Priority": Reason("jobs of higher priority are before it", "shorter jobs on fewer hosts often start sooner"),
    "Resources": Reason("it is the next, and waits for hosts to become free", ""),
    "BeginTime": Reason("its start time has not come; after a requeue Slurm waits for about two minutes", ""),
    "Dependency": Reason("it waits for the job that it depends on", ""),
    "DependencyNeverSatisfied": Reason(
        "the job that it depends on failed, was cancelled or is unknown, so it can never start",
        "`graphmill stop` it, fix the other, and submit again",
        is_hopeless=True,
    ),
    "PartitionNodeLimit": Reason(
        "it asks for more hosts than one job may have in its Slurm partition",
        "ask for fewer (slurm.hosts), or another slurm.slurm_partition; `sinfo` lists them",
        is_hopeless=True,
    ),
    "PartitionTimeLimit": Reason(
        "it asks for more time than its Slurm partition allows",
        "ask for less (slurm.time): a run that needs more time continues in another job automatically",
        is_hopeless=True,
    ),
    "PartitionConfig": Reason("it asks for what its Slurm partition does not allow", _ASK_LESS, is_hopeless=True),
    "PartitionDown": Reason(
        "its Slurm partition starts no jobs at the moment", "wait, or use another; `sinfo` lists them"
    ),
    "PartitionInactive": Reason("its Slurm partition is switched off", "use another; `sinfo` lists them"),
    "AccountNotAllowed": Reason("the account may not use this Slurm partition", _ACCOUNT, is_hopeless=True),
    "QOSNotAllowed": Reason("the quality of service may not be used there", _ACCOUNT, is_hopeless=True),
    "InvalidAccount": Reason("the account does not exist", _ACCOUNT, is_hopeless=True),
    "InvalidQOS": Reason("the quality of service does not exist", _ACCOUNT, is_hopeless=True),
    "BadConstraints": Reason(
        "no host has the features it asks for",
        "correct slurm.constraint; `sinfo -o '%N %f'` lists features",
        is_hopeless=True,
    ),
    "ReqNodeNotAvail": Reason(
        "hosts that it needs are down, drained or reserved, perhaps for a maintenance that begins before it would end",
        "wait, or ask for less time (slurm.time); `scontrol show reservation` and `sinfo -R` say more",
    ),
    "Reservation": Reason("its reservation has not begun", ""),
    "ReservationDeleted": Reason("its reservation is gone", "leave slurm.reservation out", is_hopeless=True),
    "NodeDown": Reason("a host that it needs is down", "wait; `sinfo -R` says why"),
    "Nodes required for job are DOWN": Reason(
        "hosts that it needs are down, drained or reserved for others", "wait, or ask for fewer; `sinfo -R` says why"
    ),
    "Licenses": Reason("it waits for a licence", ""),
    "Cleaning": Reason("its last run is being cleaned up", ""),
    "Prolog": Reason("the hosts are being prepared", ""),
    "JobArrayTaskLimit": Reason("as many tasks of the array run as were allowed at once", ""),
    "MaxJobsPerAccount": Reason("your account runs as many jobs as it may", ""),
    "JobHeldUser": Reason(
        "it is held by a user, or was submitted with --hold, until `scontrol release`", "`scontrol release` lets it go"
    ),
    "JobHeldAdmin": Reason(
        "it is held back, by an administrator or because it failed to start several times",
        "`scontrol show job` says more; `scontrol release` releases it, if you may",
        is_hopeless=True,
    ),
    "launch failed requeued held": Reason(
        "it could not be started on its hosts and is held back", "`scontrol release` tries again", is_hopeless=True
    ),
    "job requeued in held state": Reason(
        "it was requeued and held back", "`scontrol release` lets it go", is_hopeless=True
    ),
    "JobHoldMaxRequeue": Reason("it was requeued too often", "`scontrol release` lets it go", is_hopeless=True),
    "NodeRebooting": Reason("its hosts restart", ""),
    "PowerNotAvail": Reason("it waits for electric power", ""),
    "FrontEndDown": Reason("the front end is down", ""),
    "SchedDefer": Reason("Slurm schedules later", ""),
    "DeadLine": Reason("it can no longer end before its deadline", _ASK_LESS, is_hopeless=True),
    "OutOfMemory": Reason("its last run had too little memory", "ask for more (slurm.mem)"),
    "BurstBufferResources": Reason("it waits for the burst buffer", ""),
    "BurstBufferStageIn": Reason("the burst buffer is being filled", ""),
    "AssociationJobLimit": Reason("your account has reached a limit on jobs", ""),
    "AssociationResourceLimit": Reason("your account has reached a limit on resources", ""),
    "AssociationTimeLimit": Reason("your account has reached a limit on time", _ASK_LESS),
    "QOSJobLimit": Reason("the quality of service has reached a limit on jobs", ""),
    "QOSResourceLimit": Reason("the quality of service has reached a limit on resources", ""),
    "QOSTimeLimit": Reason("the quality of service has reached a limit on time", _ASK_LESS),
    "QOSUsageThreshold": Reason("too little of what was granted is used", _ACCOUNT, is_hopeless=True),
    "AccountingPolicy": Reason("a limit of your account or of the quality of service is reached", _ASK_LESS),
    "MaxMemPerLimit": Reason("it asks for more memory per core or host than is allowed", _ASK_LESS, is_hopeless=True),
    "Constraints": Reason("no free host has the features it asks for", "wait, or correct slurm.constraint"),
}

_LIMIT: Final = re.compile(
    r"(?P<whose>Assoc|QOS|)(?P<kind>Grp|Max|Min)"
    r"(?P<what>SubmitJobs?|Jobs|CPU|Cpu|Memory|Mem|Node|GRES|WallDuration|Wall|Billing|License|Energy|BB|Unknown)"
    r"(?P<minutes>Minutes|RunMinutes|)(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
_WHOSE: Final = {"Assoc": "your account", "QOS": "the quality of service", "": "the account"}
_WHAT: Final = {
    **{"SubmitJobs": "submitted jobs", "SubmitJob": "submitted jobs", "Jobs": "jobs", "CPU": "cores", "Cpu": "cores"},
    **{"Memory": "memory", "Mem": "memory", "Node": "hosts", "GRES": "GPUs", "WallDuration": "run time"},
    **{"Wall": "run time", "Billing": "billing units", "License": "licences", "Energy": "energy", "BB": "burst buffer"},
    "Unknown": "of a resource",
}


def _of_a_family(name: str) -> Reason | None:
    """The limits of accounts and of qualities of service: AssocGrpCPUMinutesLimit, QOSMaxJobsPerUserLimit, ….

    A limit on what runs at one time passes when other jobs end; one on a single job, and a spent budget, never do.
    """
    match = _LIMIT.fullmatch(name)
    if match is None:
        return None
    whose, what = _WHOSE[match["whose"]], _WHAT[match["what"]]
    if match["kind"] == "Min":
        return Reason(f"it asks for less {what} than {whose} demands", "ask for more", is_hopeless=True)
    if match["per"] in ("Job", "Node"):
        minutes = "minutes of " if match["minutes"] else ""
        per = "a job" if match["per"] == "Job" else "each host of a job"
        return Reason(f"it asks for more {minutes}{what} than {whose} allows {per}", _ASK_LESS, is_hopeless=True)
    if match["minutes"] == "Minutes" or (match["kind"] == "Grp" and match["what"] == "Wall"):
        return Reason(
            f"{whose} has used up its budget of {'minutes of ' if match['minutes'] else ''}{what}",
            "ask its administrator, or use another (slurm.account, slurm.qos)",
            is_hopeless=True,
        )
    many = {"User": " of one user", "Account": " of one account"}.get(match["per"] or "", "")
    if "Job" in match["what"]:
        return Reason(f"as many {what}{many} are there as {whose} allows at a time", "it starts when some of them end")
    return Reason(
        f"running jobs{many} use all the {what} that {whose} may use at a time", "it starts when some of them end"
    )
