"""The measured figures, from benchmarks/results/*.json: tables in docs/measurements.md, the first lines in README.md.

python benchmarks/measured.py            print them
python benchmarks/measured.py --write    put them between the markers of both files
python benchmarks/measured.py --check    exit 1 where one of them says something else (but for the age of a figure), or
                                         where a file mixes figures of different code, does not say whose they are,
                                         names code of no commit (but for exceptions.json), or is too old
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from assignment_tables import TABLES as OF_ASSIGNMENT
from entries import AGES, age, of_no_commit, problems, read, source, too_old
from fault_tables import faults, faults_ssh, preemption
from graph_tables import TABLES as OF_GRAPHS
from graph_tables import ratio
from headlines import FRONT, HEADLINES, graphs_of, road_graph
from loader_tables import TABLES as OF_LOADERS
from partition_tables import TABLES as OF_PARTITIONING
from parts_tables import TABLES as OF_PARTS

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check and (wrong := [*problems(), *of_no_commit(), *too_old()]):
        sys.exit("\n".join(wrong))
    for path, written in ((ROOT / "README.md", front()), (ROOT / "docs/measurements.md", f"{headlines()}\n{tables()}")):
        text = path.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        section = f"{BEGIN}\n{written}{END}"
        if options.write:
            path.write_text(before + section + after)
        elif not options.check:
            sys.stdout.write(section + "\n")
        elif re.sub(AGES, "", before + section + after) != re.sub(AGES, "", text):
            sys.exit(f"{path.name} says something else than benchmarks/results → python benchmarks/measured.py --write")


def tables() -> str:
    """All tables whose result is there."""
    return "\n".join(write(result) for name, write in TABLES.items() if (result := read(name)))


def headlines() -> str:
    """One line for each result that has one, but for those against which something is known."""
    lines, in_doubt = ["| what | measured | by | on |", "|---|---|---|---|"], []
    for name, tell in HEADLINES.items():
        result = read(name)
        if result and is_in_doubt(result):
            in_doubt.append(f"`{name}.py`")
        elif result:
            what, figure = tell(result)
            lines.append(f"| {what} | {figure} | `benchmarks/{name}.py` | {age(result)} |")
    if in_doubt:
        lines += ["", f"Left out, with what is known against them below: {', '.join(in_doubt)}."]
    return "\n".join(lines) + "\n"


def front() -> str:
    """The short lines of README, without ages."""
    lines = ["| what | measured | by | on |", "|---|---|---|---|"]
    for name, tell in FRONT.items():
        if (result := read(name)) and not is_in_doubt(result):
            what, figure = tell(result)
            lines.append(f"| {what} | {figure} | `{name}.py` | {re.sub(AGES, '', age(result))} |")
    return "\n".join(lines) + "\n"


def is_in_doubt(result: dict[str, Any]) -> bool:
    """Whether something is known against it, or no commit holds its code."""
    is_of_no_commit = result.get("excepted", {"code_is_of": ""})["code_is_of"] is None
    return bool(result.get("known")) or is_of_no_commit


def samplers(result: dict[str, Any], title: str, command: str, note: str) -> str:
    """`note`: what the figures of files with origins mean; older ones say themselves what is known against them."""
    graphs = graphs_of(result)
    first, *others = result[graphs[0]]["contenders"]
    lines = [f"**{title}** (time of the peer ÷ ours, median of paired ratios, quartiles)\n"]
    lines += [f"| graph | {first} | " + " | ".join(others) + " |", "|---|---|" + "---|" * len(others)]
    for name in graphs:
        contenders = result[name]["contenders"]
        seeds = result.get("batch", result[name].get("batch")) / contenders[first]["seconds"]["median"]
        cells = [sampler_ratio(contenders[other]) for other in others]
        load = result[name]["foreign_cores"]
        lines.append(f"| {name} (others used {load:.2f} cores) | {seeds:,.0f} seeds/s | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *([] if "old" in result else [note]), source(result, command)])


def sampler_ratio(found: dict[str, Any]) -> str:
    many = found.get("ratio_to_graphmill_threads")
    return ratio(found["ratio_to_graphmill"]) + (f"; {many['median']:.3g} to all our threads" if many else "")


def step(result: dict[str, Any]) -> str:
    lines = [
        "**One training step**, Reddit-shaped graph (synthetic), 2-layer GraphSAGE, fan-outs [25, 10], batch 1024\n"
    ]
    lines += ["| form | ms | time ÷ graphmill (quartiles) | peak MiB above the data |", "|---|---|---|---|"]
    for name, value in result["contenders"].items():
        memory = result["peak_mib"].get(name)
        cell = f"{memory:.0f}" if memory is not None else ""
        lines.append(
            f"| {name} | {value['seconds']['median'] * 1e3:.0f} | {ratio(value['ratio_to_graphmill'])} | {cell} |"
        )
    rates = result["matrix_rates_gflops"]
    gflop, left_out, ahead = result["gflop"], result["gflop_left_out"], result["pipelined"]
    performed = (gflop - left_out) / gflop  # of the dense form's operations
    achieved = result["gflops_achieved"] * performed
    reached = ", ".join(f"{achieved / rate:.0%} of {name}'s {rate:.0f}" for name, rate in rates.items())
    best = max(rate for name, rate in rates.items() if name.endswith("float32"))
    share_ahead = gflop * performed / ahead["seconds_per_step"] / best
    shares = ", ".join(f"{name} {share:.1%}" for name, share in result["phases_share"].items())
    lines.append(
        f"\n{gflop - left_out:.1f} GFLOP are performed in a step, at {achieved:.0f} GFLOP/s: {reached}. (In dense form"
        f" a step has {gflop:.1f} GFLOP; {left_out:.1f} of them multiply zeros that ReLU and dropout made, and are left"
        f" out of the gradient of the weight. Counted as if they were performed, the rate is"
        f" {result['gflops_achieved']:.0f} GFLOP/s, {result['gflops_achieved'] / best:.0%} of the best float32"
        f" product's.) Phases: {shares} (gathering includes the first layer's mean over neighbours). With batches made"
        f" ahead on a thread, as in training: {ahead['seconds_per_step'] * 1e3:.0f} ms a step, {share_ahead:.0%} of the"
        f" best float32 product's rate by operations performed, {ahead['waiting_share']:.1%} of the time spent"
        " waiting.\n"
    )
    return "\n".join(lines) + "\n" + source(result, "python benchmarks/step.py")


def accuracy(result: dict[str, Any]) -> str:
    lines = ["**Accuracy on real data**: test split, best-val checkpoint, mean ± sd. MAE is in the unit of the data\n"]
    lines += [
        "| recipe | measure | mean ± sd | last value repeated | seeds |",
        "|---|---|---|---|---|",
    ]
    for name, value in result.items():
        if not isinstance(value, dict) or "test" not in value:
            continue
        for column, found in value["test"].items():
            naive = f"{found['last_value']:.3f}" if "last_value" in found else ""
            digits = 4 if column == "micro_f1" else 3
            spread = f"{found['mean']:.{digits}f} ± {found['sd']:.{digits}f}"
            lines.append(f"| {name} | {column} | {spread} | {naive} | {len(value['seeds'])} |")
    for name, value in result.items():
        if isinstance(value, dict) and "near_copies" in value:
            lines.append("\n" + near_copies(name, value["near_copies"]))
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/accuracy.py")


def near_copies(name: str, found: dict[str, Any]) -> str:
    return (
        f"{name}: {found['share']:.0%} of the test nodes have a near-copy among the training nodes ({found['what']});"
        f" micro-F1 {found['micro_f1_with']:.3f} on these, **{found['micro_f1_without']:.3f} on the others**."
    )


def traffic_step(result: dict[str, Any]) -> str:
    share, rate, product = (result[key] for key in ("share_of_product", "gflops_achieved", "gflops_product"))
    data = result["data_path"]
    lines = [
        f"**One training step of DCRNN**, {road_graph(result)}, batch 64, 12 → 12 steps, 64 units, 2 layers,"
        f" {result['threads']} threads\n",
        "| | s | samples/s | time ÷ graphmill (quartiles) |",
        "|---|---|---|---|",
    ]
    for name, value in result["contenders"].items():
        cells = [
            f"{value['seconds']['median']:.2f}",
            f"{value['samples_per_s']:.1f}",
            ratio(value["ratio_to_graphmill"]),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append(
        f"\n{result['gflop']:.0f} GFLOP a step at {rate['median']:.0f} GFLOP/s, {share['median']:.0%} of what our own"
        f" matrix product reaches here ({product['median']:.0f}). The data path holds {data['peak_mib']:.1f} MiB for"
        f" {data['raw_mib']:.1f} MiB of readings: {data['peak_over_raw']:.2f} times.\n"
    )
    return "\n".join(lines) + "\n" + source(result, "python benchmarks/traffic_step.py --peer FOLDER")


def submit(result: dict[str, Any]) -> str:
    cells = ", ".join(f"{name} {spread['median']:.3f} s" for name, spread in result["seconds"].items())
    return f"**Submitting** ({result['rounds']} rounds): {cells}. " + source(result, "python benchmarks/submit.py")


def monitor(result: dict[str, Any]) -> str:
    cells = ", ".join(f"{name} {case['core_share']:.2%} of a core" for name, case in result["cases"].items())
    return f"**Monitor** at 1 Hz for {result['seconds']:.0f} s: {cells}. " + source(
        result, "python benchmarks/monitor.py"
    )


def schemes(result: dict[str, Any]) -> str:
    lines = [f"**Synchronisation schemes**: {result['dataset']}, {result['ranks']} ranks, {result['epochs']} epochs\n"]
    lines += [
        "| scheme | k | val micro-F1 | test micro-F1 | syncs | modelled MiB | payload MiB | interface MiB |",
        "|" + "---|" * 8,
    ]
    for row in result["rows"]:
        spread = f" ± {row['test_sd']:.4f}" if row["test_sd"] is not None else ""
        lines.append(
            f"| {row['scheme']} | {row['k']} | {row['val']:.4f} | {row['test']:.4f}{spread} | {row['syncs']} |"
            f" {row['modelled_mib']:.1f} | {row['payload_mib']:.1f} | {row['interface_mib']:.1f} |"
        )
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/schemes.py")


def startup(result: dict[str, Any]) -> str:
    cells = ", ".join(f"`{name}` {spread['median']:.2f} s" for name, spread in result["seconds"].items())
    runs = ", ".join(
        f"{run['ranks']} rank{'s' * (run['ranks'] > 1)} {run['wall_s']['median']:.1f} s,"
        f" {run['processor_s']['median']:.1f} s of processors"
        for run in result.get("train", ())
    )
    trained = f"A whole `graphmill train` of one epoch of 400 nodes: {runs}. " if runs else ""
    plain = result.get("plain_torch")
    if plain is not None:
        times = plain["ratio_to_one_rank"]["median"]
        trained += (
            f"A script with torch alone, on the whole graph: {plain['wall_s']['median']:.1f} s,"
            f" {times:.2f} times as long as 1 rank. "
        )
    return f"**Start-up**: {cells}. {trained}" + source(result, "python benchmarks/startup.py")


def equality(result: dict[str, Any]) -> str:
    differences = ", ".join(
        f"{ranks} ranks {found['loss']:.1e} (validation {found['val_loss']:.1e})"
        for ranks, found in result["largest_difference"].items()
        if int(ranks) > 1
    )
    is_old = "seeds_are_the_training_set" in result
    found = result["seeds_are_the_training_set" if is_old else "trained_on_the_training_set"]
    covered, worlds = all(found.values()), len(found)
    what = "Scheduled seeds" if is_old else "The nodes whose loss was trained on"
    what += " of an epoch are the training set, none twice"
    return (
        f"**Equality** on {result['experiment']}, one global batch of {result['global_batch']},"
        f" {result['epochs']} epochs, dropout on: largest difference of an epoch's loss from one process:"
        f" {differences}. {what}, for 1 to {worlds} ranks: {'yes' if covered else 'no'}. "
    ) + source(result, "python benchmarks/equality.py")


def kills(result: dict[str, Any]) -> str:
    counted = (
        f"; all after the first sync, the victim died of it; {result['num_not_counted']} more came too late"
        if "num_not_counted" in result
        else ""
    )
    same = "in weights, metrics, best checkpoint and test measures" if "num_not_counted" in result else "in weights"
    return (
        f"**Resume**: {result['num_kills']} SIGKILLs at random moments of {result['num_runs']} runs"
        f" ({result['kills_in_checkpoint_write']} inside a checkpoint write{counted}),"
        f" {result['num_sigterms']} SIGTERMs: {result['num_identical']} of {result['num_runs']} runs ended identical to"
        f" the undisturbed one {same}. "
    ) + source(result, "python benchmarks/kills.py")


def scaling(result: dict[str, Any]) -> str:
    parts = ["**Scaling on this machine**, one thread a rank; mean ± sd over repeats, first epoch left out\n"]
    for name, study in result.items():
        if not isinstance(study, dict) or study.get("kind") not in ("strong", "weak"):
            continue
        parts.append(f"`{name}`: {study['work']}\n")
        parts += [
            "| ranks | s an epoch | samples/s | speed-up | these cores at best | efficiency | in collectives |",
            "|" + "---|" * 7,
        ]
        for row in study["rows"]:
            speedup = row.get("speedup", row.get("scaled_speedup"))
            share = row["sync_sec"] / row["epoch_time_sec"]
            parts.append(
                f"| {row['ranks']} | {row['epoch_time_sec']:.2f} ± {row['epoch_time_sec_sd']:.2f} |"
                f" {row['throughput_samples_per_sec']:,.0f} | {speedup:.2f} |"
                f" {min(row['ranks'], row['cores_per_host'])} | {row['efficiency']:.0%} | {share:.0%} |"
            )
        busy = max(row["others_cores_avg"] for row in study["rows"])
        parts.append(f"\nOther processes used up to {busy:.2f} cores meanwhile.\n")
    return "\n".join(parts) + "\n" + source(result, "python benchmarks/scaling.py")


def sensitivity(result: dict[str, Any]) -> str:
    lines = []
    for name, study in result.items():
        if not isinstance(study, dict) or study.get("kind") != "sensitivity":
            continue
        lines += [f"**What the speed depends on**: `{name}`\n", "| " + " | ".join([*study["keys"], "samples/s"]) + " |"]
        lines += ["|" + "---|" * (len(study["keys"]) + 1)]
        for each in study["combinations"]:
            rate = each["throughput"]
            lines.append("| " + " | ".join([*each["values"], f"{rate['mean']:,.0f} ± {rate['sd']:,.0f}"]) + " |")
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/scaling.py") if lines else ""


def limits(result: dict[str, Any]) -> str:
    lines = [
        f"**Time limits of {result['limit_s']} s**, two hosts, dev cluster: the same run without a limit, and cut into"
        " attempts\n",
        "| run | ended | attempts | jobs | steps made twice, at worst | last checkpoint |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["runs"]:
        lost = str(max(row["steps_lost"], default=0))
        same = {True: "bit-identical", False: "DIFFERS", None: ""}[row.get("identical")]
        lines.append(
            f"| {row['name']} | {row['status'].replace('_', ' ')} | {row['attempts']} | {row['jobs']} | {lost}"
            f" | {same} |"
        )
    return "\n".join(lines) + "\n\n" + source(result, "python benchmarks/limits.py")


def pipeline(result: dict[str, Any]) -> str:
    """What `pipeline plan` predicts of a stage, and what its job took."""
    bars = result["bars"]
    lines = [
        "**Pipelines**: predicted by `graphmill pipeline plan` ÷ needed by the stage's job on a dev cluster"
        f" (bars: {bars['time']:.0%} of the time, {bars['memory']:.0%} of the memory;"
        " memory is the high-water mark of the rank)\n",
        "| pipeline | stage | job s | time ÷ | job MiB | memory ÷ |",
        "|" + "---|" * 6,
    ]
    for stage in result["stages"]:
        time_ratio, memory_ratio = (stage[f"predicted_{unit}"] / stage[f"job_{unit}"] for unit in ("s", "mib"))
        cells = (f"{stage['job_s']:.0f}", f"{time_ratio:.2f}", f"{stage['job_mib']:.0f}", f"{memory_ratio:.2f}")
        lines.append("| " + " | ".join((stage["recipe"], stage["stage"], *cells)) + " |")
    return "\n".join([*lines, "", source(result, "python benchmarks/pipeline.py")])


def pipeline_kills(result: dict[str, Any], what: str = "Pipelines of jobs") -> str:
    ways = ", ".join(f"{count} {way}" for way, count in result["by_way"].items())
    if stages := result.get("by_stage"):
        ways += "; in the stage " + ", ".join(f"{name} {count}" for name, count in stages.items())
    return (
        f"**{what}, killed**: {result['kills']} kills at random moments ({ways}) of {result['pipelines']}"
        f" submitted pipelines: {result['equal']} ended with the weights of the undisturbed one, bit for bit;"
        f" {result['run_twice']} stages ran twice. "
    ) + source(result, "python benchmarks/pipeline_kills.py")


def before_after(result: dict[str, Any]) -> str:
    """Two versions of graphmill."""
    found = {name: value for name, value in result.items() if "wall_s" in value}
    before, after = (next(iter(found.values()))[side] for side in ("before", "after"))
    lines = [
        f"**Before and after the task kinds**: commit {before['commit'][:8]} ÷ commit {after['commit'][:8]}, above 1 is"
        " faster (median of paired rounds, quartiles)\n",
        "| what | before s | after s | before ÷ after | by CPU time | others' cores |",
        "|" + "---|" * 6,
    ]
    for name, value in found.items():
        wall, cpu = value["wall_s"], value["cpu_s"]
        seconds = [f"{wall[side]['median']:.3g}" for side in ("before", "after")]
        ratios = [ratio(kind["before_over_after"]) for kind in (wall, cpu)]
        lines.append("| " + " | ".join((name, *seconds, *ratios, f"{value['foreign_cores']:.2f}")) + " |")
    return "\n".join([*lines, "", source(result, "python benchmarks/before_after.py --before PYTHON")])


def dispatch(result: dict[str, Any]) -> str:
    """What DCRNN's cell would pay as an operator of torch.library."""
    lines = [
        f"**Dispatch**: seconds of 48 steps of DCRNN's cell and their backward, {result['threads']} thread\n",
        "| size | autograd.Function | torch.library | torch.library ÷ autograd.Function |",
        "|" + "---|" * 4,
    ]
    for name, found in result["sizes"].items():
        seconds = [f"{found[way]['median']:.3g}" for way in ("autograd.Function", "torch.library")]
        lines.append(f"| {name} | {' | '.join(seconds)} | {ratio(found['ratio'])} |")
    return "\n".join([*lines, "", source(result, "python benchmarks/dispatch.py")])


def mutations(result: dict[str, Any]) -> str:
    verdicts = result["mutations"]
    caught = sum(one["verdict"] == "caught" for one in verdicts)
    others = [f"{one['name']}: {one['verdict']}" for one in verdicts if one["verdict"] != "caught"]
    return (
        f"**Mutations**: {caught} of {len(verdicts)} mistakes put into the code one at a time are caught by a"
        f" test{'; not: ' + ', '.join(others) if others else ''}. They were chosen by who wrote the code and its tests;"
        " of 82 that an outsider chose in newer code, 30 were caught by no test then, and of 40 that another one chose"
        " after that in other places, 18 by no fast test of the place, of 40 that a third one chose 17 by no fast test"
        " and 14 by no test that was run, of 40 that a fourth one chose 22 by no test that was run, of 30 that a"
        " fifth one chose 15. What was added to the list since the date below has no recorded run. "
    ) + source(result, "python benchmarks/mutations.py")


TABLES = {
    "sampler": lambda r: samplers(
        r,
        "Raw sampling",
        "python benchmarks/sampler.py --data FOLDER",
        "Ratios are to our one thread; all make edge ids.\n",
    ),
    "sampler_dgl": lambda r: samplers(
        r,
        "Raw block sampling",
        "python benchmarks/sampler_dgl.py",
        "Ratios are between equal numbers of threads; DGL makes edge ids, and so do ours beside it.\n",
    ),
    "step": step,
    "traffic_step": traffic_step,
    "dispatch": dispatch,
    "accuracy": accuracy,
    **OF_ASSIGNMENT,
    **OF_GRAPHS,
    **OF_LOADERS,
    **OF_PARTS,
    **OF_PARTITIONING,
    "schemes": schemes,
    "equality": equality,
    "kills": kills,
    "scaling": lambda r: "\n".join(filter(None, [scaling(r), sensitivity(r)])),
    "limits": limits,
    "faults": faults,
    "preemption": preemption,
    "faults_ssh": faults_ssh,
    "submit": submit,
    "pipeline": pipeline,
    "pipeline_kills": pipeline_kills,
    "pipeline_kills_can": lambda r: pipeline_kills(r, "The five stages of `pipeline-can`, on generated captures"),
    "before_after": before_after,
    "mutations": mutations,
    "monitor": monitor,
    "startup": startup,
}


if __name__ == "__main__":
    main()
