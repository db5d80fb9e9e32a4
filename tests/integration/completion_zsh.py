"""Completion in zsh: a shell in a pseudo-terminal is asked with the tab key.   completion_zsh.py HALYARD"""
import os
import pty
import select
import shutil
import sys
import tempfile

TYPED_AND_COMPLETED = [
    ("halyard ver", "halyard verify"),
    ("halyard verify --op softmax_b", "halyard verify --op softmax_backward"),
    ("halyard run --dty", "halyard run --dtype"),
    ("halyard run --dtype=bf", "halyard run --dtype=bf16"),
    ("halyard run --model a_fo", "halyard run --model a_folder"),
    ("halyard finetune --data a_fi", "halyard finetune --data a_file"),
    ("halyard npu report --model de", "halyard npu report --model demo"),
    ("halyard completion b", "halyard completion bash"),
    ("halyard help merg", "halyard help merge"),
]
RC = """
autoload -U compinit && compinit -u -D
source <('{halyard}' completion zsh)
unsetopt list_beep auto_list
show() {{ print -r -- "<<$BUFFER>>"; zle kill-whole-line; }}
zle -N show
bindkey '^I' complete-word
bindkey '^X' show
print READY
"""


def read_until(terminal, end):
    """What the shell prints, up to `end`; a minute of silence is a failure."""
    text = ""
    while end not in text:
        if not select.select([terminal], [], [], 60)[0]:
            sys.exit(f"completion_zsh: waited for {end!r}, have {text!r}")
        text += os.read(terminal, 4096).decode(errors="replace")
    return text


def main(halyard):
    if not shutil.which("zsh"):
        print("completion_zsh: zsh is not here")
        return 77
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f"{work}/a_folder")
        open(f"{work}/a_file", "w").close()
        with open(f"{work}/.zshrc", "w") as rc:
            rc.write(RC.format(halyard=os.path.abspath(halyard)))
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(work)
            os.execvpe("zsh", ["zsh", "-i"], dict(os.environ, ZDOTDIR=work, TERM="dumb"))
        read_until(terminal, "READY")
        failed = 0
        for typed, completed in TYPED_AND_COMPLETED:
            os.write(terminal, f"{typed}\t\x18".encode())
            line = read_until(terminal, ">>").rpartition("<<")[2].partition(">>")[0]
            if line.rstrip(" /=") != completed:
                print(f"{typed!r} became {line!r}, not {completed!r}")
                failed = 1
        os.write(terminal, b"exit\n")
        os.waitpid(child, 0)
        return failed


sys.exit(main(sys.argv[1]))
