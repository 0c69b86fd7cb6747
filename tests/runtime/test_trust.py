"""The list of what a person has run on a machine, and what it says of code that a folder names."""

import json
import os
import subprocess
import sys

import pytest
from pydantic import BaseModel, ConfigDict

from graphmill.base.errors import UserError
from graphmill.record.documents import read_document
from graphmill.runtime import trust
from graphmill.runtime.trust import Code, code_in, hand_on, is_named, note_read, refuse_foreign, remember, vouch_for
from graphmill.spec.dotted import import_named

MODEL, LOSS = {"target": "a.Model", "options": {"width": 3}}, {"target": "b.loss"}
PLAN = {
    "task": {"kind": "node_classification", "model": {"kind": "custom", **MODEL}, "loss": LOSS},
    "measures": {"own": {"target": "c.measure", "options": {}}},
}


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


@pytest.fixture(autouse=True)
def _of_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(trust, "_named", set())
    monkeypatch.setattr(trust, "_foreign", {})
    monkeypatch.delenv(trust.TRUST_VARIABLE, raising=False)


def test_all_code_that_a_plan_names_is_seen_at_any_depth_and_an_own_task():
    found = code_in(PLAN)
    assert [code.target for code in found] == ["a.Model", "b.loss", "c.measure"]
    assert found[1] == Code.of("b.loss", {})
    assert [code.target for code in code_in({"task": {"kind": "mine.page:KIND", "deep": [{"x": LOSS}]}})] == [
        "mine.page:KIND",
        "b.loss",
    ]
    assert code_in({"task": "mine:KIND"}) == [Code.of("mine:KIND", {})]


def test_what_was_remembered_is_named_with_those_options_and_no_others(tmp_path):
    remember(code_in(PLAN))
    path = tmp_path / "config" / "graphmill" / "trusted"
    assert path.stat().st_mode & 0o777 == 0o600
    trust._named.clear()
    assert is_named(Code.of("a.Model", {"width": 3}))
    assert not is_named(Code.of("a.Model", {"width": 4}))
    before = path.read_text()
    remember(code_in(PLAN))
    assert path.read_text() == before


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_list_that_others_may_write_to_is_not_the_persons_word(tmp_path, mode, caplog):
    remember([Code.of("mine.Model", {})])
    trust._named.clear()
    assert is_named(Code.of("mine.Model", {}))
    (tmp_path / "config" / "graphmill" / "trusted").chmod(mode)
    assert not is_named(Code.of("mine.Model", {}))
    assert "you alone" in caplog.text


def test_nor_is_a_pipe(tmp_path):
    (tmp_path / "config" / "graphmill").mkdir(parents=True)
    os.mkfifo(tmp_path / "config" / "graphmill" / "trusted")
    assert not is_named(Code.of("mine.Model", {}))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_nor_is_one_of_another_user(tmp_path):
    remember([Code.of("mine.Model", {})])
    trust._named.clear()
    os.chown(tmp_path / "config" / "graphmill" / "trusted", 54321, -1)
    assert not is_named(Code.of("mine.Model", {}))


def test_many_processes_may_write_the_list_at_once(tmp_path, source_environ):
    code = "import sys; from graphmill.runtime.trust import Code, remember\n"
    code += "for number in range(50): remember([Code.of(f'm{sys.argv[1]}.N{number}', {})])"
    environ = {**source_environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    started = [subprocess.Popen([sys.executable, "-P", "-c", code, str(n)], env=environ) for n in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    lines = (tmp_path / "config" / "graphmill" / "trusted").read_text().splitlines()
    wanted = {f"m{n}.N{number}" for n in range(4) for number in range(50)}
    # One that another has half written looks torn, and is followed by an empty line more.
    assert {json.loads(line)["target"] for line in lines if line} == wanted


def test_a_torn_line_is_passed_over_and_spoils_no_other(tmp_path):
    path = tmp_path / "config" / "graphmill" / "trusted"
    path.parent.mkdir(parents=True)
    path.write_text('{"target": "a.Mo')
    remember([Code.of("b.loss", {})])
    trust._named.clear()
    assert is_named(Code.of("b.loss", {}))
    assert not is_named(Code.of("a.Model", {}))


@pytest.mark.parametrize("home", ["unset", "/nonexistent/home", "a file"])
def test_a_home_that_is_not_there_is_told_and_stops_nothing(tmp_path, monkeypatch, caplog, home):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    if home == "unset":
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # the user of a container has no entry
    else:
        (tmp_path / "a file").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "a file") if home == "a file" else "/proc/nonexistent")
        monkeypatch.setattr("os.geteuid", lambda: 1234)
    remember([Code.of("a.Model", {})])
    assert is_named(Code.of("a.Model", {})), "in this process"
    assert ("cannot be written" in caplog.text) == (home != "unset")


def test_of_what_was_read_and_not_named_nothing_is_imported_all_of_it_is_told_at_once(tmp_path):
    vouch_for([Code.of("a.Model", MODEL["options"])])
    note_read(tmp_path / "plan.json", PLAN)
    refuse_foreign("a.Model", MODEL["options"])
    for target in ("b.loss", "c.measure"):
        with pytest.raises(UserError, match=r"plan.json names b.loss and c.measure") as refused:
            refuse_foreign(target, {})
        assert "GRAPHMILL_TRUST_MODELS=b.loss,c.measure" in refused.value.fix
        assert "--trust b.loss --trust c.measure" in refused.value.fix
    refuse_foreign("never.read", {})
    os.environ[trust.TRUST_VARIABLE] = "b.loss,c.measure"
    refuse_foreign("b.loss", {})


def test_what_is_to_be_typed_runs_nothing(tmp_path):
    """Names are a stranger's, and whoever follows the advice pastes them into a shell."""
    target = f"a$(touch {tmp_path}/ran).Net;touch {tmp_path}/ran"
    fix = trust.refusal(tmp_path, [Code.of(target, {})]).fix
    variable = fix.partition(f"{trust.TRUST_VARIABLE}=")[2].partition(" before the command")[0]
    option = fix.partition("--trust ")[2].partition(" where it has that option")[0]
    for word in (variable, option):
        said = subprocess.run(["sh", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True).stdout
        assert said == target
    assert not list(tmp_path.iterdir())


def test_options_that_read_back_otherwise_are_refused_not_let_in(tmp_path):
    note_read(tmp_path / "plan.json", PLAN)
    with pytest.raises(UserError, match=r"a\.Model"):
        refuse_foreign("a.Model", {"width": "something else"})


def test_a_task_is_refused_before_the_plan_is_parsed(tmp_path):
    with pytest.raises(UserError, match=r"lure:KIND and b\.loss"):
        note_read(tmp_path / "plan.json", {"task": {"kind": "lure:KIND", "loss": LOSS}})


def test_what_is_handed_on_is_named_there_and_fits_into_a_variable():
    environ: dict[str, str] = {trust.TRUST_VARIABLE: "typed.by.Hand"}
    hand_on(code_in(PLAN), environ)
    os.environ[trust.TRUST_VARIABLE] = environ[trust.TRUST_VARIABLE]
    assert all(map(is_named, code_in(PLAN)))
    assert is_named(Code.of("typed.by.Hand", {"any": "options"}))
    assert not is_named(Code.of("a.Model", {}))
    for number in range(5000):
        hand_on([Code.of("package.of.mine.module.Model", {"width": number})], environ)
    assert len(environ[trust.TRUST_VARIABLE]) < 128 * 1024
    os.environ[trust.TRUST_VARIABLE] = environ[trust.TRUST_VARIABLE]
    assert is_named(Code.of("package.of.mine.module.Model", {"width": 4999})), "what is to be run now is among them"


@pytest.mark.parametrize("options", [{"width": 10**5000}, {(1, 2): 3}], ids=["number", "key"])
def test_options_that_no_json_holds_are_those_of_nobody(options):
    first = Code.of("a.Model", options)
    vouch_for([first, Code.of("a.Model", {}), Code.of("a.Model", "")])
    assert not is_named(Code.of("a.Model", options))


@pytest.mark.parametrize("place", ["beside", "in the options"])
def test_what_one_reader_of_json_takes_and_another_does_not_is_seen_all_the_same(tmp_path, place):
    huge = {"huge": 0} if place == "beside" else {"task": {"model": {"target": "a.Model", "options": {"huge": 0}}}}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**PLAN, **huge}).replace('"huge": 0', f'"huge": {"9" * 5000}'))
    try:
        read_document(path, Anything, "remove it")
    except UserError:
        return  # nobody is given a plan
    with pytest.raises(UserError, match=r"a\.Model"):
        refuse_foreign("a.Model", MODEL["options"])


def test_it_is_asked_for_before_the_import(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lure_of_trust.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    note_read(tmp_path / "plan.json", {"model": {"target": "lure_of_trust.Model"}})
    with pytest.raises(UserError, match="have not run on this machine"):
        import_named("model.target", "lure_of_trust.Model", "lure_of_trust", fix="name another")
    assert not (tmp_path / "ran").exists()
