"""crdtmem.cli.completion"""

import json

import pytest

from crdtmem.cli.completion import labels_from


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed(run, shell):
    script = run("completion", shell).out

    assert "_CRDTMEM_COMPLETE" in script
    assert json.loads(run("completion", shell, "--json").out) == {
        "shell": shell,
        "script": script,
    }


@pytest.mark.parametrize(
    ("shell", "file"),
    [
        ("bash", ".bashrc"),
        ("zsh", ".zshrc"),
        ("fish", ".config/fish/config.fish"),
    ],
)
def test_installing_twice_adds_one_marked_line(run, home, shell, file):
    first = run("completion", shell, "--install")
    second = json.loads(run("completion", shell, "--install", "--json").out)

    text = (home / file).read_text(encoding="utf-8")
    assert "one line added" in first.out
    assert second == {"shell": shell, "path": str(home / file), "changed": False}
    assert text.count("# crdtmem completion") == text.count("\n") == 1


def test_installing_leaves_what_was_there(run, home):
    (home / ".bashrc").write_text("alias a=b", encoding="utf-8")

    run("completion", "bash", "--install")

    assert (home / ".bashrc").read_text(encoding="utf-8").startswith("alias a=b\neval ")


def test_labels_are_completed_from_the_store(run, home):
    run("create", "plans")
    before = {path: path.read_bytes() for path in home.iterdir() if path.is_file()}

    assert labels_from(None, "p") == [
        "pending_items",
        "persona",
        "plans",
        "project_context",
    ]
    assert labels_from(str(home / "store.sqlite"), "pl") == ["plans"]
    assert (
        before.items()
        <= {
            path: path.read_bytes() for path in home.iterdir() if path.is_file()
        }.items()
    )


def test_without_a_store_there_is_nothing_to_complete(home):
    assert labels_from(str(home / "absent"), "") == []
    assert not (home / "absent").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "last"),
    [
        ("crdtmem get pl", "plans"),
        ("crdtmem --store S get pl", "plans"),
        ("crdtmem ge", "get"),
    ],
)
def test_the_shell_is_answered(run, spawn, home, words, last):
    run("create", "plans")
    words = words.replace("S", str(home / "store.sqlite"))

    result = spawn(
        _CRDTMEM_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(words.count(" ")),
    )

    assert result.out.split("\n")[0] == f"plain,{last}"
