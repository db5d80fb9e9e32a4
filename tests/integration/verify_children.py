"""halyard verify on a device whose ops crash, hang, end the process or fail late: each is the verdict on its op, with
the call and the command that repeats it, and everything else is verified all the same: verify_children.py HALYARD"""
import json
import os
import re
import subprocess
import sys

halyard = sys.argv[1]


# A sanitizer would end a crash by an exit code of its own.
CRASHES_ARE_SIGNALS = {f"{kind}_OPTIONS": os.environ.get(f"{kind}_OPTIONS", "") + ":handle_segv=0" for kind in ("ASAN", "TSAN")}


def verify(*options, **environment):
    done = subprocess.run([halyard, "verify", "--backend", "guarded", "--quick", *options], capture_output=True, text=True,
                          env={**os.environ, **CRASHES_ARE_SIGNALS, **environment}, check=False)
    return done.returncode, done.stdout, done.stderr


def expect(condition, what):
    if not condition:
        sys.exit(f"verify_children: {what}")


OPS = "copy,neg,exp,tanh,sin,cos,add,mul,mm,relu,sigmoid"
code, out, err = verify("--all", "--time-limit", "2", HALYARD_GUARDED_OPS=OPS, HALYARD_GUARDED_END="exp:crash,tanh:hang,sin:exit",
                        HALYARD_GUARDED_FAIL="cos")
said = out + err
expect(code == 1, f"ends with {code}, not 1:\n{said}")
for op, what in {"exp": "it crashed: signal 11", "tanh": "it did not end within 2 seconds",
                 "sin": "it ended the process with exit code 7", "cos": "the device was told to fail"}.items():
    verdict = re.search(rf"^{op} .*\n  FAILED: (.*)\n  in: {op}\(.*\n  repeat: halyard verify --backend guarded:0 --op {op} ", out, re.M)
    expect(verdict and what in verdict.group(1), f"{op} should fail with {what!r}:\n{out}")
rows = {line.split()[0]: line.split() for line in out.splitlines() if re.match(r"[a-z_0-9]+ +\d", line)}
for op in ("neg", "add", "mul", "mm", "relu", "sigmoid", "copies", "order", "memory", "concurrency", "capabilities"):
    expect(op in rows and rows[op][3] == "0", f"{op} should be there and pass:\n{out}")
last = json.loads(out.splitlines()[-1])
expect(last["failed"] >= 4 and last["checks"] >= 5 and last["ops"] > 100, f"the summary says {last}")

code, out, err = verify("--no-fork", "--op", "exp", HALYARD_GUARDED_OPS=OPS, HALYARD_GUARDED_END="exp:crash")
expect(code == -11, f"--no-fork should crash here, and ends with {code}")
code, out, err = verify("--backend", "nowhere")
expect(code == 3 and "nowhere" in err, f"a device that is not there: {code}, {err}")
print("verify_children: as they should be")
