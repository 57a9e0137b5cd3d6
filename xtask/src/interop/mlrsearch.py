"""Reads simulated servers from standard input, and searches for their rates with MLRsearch 1.2.1 (PyPI).

Input: {"servers": [{"goals": [...], "min", "max", "capacity", "floor_from", "floor", "trials": [[rate, seconds, missing, of], ...]}]}
Output: for each server, "classes": {rate: [class of each goal]} from the given trials, and "bounds": [[lower, upper] of each goal]
from a search by the library.
"""

import json
import logging
import sys
from types import SimpleNamespace

from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal
from MLRsearch.target_stat import TargetStat


def classify(goal, trials):
    target = SimpleNamespace(
        loss_ratio=goal["loss_ratio"],
        exceed_ratio=goal["exceed_ratio"],
        trial_duration=goal["final_s"],
        duration_sum=goal["sum_s"],
    )
    stat = TargetStat(target)
    for rate, seconds, missing, of in trials:
        stat.add(MeasurementResult(intended_duration=seconds, intended_load=rate, offered_count=of, loss_count=missing))
    optimistic, pessimistic = stat.estimates()
    if optimistic != pessimistic:
        return "undecided"
    return "lower" if optimistic else "upper"


class Simulated(AbstractMeasurer):
    def __init__(self, server):
        self.server = server

    def measure(self, intended_duration, intended_load):
        server = self.server
        loss = max(0.0, 1.0 - server["capacity"] / intended_load)
        if intended_load >= server["floor_from"]:
            loss = max(loss, server["floor"])
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=10**9,
            loss_count=round(loss * 10**9),
        )


def search(server):
    goals = [
        SearchGoal(
            loss_ratio=goal["loss_ratio"],
            exceed_ratio=goal["exceed_ratio"],
            relative_width=goal["width"],
            initial_trial_duration=goal["initial_s"],
            final_trial_duration=goal["final_s"],
            duration_sum=goal["sum_s"],
            fail_fast=False,
        )
        for goal in server["goals"]
    ]
    config = Config()
    config.goals, config.max_load, config.min_load = goals, float(server["max"]), float(server["min"])
    config.warmup_duration, config.search_duration_max = None, 60.0
    results = MultipleLossRatioSearch(config=config).search(Simulated(server), debug=lambda text: None)
    bounds = []
    for goal in goals:
        result = results[goal]
        pair = (result.relevant_lower_bound, result.relevant_upper_bound)
        bounds.append([None if bound is None else float(bound) for bound in pair])
    return bounds


logging.disable(logging.CRITICAL)
answers = []
for server in json.load(sys.stdin)["servers"]:
    loads = {}
    for trial in server["trials"]:
        loads.setdefault(trial[0], []).append(trial)
    classes = {rate: [classify(goal, trials) for goal in server["goals"]] for rate, trials in loads.items()}
    answers.append({"classes": classes, "bounds": search(server)})
json.dump(answers, sys.stdout)
