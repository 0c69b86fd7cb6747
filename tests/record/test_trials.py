"""What a search knows of its trials."""

from graphmill.record.trials import SearchTrial, TrialEnd


def test_a_trial_knew_no_end_of_those_that_ran_when_it_was_asked_for():
    ended = TrialEnd(trial=0, state="complete", of_seeds=(0.5,))
    trials = [SearchTrial(number, {}, ended) for number in range(3)]
    third = SearchTrial(3, {}, None, running=(1,))
    assert [each.end for each in third.knew([*trials, third])] == [ended, None, ended]
