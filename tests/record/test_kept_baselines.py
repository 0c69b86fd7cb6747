"""What baselines scored, by what it depends on."""

import pytest

from graphmill.base.errors import UserError
from graphmill.record.kept_baselines import FOLDER, KeptBaselines
from graphmill.spec.sign import SignSpec


def test_scores_are_those_of_the_data_wherever_they_lie_and_of_no_others(make_plan, tmp_path):
    own = make_plan().task

    def of(**dataset: object):
        return KeptBaselines.of(tmp_path, own.model_copy(update={"dataset": own.dataset.model_copy(update=dataset)}))

    here = of()
    assert of(path="/elsewhere/toy") == here
    assert of(checksum="1" * 16) != here
    assert of(num_train=59) != here
    assert KeptBaselines.of(tmp_path, own.model_copy(update={"num_neighbors": (7,)})) != here
    of_two_hops = SignSpec.model_validate({"hops": len(own.num_neighbors)})
    sign = own.model_copy(update={"num_neighbors": (), "model": of_two_hops})
    assert KeptBaselines.of(tmp_path, sign) == here, "they hang on how many hops are read, and on no model"
    three = sign.model_copy(update={"model": of_two_hops.model_copy(update={"hops": 3})})
    assert KeptBaselines.of(tmp_path, three) != here
    here.keep("majority", {"val": {"micro_f1": 0.5}})
    here.keep("labels", {"val": {"micro_f1": 0.6}})
    assert here.read().keys() == {"majority", "labels"}
    assert of(checksum="1" * 16).read() == {}


def test_what_other_code_scored_is_scored_again(make_plan, tmp_path, monkeypatch):
    own = make_plan().task
    before = KeptBaselines.of(tmp_path, own)
    monkeypatch.setattr("graphmill.record.kept_baselines.code_checksum", lambda: "of another version")
    assert KeptBaselines.of(tmp_path, own) != before


def test_nothing_is_kept_through_a_link(make_plan, tmp_path):
    """A logs root that was copied may hold one, to any folder."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / FOLDER).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="nothing is written through it"):
        KeptBaselines.of(tmp_path, make_plan().task).keep("majority", {"val": {"micro_f1": 0.5}})
    assert not list((tmp_path / "elsewhere").iterdir())
