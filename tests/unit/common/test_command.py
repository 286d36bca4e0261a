"""What both commands print is printed as it is."""

import io
import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from rich.table import Table

from common.command import NO_MORE_THREADS, NOWHERE, TOO_LARGE, console, plain_console
from common.texts import number_words, shortened
from learner.cli import cli
from owner.cli import cli as owner_cli

STRANGE = ("see [/policy] for [bold red]more", "[link=https://x.example]here[/link]", "a :smile: b")


@pytest.mark.parametrize("text", STRANGE)
def test_what_rich_would_take_for_its_own_signs_is_printed_as_it_is(text, capsys):
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    for part in (text, table):
        console().print(part)
    lines = capsys.readouterr().out.splitlines()
    assert sum(text in line for line in lines) == 4


def test_letters_that_a_terminal_does_not_have_end_no_command():
    program = (
        "import click\n"
        "from common.command import console, run_command\n"
        "@click.command()\n"
        "def main(): console().print('\u0142'); click.echo('\u6f22', err=True)\n"
        "run_command(main, 'copriv')\n"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "\\u0142\n", "\\u6f22\n")


def test_a_terminal_is_led_nowhere_by_a_text():
    screen = io.StringIO()
    plain_console(file=screen, force_terminal=True, width=200).print(STRANGE[1], highlight=False)
    assert screen.getvalue() == STRANGE[1] + "\n"


PATH = "/home/ann/" + 90 * "x" + "/run"
SENTENCE = "not all owners are closed here, see the log; type: copriv close"


@pytest.mark.parametrize(
    ("text", "is_terminal", "lines"),
    [
        (SENTENCE, True, [SENTENCE[:39], SENTENCE[40:]]),
        (SENTENCE, False, [SENTENCE]),
        (f"{SENTENCE} {PATH}", True, [f"{SENTENCE} {PATH}"]),
        (f"{SENTENCE} {PATH}", False, [f"{SENTENCE} {PATH}"]),
    ],
)
def test_no_path_is_broken_in_two_and_a_sentence_in_a_file_is_one_line(text, is_terminal, lines):
    shown = io.StringIO()
    screen = plain_console(file=shown, force_terminal=is_terminal, width=40)
    screen.print(text, highlight=False)
    assert [line.rstrip() for line in shown.getvalue().splitlines()] == lines


def commands_in(group):
    for name, command in group.commands.items():
        yield name, command
        if isinstance(command, click.Group):
            yield from commands_in(command)


@pytest.mark.parametrize("group", [cli, owner_cli])
def test_every_option_says_what_it_is_for(group):
    silent = [
        (name, option.opts)
        for name, command in commands_in(group)
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert not silent


@pytest.mark.parametrize("group", [cli, owner_cli])
def test_options_of_init_that_every_study_needs_are_listed_first(group):
    listed = [option.opts[0] for option in group.commands["init"].params[1:]]
    first = "--target" if group is cli else "--name"
    assert listed[0] == first
    assert listed.index("--yes") < listed.index("--query") < listed.index("--encoding")


@pytest.mark.parametrize(
    ("group", "typed", "told"),
    [
        (cli, ["--set", "seed=1", "simulate"], "behind the command: copriv COMMAND --set"),
        (cli, ["train", "x", "--log-format", "json"], "before the command: copriv --log-format"),
        (owner_cli, ["ledger", "show", "--version"], "before the command: copriv --version"),
        (owner_cli, ["--out", "x", "join"], "behind the command: copriv COMMAND --out"),
    ],
)
def test_an_option_on_the_wrong_side_of_the_command_is_told_its_place(group, typed, told):
    result = CliRunner().invoke(group, typed, prog_name="copriv")
    assert result.exit_code == 2
    assert result.output.strip().endswith(f" Write it {told}")


@pytest.mark.parametrize("typed", [["--nonsense"], ["simulate", "x", "--nonsense"]])
def test_an_option_that_is_nowhere_is_told_no_place(typed):
    assert "Write it" not in CliRunner().invoke(cli, typed).output


def test_long_texts_stay_different_however_they_begin():
    begun = "Diseases of the circulatory system, "
    texts = [begun + 30 * "x", begun + 30 * "y", *(f"{begun}{i}{60 * 'z'}" for i in range(3)), "no"]
    short = shortened(texts)
    assert len(set(short)) == len(texts)
    assert all(len(text) <= 44 for text in short)
    assert short[-1] == "no"


@pytest.mark.parametrize(
    ("number", "written"),
    [(148.4, "148"), (999.6, "1,000"), (99.6, "100"), (9.96, "10"), (0.0312, "0.031")],
)
def test_numbers_of_times_are_written_out(number, written):
    assert number_words(number, 2) == written


def test_numbers_of_many_digits_are_not_written_out():
    """Thirteen digits of an error of which three are known break tables and columns."""
    written = [number_words(number) for number in (1.028578663715e12, 3e9, -3e9, 987_654_321.0)]
    assert written == ["1.03e+12", "3e+09", "-3e+09", "987,654,321"]


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_tables_cut_no_number_and_no_heading_off(width):
    table = Table(title="t")
    table.add_column("measure", no_wrap=True)
    for head in ("common", "together with noise", "+1 epsilon"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_row("calibration error", "0.712 (0.692 to 0.731)", "-0.00123", "1,234,567")
    table.add_row("mount-sinai", "72,963 (70,800 to 74,800)", "0.5", "-")
    shown = io.StringIO()
    plain_console(file=shown, width=width).print(table)
    words = shown.getvalue().split()
    numbers = "0.712 (0.692 0.731) 72,963 (70,800 74,800) -0.00123 1,234,567 together epsilon"
    assert set(numbers.split()) <= set(words)
    assert "\u2026" not in shown.getvalue()


def ended_by(lines):
    """What a process says whose command is the main of these lines."""
    return subprocess.run(
        [sys.executable, "-c", "\n".join([*lines, "run_command(click.command(main), 'copriv')"])],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_file_beyond_the_size_that_files_may_have_is_one_sentence(tmp_path):
    """As beyond a quota: the system says so in words of its own."""
    lines = ["import click, resource", "from common.command import run_command"]
    lines += ["resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"]
    lines += [f"def main(): open({str(tmp_path / 'out')!r}, 'wb', buffering=0).truncate(101)"]
    said = ended_by(lines)
    assert said.returncode == 4
    assert said.stderr == "copriv: the output: File too large; make room for it\n"


def test_what_the_memory_does_not_hold_is_one_sentence():
    lines = ["import click, pyarrow", "from common.command import run_command"]
    lines += ["def main(): raise pyarrow.lib.ArrowMemoryError('malloc of size 3000000000 failed')"]
    said = ended_by(lines)
    assert said.returncode == 2
    assert said.stderr == f"copriv: {TOO_LARGE}\n"


def test_a_folder_that_is_gone_is_one_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    lines = ["import click, os, pathlib", "from common.command import run_command"]
    lines += [f"os.chdir({str(gone)!r})"]
    used = "def main(): open(pathlib.Path('study.toml').absolute())"
    said = ended_by([*lines, f"os.rmdir({str(gone)!r})", used])
    assert (said.returncode, said.stderr) == (2, f"copriv: {NOWHERE}\n")
    # A file that is missing where the folder is there is a fault of ours.
    gone.mkdir()
    assert ended_by([*lines, used]).returncode == 1


def test_a_command_that_crashes_leaves_no_copy_of_its_memory():
    """It may hold records, and noise for answers that nobody was given yet."""
    lines = ["import click, resource", "from common.command import run_command"]
    # Unlimited, where whoever started this has not lowered it for good.
    lines += ["most = resource.getrlimit(resource.RLIMIT_CORE)[1]"]
    lines += ["resource.setrlimit(resource.RLIMIT_CORE, (most, most))"]
    lines += ["def main(): print(resource.getrlimit(resource.RLIMIT_CORE) == (0, most))"]
    assert ended_by(lines).stdout == "True\n"


def test_no_file_gets_the_number_of_a_stream_that_was_closed(tmp_path):
    """Libraries print to it without asking: into a ledger, if that were its number."""
    program = (
        "import os, sys, click\n"
        "from common.command import run_command\n"
        "@click.command()\n"
        "def main():\n"
        "    told = os.open('told', os.O_WRONLY | os.O_CREAT)\n"
        "    sys.stdout.flush()\n"
        "    click.echo('lost', err=True)\n"
        "    is_null = os.stat(1).st_rdev == os.stat(os.devnull).st_rdev\n"
        "    os.write(told, f'{told > 2} {is_null}'.encode())\n"
        "run_command(main, 'copriv')\n"
    )
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(closed, cwd=tmp_path, check=False).returncode == 0
    assert (tmp_path / "told").read_text() == "True True"


@pytest.mark.parametrize(
    "begins", ["threading.Thread(target=print).start()", "begun(print, name='calls')"]
)
def test_a_limit_of_threads_is_one_sentence(begins):
    """A unit's TasksMax or a container's pids limit; status 1, so that it is started again."""
    program = (
        "import _thread, threading, click\n"
        "from common.command import run_command\n"
        "from owner import threads\n"
        "from owner.threads import begun\n"
        "threads.BEGIN_SECONDS = 0.01\n"
        'def refused(*_, **__): raise RuntimeError("can\'t start new thread")\n'
        "@click.command()\n"
        "def main():\n"
        # The second is the first's name from Python 3.13 on.
        "    threading._start_new_thread = threading._start_joinable_thread = refused\n"
        f"    {begins}\n"
        "run_command(main, 'copriv-owner')\n"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr == f"copriv-owner: {NO_MORE_THREADS}\n"
