"""What a class of tasks lacks is said before a run, not by its first evaluation."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.kinds import all_kinds
from graphmill.tasks.check_model import _refuse_incomplete
from graphmill.tasks.stores import load


class Lacking:
    def batches(self): ...

    def weights(self): ...

    def loss_sum(self): ...


def test_a_missing_member_is_named():
    with pytest.raises(UserError, match=r"Lacking has no evaluate") as refused:
        _refuse_incomplete(Lacking, "mine.page:KIND")
    assert "define evaluate" in refused.value.fix


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_no_task_of_ours_lacks_one(kind):
    _refuse_incomplete(load(kind.task), kind.name)
