"""Every line of the second look at 0.1.0 has a mishap here, or a test elsewhere that would see it again."""

import ast
from functools import cache
from pathlib import Path

import pytest
from rows import ROWS

TESTS = Path(__file__).parents[1]
SECOND_LOOK = TESTS.parents[1] / "shared" / "reference" / "second_look.md"

# R results, D data, M models and loaders, C and S clusters, W words, H honesty of figures, K correctness and security,
# T the mutations that survived, in their order.
NUMBERS = {"R": 11, "D": 9, "M": 4, "C": 7, "S": 17, "W": 6, "H": 9, "K": 5, "T": 12}
LINES = [f"{letter}{number}" for letter, last in NUMBERS.items() for number in range(1, last + 1)]

OPEN: dict[str, str] = {}

ELSEWHERE: dict[str, str] = {
    "D9": "graph/test_topology.py::test_what_both_directions_need_at_their_peak",
    "D4": "tasks/node_classification/test_standardised.py::test_it_is_what_a_person_would_do_with_scikit_learn",
    "R1": "report/test_configurations.py::test_a_grid_has_four_rows",
    "R2": "tasks/test_classification.py::test_scikit_learn_says_the_same",
    "R5": "tasks/node_classification/test_task.py::test_degrees_of_the_last_neighbours_are_those_of_the_graph",
    "R6": "report/test_scaling.py::test_strong_and_weak_do_not_overwrite_each_other",
    "R7": "integration/test_use_the_model.py::test_a_stranger_computes_the_reported_measures_of_nodes",
    "R8": "report/test_compare.py::test_a_grid_has_a_row_for_each_configuration",
    "R9": "report/test_pareto.py::test_one_rank_communicates_nothing",
    "R11": "cli/test_watch_progress.py::test_progress_of_a_traffic_run",
    "D1": "docs/test_own_series.py::test_from_a_file_to_a_forecast",
    "D5": "integration/test_use_the_model.py::test_the_commands_on_moved_data_and_on_others",
    "D6": "tasks/test_planning.py::test_a_plan_without_the_data_is_made_from_published_sizes_and_cannot_be_trained",
    "M1": "integration/test_own_task.py::test_any_number_of_ranks_learns_the_same",
    "M3": "sample/test_loader.py::test_what_would_be_taken_for_something_else_is_refused",
    "M4": "train/test_learner.py::test_every_optimizer_is_torchs_to_the_bit",
    "C1": "cluster/jobs/test_lifecycle.py::test_a_successor_goes_on_where_no_script_had_its_say",
    "C2": "cluster/jobs/test_pipeline_jobs.py::test_a_stage_that_spans_jobs",
    "C3": "train/test_device.py::test_a_build_that_has_no_code_for_a_gpu_is_known",
    "C4": "cluster/jobs/test_pull_the_end.py::test_how_the_jobs_ended_comes_with_the_runs",
    "C6": "cli/test_script.py::test_a_script_does_not_depend_on_where_it_was_written_or_is_submitted",
    "C7": "slurm/test_both_releases.py::test_what_both_releases_answer_reads_the_same",
    "S1": "integration/test_unreadable.py::test_no_good_checkpoint_is_lost_to_a_disk_that_fails",
    "S2": "cluster/launch/test_run.py::test_two_launchers_of_one_run_are_kept_apart",
    "S3": "record/test_lock.py::test_a_second_one_is_told_who_owns_it_and_changes_nothing",
    "S4": "cluster/jobs/test_next_job.py::test_a_controller_that_is_away_is_asked_again",
    "S5": "cluster/jobs/test_lifecycle.py::test_a_run_goes_on_elsewhere_when_it_loses_a_host",
    "S6": "integration/test_torchrun.py::test_a_run_that_is_being_trained_is_refused",
    "S7": "cluster/launch/test_judge.py::test_a_rank_whose_host_reboots_is_lost_and_its_host_is_named",
    "S8": "train/test_time_left.py::test_it_asks_once_more_before_it_leaves_and_stays_where_the_limit_was_extended",
    "S9": "record/test_attempts.py::test_attempts_that_began_with_other_code_are_named",
    "S10": "cluster/jobs/test_next_job.py::test_a_job_records_itself_once",
    "S11": "cluster/jobs/test_submit.py::test_unlike_cells_keep_to_so_many_at_a_time_together",
    "S12": "cluster/jobs/test_containers.py::test_ranks_and_staging_see_the_run_the_data_and_their_copies",
    "S13": "train/test_peers.py::test_a_first_host_whose_name_means_nothing_here_is_told",
    "S14": "cli/test_told_jobs.py::test_a_job_that_has_failed_already_is_no_success",
    "S15": "verify/test_damage.py::test_what_a_killed_writer_left_is_a_warning",
    "S16": "cli/test_dry_runs.py::test_a_dry_run_leaves_the_disk_as_it_was",
    "S17": "cluster/launch/ssh/test_launch.py::test_a_second_ctrl_c_ends_at_once",
    "W1": "monitor/test_sampler.py::test_it_heeds_no_signal_of_the_ranks_and_ends_with_its_parent",
    "W2": "cli/test_fitting.py::test_nothing_is_cut",
    "W3": "cli/test_interrupts.py::test_an_interrupted_import_leaves_no_traceback",
    "W4": "spec/test_synonyms.py::test_what_is_not_ours_is_likened_to_nothing",
    "W5": "cli/test_watch_progress.py::test_one_look_ends_as_the_run_did",
    "W6": "benchmarks/test_smoke.py::test_pygs_forms_compute_the_same",
    "H1": "benchmarks/test_entries.py::test_an_entry_without_origin_is_an_error",
    "H2": "benchmarks/test_entries.py::test_a_later_entry_of_other_code_is_an_error",
    "H3": "benchmarks/test_foreign.py::test_an_orphan_of_another_session_is_own_by_its_mark",
    "H4": "benchmarks/test_smoke.py::test_sampler",
    "H5": "benchmarks/test_smoke.py::test_step",
    "H6": "benchmarks/test_smoke.py::test_the_monitor_is_no_rank",
    "H7": "benchmarks/test_smoke.py::test_accuracy_judges_near_copies_apart",
    "H8": "benchmarks/test_smoke.py::test_equality",
    "H9": "benchmarks/test_smoke.py::test_traffic_step",
    "K1": "native/test_sources.py::test_every_native_file_is_a_reason_to_build_again",
    "K2": "integration/test_handed_over.py::test_what_would_run_it_is_refused_with_all_that_it_names",
    "K3": "native/test_sampler.py::test_ids_out_of_range_are_refused_with_their_place",
    "K4": "nn/test_graphsage.py::test_weights_that_are_nan_show_in_the_logits",
    "K5": "sync/test_schemes.py::test_of_unequal_shares_deferred_allreduce_weighs_seeds_local_sgd_and_diloco_ranks",
    "T1": "train/test_seam.py::test_the_test_split_is_judged_with_the_best_weights_and_not_the_last",
    "T2": "integration/test_failures.py::test_replicas_that_differ_end_the_run_on_all_ranks",
    "T3": "integration/test_failures.py::test_a_signal_to_some_ranks_stops_all_at_the_same_step",
    "T4": "tasks/node_classification/test_task.py::test_an_epoch_is_trained_on_the_training_nodes_and_on_nothing_else",
    "T5": "sync/test_group.py::test_the_interface_counts_a_known_transfer",
    "T6": "tasks/node_classification/test_task.py::test_a_strangers_model_is_evaluated_with_all_neighbours",
    "T7": "sample/test_loader.py::test_every_epoch_draws_other_neighbours_of_the_same_seeds",
    "T8": "train/test_peers.py::test_ranks_that_differ_are_refused",
    "T9": "sync/test_schemes.py::test_averaged_moments_are_the_mean_of_the_ranks_moments",
    "T10": "sample/test_schedule.py::test_a_training_subset_is_drawn_by_the_rng_seed",
    "T11": "train/test_checkpoint.py::test_a_checkpoint_has_its_name_only_when_all_of_it_is_durable",
    "T12": "train/test_checkpoint.py::test_a_checkpoint_has_its_name_only_when_all_of_it_is_durable",
}


@cache
def names_in(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_a_test(line):
    node = ELSEWHERE.get(line)
    if node is not None:
        file, name = node.split("::")
        assert name in names_in(TESTS / file), node
    elif line not in OPEN:
        assert any(row.line == line for row in ROWS), f"no row here and no test elsewhere is for {line}"


def test_what_is_open_is_no_line_with_a_test_elsewhere():
    assert OPEN.keys() <= set(LINES) - ELSEWHERE.keys()


def test_two_hundred_mishaps_of_different_names():
    names = [row.id for row in ROWS]
    assert len(set(names)) == len(names)
    assert len(names) >= 200
    assert {row.line for row in ROWS} - {""} <= set(LINES)


def test_the_lines_are_those_of_the_document():
    if not SECOND_LOOK.exists():
        pytest.skip(f"{SECOND_LOOK} is not here")
    cells = [row.split("|")[1].strip() for row in SECOND_LOOK.read_text(encoding="utf-8").splitlines() if "|" in row]
    named = [cell for cell in cells if cell[:1].isalpha() and cell[1:].isdigit()]
    assert named == [line for line in LINES if line[0] != "T"]
