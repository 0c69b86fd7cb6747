"""Files that are put in place: what others laid under the name that is written first is not written through."""

from graphmill.base.files import replacing, write_text


def test_a_link_under_the_temporary_name_is_not_written_through(tmp_path):
    """Where others may write, too, they may guess the name: it has the host and the number of the process."""
    (tmp_path / "victim").write_text("precious")
    with replacing(tmp_path / "page.html") as guessed:
        pass
    guessed.symlink_to(tmp_path / "victim")
    write_text(tmp_path / "page.html", "new")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "page.html").read_text() == "new"
    assert not (tmp_path / "page.html").is_symlink()
