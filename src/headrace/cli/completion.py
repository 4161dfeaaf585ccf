"""Shell completion: click's scripts, and where each shell looks for them."""

from pathlib import Path
from typing import Final

import click
import shellingham
from click.shell_completion import get_completion_class

from headrace.cli.running import usage_error

PROGRAM: Final = "headrace"
COMPLETION_VARIABLE: Final = "_HEADRACE_COMPLETE"
"""The environment variable by which the script asks for completions."""

_SCRIPTS: Final = {
    "bash": f".bash_completions/{PROGRAM}.sh",
    "zsh": f".zfunc/_{PROGRAM}",
    "fish": f".config/fish/completions/{PROGRAM}.fish",
}
"""Where the script goes, below the home folder."""
_START_FILES: Final = {
    "bash": (".bashrc", "source '{script}'"),
    "zsh": (".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
}
"""The file that a shell reads when it starts, and the line there that makes it find the script."""


def current_shell() -> str:
    """Return the name of the shell that the program was called from."""
    try:
        name: str = shellingham.detect_shell()[0]
    except shellingham.ShellDetectionFailure:
        usage_error(f"cannot determine the shell; {_known_shells()}")
    if name not in _SCRIPTS:
        usage_error(f"no completion for {name}; {_known_shells()}")
    return name


def completion_script(program: click.Command, shell: str) -> str:
    """Return the shell's completion script."""
    completion = get_completion_class(shell)
    assert completion is not None, f"click has no completion for {shell}"
    return completion(program, {}, PROGRAM, COMPLETION_VARIABLE).source()


def install_completion(program: click.Command, shell: str) -> Path:
    """Install completion, effective from the shell's next start; return the script's path."""
    home = Path.home()
    script = home / _SCRIPTS[shell]
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(completion_script(program, shell))
    if shell in _START_FILES:
        name, line = _START_FILES[shell]
        _add_line(home / name, line.format(script=script))
    return script


def _add_line(path: Path, line: str) -> None:
    text = path.read_text() if path.is_file() else ""
    if line not in text.splitlines():
        end = "" if not text or text.endswith("\n") else "\n"
        path.write_text(f"{text}{end}{line}\n")


def _known_shells() -> str:
    return f"there is some for {', '.join(_SCRIPTS)}"
