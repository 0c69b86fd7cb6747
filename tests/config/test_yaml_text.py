import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.config.yaml_text import MAX_BYTES, flow_text, parse_value, read_document


def read(tmp_path, text: str | bytes):
    path = tmp_path / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_document(path, holds="an experiment")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1", 1),
        ("-1", -1),
        ("1_000", 1000),
        ("0.5", 0.5),
        (".5", 0.5),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("010", "010"),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("2026-11-21", "2026-11-21"),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("[25, 10]", [25, 10]),
        ("{a: {b: [1, x]}}", {"a": {"b": [1, "x"]}}),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    result = parse_value(text, source="test")
    assert result == value
    assert type(result) is type(value)


def test_every_key_knows_its_line(tmp_path):
    document = read(tmp_path, "a: 1\nb:\n  c: 2\n  d:\n    - 1\n    - 2\n")
    assert document.value == {"a": 1, "b": {"c": 2, "d": [1, 2]}}
    assert document.lines[("b", "c")] == 3
    assert document.lines[("b", "d", 1)] == 6


def test_a_byte_order_mark_is_skipped(tmp_path):
    assert read(tmp_path, b"\xef\xbb\xbfa: 1\n").value == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("   \n\n", "is empty"),
        ("# only a comment\n", "holds nothing"),
        ("- 1\n- 2\n", "holds a list"),
        ("just words", "holds text"),
        ("7", "holds a single value"),
        ("a: 1\na: 2\n", "a is given twice, in lines 1 and 2"),
        ("a:\n  b: 1\n  b: 1\n", r"a\.b is given twice, in lines 2 and 3"),
        ("a: &x [1]\nb: *x\n", r"a\.yaml:2:4: aliases \(\*x\) are not read"),
        ("a: &a [*a]\n", "aliases"),
        ("a: &x {k: 1}\nb:\n  <<: *x\n", "aliases"),
        ("a: [*speed*]\n", r"put text that begins with \* or & into quotes"),
        ("1: a\n", "1 is not a name"),
        ("null: a\n", "null is not a name"),
        ("true: a\n", "true is not a name"),
        ("? [a, b]\n: 1\n", "is not a name"),
        ("a: 1\n\tb: 2\n", "tab in the indentation"),
        ("a:\n\t- 1\n", "tab in the indentation"),
        ("a: [1, 2\n", r"a\.yaml:2:1: not YAML"),
        ("a: b: c\n", "not YAML"),
        ("a: 'x\n", "not YAML"),
        ("a: 1\n---\nb: 2\n", "a second document"),
        ("%YAML 3.0\n---\na: 1\n", "not YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "carries the tag !!python"),
        ("a: !!binary aGk=\n", "carries the tag !!binary"),
        ("a: !!set {x, y}\n", "carries the tag !!set"),
        ("a: !!timestamp 2026-11-21\n", "carries the tag !!timestamp"),
        ("a: !mine 3\n", "carries the tag !mine"),
        ("a: !!int three\n", "cannot be read as int"),
        ("a: .nan\n", "only finite numbers"),
        ("a: -.inf\n", "only finite numbers"),
        ("a: " + "9" * 5000, "cannot be read as int"),
        ('a: "\\ud800"\n', "cannot be read"),
        (b"a: \xff\xfe\n", "not UTF-8"),
        ("a: 1\n".encode("utf-16"), "not UTF-8"),
        (b"a: 1\x00\n", "binary"),
        (b"\x7fELF\x02\x01\x01\x00", "binary"),
        (b"a: \x07\n", r"U\+0007"),
        ("a: " + "x" * MAX_BYTES, "larger than 1 MiB"),
        ("a: " + "[" * 100 + "]" * 100, "40 levels"),
        ("[" * 200_000, "levels"),
        ("{a: " * 100_000, "levels"),
        ("a:\n" + "".join(f"{' ' * (2 * n)}- \n" for n in range(1, 3)) + "- " * 90 + "1\n", "levels|not YAML"),
        ("a: [" + "1," * 30_000 + "1]", "20000 values"),
    ],
)
def test_what_is_not_plain_is_refused(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_an_alias_bomb_is_refused_before_it_grows(tmp_path):
    bomb = "a: &a [x, x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
    )
    with pytest.raises(UserError, match="aliases"):
        read(tmp_path, bomb)


def test_two_problems_are_told_together(tmp_path):
    with pytest.raises(UserError) as refused:
        read(tmp_path, "a: 1\na: 2\nb: !!set {x}\n")
    assert "2 problems" in refused.value.message
    assert "a is given twice" in refused.value.message
    assert "b carries the tag" in refused.value.message


def test_paths_that_are_no_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (
        tmp_path,
        tmp_path / "none.yaml",
        tmp_path / "pipe.yaml",
        tmp_path / ("x" * 5000),
        "a\0b.yaml",
        "/dev/zero",
    ):
        with pytest.raises(UserError):
            read_document(type(tmp_path)(path), holds="an experiment")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=8)
    | st.sampled_from(["no", "null", "True", "1e3", "1e-3", "010", ".5", "a.b", "a/b-c", "", "a: b", "~"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_written_in_one_line_is_read_as_it_was(value):
    read_back = parse_value(flow_text(value), source="a value")
    assert read_back == value
    assert repr(read_back) == repr(value), "also the types"
