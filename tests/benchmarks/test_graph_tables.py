"""Tables of graphs: they name a case that the statistic wins, a form not measured, a limit that was not met."""

import graph_tables

NO_ORIGIN: dict = {"origins": {}}


def case(statistic: float, *models: float) -> dict:
    of_model = {"num_parameters": 10, "f1": list(models), "auc": list(models)}
    of_model |= {"precision": [0.5, 0.5], "recall": [1.0, 1.0]}
    return {
        "num_test": 50,
        "num_attacked": 20,
        "statistic": {"f1": statistic, "auc": statistic, "precision": 1.0, "recall": 1.0},
        "models": {"GAT": of_model, "fusion": {**of_model, "f1": [0.1], "auc": [0.1]}},
        "seeds": [0, 1],
    }


def test_cases_that_the_statistic_wins_are_named_and_the_others_are_not():
    told = graph_tables.intrusion({"easy": case(0.5, 0.8, 0.9), "hard": case(0.9, 0.6, 0.7), **NO_ORIGIN})
    (sentence,) = [line for line in told.splitlines() if line.startswith("No model has a higher F1")]
    assert "hard" in sentence
    assert "easy" not in sentence
    assert "| easy | 20 of 50 | 0.571 | 0.500 |" in told, "an alarm at every window stands beside it"
    assert "| easy | 30 | 0.0 | 66.7 |" in told, "false alarms among the windows without an attack"


def test_a_tie_is_not_a_win():
    assert not graph_tables.beats_statistic(case(0.75, 0.7, 0.8), "f1")


def test_a_form_over_the_memory_limit_has_no_figure_and_no_headline():
    spread = {"median": 1.0, "q25": 1.0, "q75": 1.0}
    measured = {"seconds": spread, "ratio_to_graphmill": spread, "extra_mib": 10.0}
    floor = {"bytes": 1, "flop": 1, "copy_bytes_per_s": spread, "product_flop_per_s": spread}

    def entry(kind: str, num_edges: int, peer: dict) -> dict:
        contenders = {"graphmill": measured, "PyG": peer}
        return {"kind": kind, "num_edges": num_edges, "floor": floor, "contenders": contenders}

    slower = {**measured, "ratio_to_graphmill": {**spread, "median": 7.0}, "extra_mib": 40.0}
    found = {f"{kind}-1": entry(kind, 1000, slower) for kind in ("gat", "gatv2")}
    found |= {f"{kind}-2": entry(kind, 9000, {"left_out": "more than 6.0 GiB"}) for kind in ("gat", "gatv2")}
    assert "more than 6.0 GiB" in graph_tables.attention({**found, **NO_ORIGIN})
    what, figure = graph_tables.attention_headline({**found, **NO_ORIGIN})
    assert "1,000 edges" in what
    assert "7 times" in figure
    assert "1/4 " in figure


def test_a_batch_over_its_limit_and_a_larger_one_that_fits_are_told():
    cell = {
        **{"set": "can", "limit_mib": 1024, "attempts": 5, "safe": 100, "predicted_mib": 900.0, "peak_mib": 1100.0},
        **{"peak_over_mib": 1000.0, "within": False, "over_exceeds": False},
    }
    told = graph_tables.batch_size({"over": 1.15, "target": 0.95, "cells": [cell], **NO_ORIGIN})
    assert "over the limit" in told
    assert "which fits" in told


def test_a_run_that_is_worse_and_silent_is_counted():
    row = {
        **{"measure": "mae", "higher_is_better": False, "defaults": [2.0, 3.0], "tuned": [1.0], "best": "last_value"},
        "baselines": {"last_value": 1.5},
        "not_below": {"defaults": [False, False], "tuned": [True]},
        "said": {"defaults": [True, False], "tuned": [False]},
    }
    assert graph_tables.silent(row) == 1
    told = graph_tables.defaults("series")({"walks": row, **NO_ORIGIN})
    assert "| walks | mae | 2.50 ± 0.71 | 1.00 | last_value | 1.50 | 0 of 2, 1 of 1 | 1 |" in told
