"""Running a page of the documents: its blocks in their order, in a folder of its own.

What a page may hold:

- ```python: is executed; all blocks of a page share their names. Sessions with >>> are left to doctest.
- ```console: each line that begins with "$ " is a command and is run; it goes on where the line ends in a backslash.
  The lines below are what it prints. They are compared: see `compare`.
- Any other block holds no command. With `<!-- file: NAME -->` above it, it is written to that file.
- `<!-- setup: NAME … -->` names functions of `page_files.py` that make the files a page starts from.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from typer.main import get_command

import page_files
from onepos.cli import app, main
from onepos.methods import METHODS

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Commands that are not run, only checked: their options must be those of the command. Pattern: why.
PARSED = {
    r"^onepos demo\b": "takes a minute; tests/report/test_demo_page.py runs it",
    r"^onepos bench (run|compare) (results/)?(fair|research/)": "takes hours",
    r"^onepos data get": "downloads; tests/datasets gets files from a server of its own",
    r"^PYTHONPATH=research python -m crisp_paper": "takes minutes; research/tests make the pages in small",
    r"--device cuda": "needs a GPU",
    r"--watch": "does not end",
    r"--text-model": "needs packages that are not among those of the tests",
}
# Programs that the page of contributors names: what is started must be there, and CI runs it.
OF_CONTRIBUTORS = ("./test", "./docs/build", ".ci/run", ".venv/bin/")


class Step(NamedTuple):
    kind: str  # "setup", "file", "python", "command"
    text: str
    shown: tuple[str, ...] = ()  # of a command: the lines below it
    name: str = ""  # of a file

    def __str__(self):
        return self.text


BLOCK = re.compile(
    r"^(?:<!-- file: (?P<name>\S+) -->\n+)?(?P<fence>```+)(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=fence)$"
    r"|^<!-- setup: (?P<setup>[^\n]*) -->$",
    re.DOTALL | re.MULTILINE,
)


def blocks(path):
    """Kind, content and file name of each fenced block; kind "setup" for the comments of that name."""
    for found in BLOCK.finditer(path.read_text(encoding="utf-8")):
        if found["setup"]:
            yield "setup", found["setup"], ""
        else:
            yield found["kind"].strip(), found["text"], found["name"] or ""


def steps(path):
    """What is to be done to follow a page, in its order."""
    for kind, text, name in blocks(path):
        if kind == "setup":
            yield from (Step("setup", part) for part in text.split())
        elif name:
            yield Step("file", text, name=name)
        elif kind == "python" and ">>> " not in text:
            yield Step("python", text)
        elif kind == "console":
            parts = re.split(r"^\$ ", text.replace("\\\n", " "), flags=re.MULTILINE)
            assert not parts[0], f"a console begins with a command, not with {parts[0]!r}"
            for part in parts[1:]:
                command, *shown = part.rstrip("\n").split("\n")
                yield Step("command", command, tuple(shown))


def hidden_commands(path):
    """Lines of other blocks that look like commands, which nothing would run."""
    for kind, text, _ in blocks(path):
        if kind not in ("console", "python", "setup") and ">>> " not in text and not text.startswith("#!"):
            yield from re.findall(r"^(?:\$ |onepos |pip |python |\./\w).*", text, re.MULTILINE)


# What a command prints, and what the page shows of it

NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])"


def agrees(shown, printed, is_exact):
    """Whether two lines have the same words in the same order, and numbers within the tolerance.

    A fit ends in slightly different numbers on another processor. Two numbers agree if they differ by at most 0.08 or
    a fifth of the larger one; whole numbers that no fit can change must be equal. A … stands for anything.
    """
    is_exact = is_exact or shown.startswith(("read ", "known labels: ", "  "))  # what was read, and how
    shown, printed = " ".join(shown.split()), " ".join(printed.split())
    words = ".*".join(re.escape(part) for part in re.sub(NUMBER, "#", shown).split("…"))
    if not re.fullmatch(words, re.sub(NUMBER, "#", printed)):
        return False
    if "…" in shown:
        return True
    for one, other in zip(re.findall(NUMBER, shown), re.findall(NUMBER, printed), strict=True):
        tolerance = 0 if is_exact and "." not in one + other else max(0.08, max(abs(float(one)), abs(float(other))) / 5)
        if abs(float(one) - float(other)) > tolerance:
            return False
    return True


def compare(step, printed):
    """The shown lines are those that were printed, in this order; a line ... (or …) stands for any number of lines."""
    lines = [line for line in printed.splitlines() if line.strip()]
    is_open, place = False, 0
    for shown in (line for line in step.shown if line.strip()):
        if shown.strip() in ("...", "…"):
            is_open = True
            continue
        where = range(place, len(lines) if is_open else min(place + 1, len(lines)))
        found = next((k for k in where if agrees(shown, lines[k], not step.text.startswith("onepos"))), None)
        assert found is not None, f"$ {step.text}\nis said to print\n{shown}\nafter line {place} of\n{printed}"
        place, is_open = found + 1, False
    assert is_open or place == len(lines), f"$ {step.text}\nalso prints\n" + "\n".join(lines[place:])


# Running commands


def parse(arguments):
    """Raise what the command line raises for arguments it does not take, and run nothing."""
    command, name, context, rest = get_command(app), "onepos", None, list(arguments)
    while hasattr(command, "resolve_command"):
        context = command.make_context(name, rest, parent=context)
        first = getattr(context, "_protected_args", None)  # before click 8.2 without the underscore
        rest = [*(context.protected_args if first is None else first), *context.args]
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, rest, parent=context)


def check_installation(arguments):
    """`pip install`: files are there, extras and packages are those of pyproject.toml."""
    assert arguments[0] == "install", arguments
    extras = PROJECT["optional-dependencies"]
    known = {Requirement(line).name for lines in [PROJECT["dependencies"], *extras.values()] for line in lines}
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-c":
            assert (ROOT / next(rest)).is_file()
        elif argument != "-e":
            wanted = Requirement(argument.replace(".", "onepos", 1) if argument.startswith(".") else argument)
            assert wanted.name in known | {"onepos"}, argument
            assert wanted.name != "onepos" or wanted.extras <= set(extras), argument


def visit(server):
    """Wait until the page of a server is there, look at it once, and end the server."""
    deadline = time.monotonic() + 30
    try:
        while not server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            server.page = answer.read().decode()
    finally:
        server.should_exit = True


class Walk:
    """One page being followed; the current folder is the page's."""

    def __init__(self, monkeypatch):
        self.monkeypatch, self.names, self.port = monkeypatch, {}, None
        self.background, self.methods = [], dict(METHODS)
        folder = Path("bin").absolute()  # for commands that a shell runs
        folder.mkdir()
        for name, module in (("onepos", "-m onepos"), ("python", "")):
            program = folder / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "research")]))
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr("os.cpu_count", lambda: 1)  # a study's runs in this process: others take seconds to start
        monkeypatch.setenv("ONEPOS_DATA", str(Path("data").absolute()))

    def close(self):
        """End what runs, and take away the methods that the page added."""
        METHODS.clear()
        METHODS.update(self.methods)
        for process in self.background:
            process.terminate()
            process.wait()

    def take(self, step, path):
        """Do one step; the error names the step."""
        if step.kind == "setup":
            getattr(page_files, step.text.replace("-", "_"))()
        elif step.kind == "file":
            Path(step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "python":
            exec(compile(step.text, str(path), "exec"), self.names)
        else:
            printed = self.call(step.text)
            if step.shown and printed is not None:
                compare(step, printed)

    def call(self, line):
        """Run one command; what it printed, or None where nothing was run."""
        if self.port:
            line = line.replace("8000", str(self.port))
        words = shlex.split(line, comments=True)
        program, arguments = words[0], words[1:]
        if program == "./run":
            program, line = "onepos", line.replace("./run", "onepos", 1)
        if program == "pip":
            return check_installation(arguments)
        if program.startswith(OF_CONTRIBUTORS):
            return self.check_program(program, arguments)
        if any(re.search(pattern, line) for pattern in PARSED):
            return parse(arguments) if program == "onepos" else None
        if program == "onepos":
            return self.serve(arguments) if arguments[0] == "serve" else self.run_onepos(arguments)
        if program == "sbatch":
            return self.run_array(arguments[0])
        return self.run_shell(line, program, arguments)

    def check_program(self, program, arguments):
        if program.startswith(".venv/bin/"):
            assert Path(program).name in PROJECT["optional-dependencies"]["test"], program
        else:
            assert (ROOT / program).is_file(), program
        for argument in arguments:
            if argument.startswith("tests/"):
                assert (ROOT / argument).exists() or "asl" in argument, argument  # the method of the example

    def run_onepos(self, arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as end:
            main(arguments)
        assert not end.value.code, f"onepos {shlex.join(arguments)}\n{out.getvalue()}{err.getvalue()}"
        return out.getvalue()

    def serve(self, arguments):
        """Start the review page on a free port, look at it, and end it."""
        import uvicorn

        visited = []

        class Visited(uvicorn.Server):
            def run(self, sockets=None):
                visited.append(self)
                visitor = Thread(target=visit, args=(self,))
                visitor.start()
                super().run(sockets=sockets)
                visitor.join()

        opened = []
        with self.monkeypatch.context() as patch:
            patch.setattr("onepos.server.listen.uvicorn.Server", Visited)
            patch.setattr("webbrowser.open", opened.append)
            out = self.run_onepos([*arguments, "--port", "0"])
        assert "<title>" in visited[0].page
        assert len(opened) == ("--open" in arguments)
        return out

    def run_array(self, script):
        """What Slurm's sbatch does: the script once for each number of its line --array=A-B."""
        first, last = re.search(r"^#SBATCH --array=(\d+)-(\d+)", Path(script).read_text(), re.MULTILINE).groups()
        for k in range(int(first), int(last) + 1):
            subprocess.run(["bash", script], check=True, env={**os.environ, "SLURM_ARRAY_TASK_ID": str(k)})

    def run_shell(self, line, program, arguments):
        if program in ("python", "curl") and shutil.which(program) is None:
            return None
        if program == "python" and (ROOT / "examples" / arguments[0]).is_file():
            shutil.copy(ROOT / "examples" / arguments[0], ".")
        if program == "python" and arguments[0] == "serve_onnx.py":
            self.port = page_files.free_port()
            command = [sys.executable, *arguments[:-1], str(self.port)]
            self.background.append(subprocess.Popen(command))
            page_files.wait_for(self.port)
            return None
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout
