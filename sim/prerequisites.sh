#!/bin/sh
# Says what the machine lacks for the set-up of .venv: one sentence each, and exit code 2.
# PYTHON names another interpreter than python3.

python=${PYTHON:-python3}
missing=0

lacks() {
    printf '%s\n' "$1" >&2
    missing=1
}

# A program that the project needs, and the Debian package that has it.
program() {
    command -v "$1" >/dev/null 2>&1 || lacks "$1 is missing: install the Debian package $2."
}

# Asks Python a question that it answers with its exit code.
ask() {
    "$python" -c "$1" >/dev/null 2>&1
}

if ! command -v "$python" >/dev/null 2>&1; then
    lacks "$python is missing: install the Debian package python3."
elif ! ask 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    lacks "$python is older than 3.11: install the package python3 of Debian 12 or later."
else
    # Debian has the module venv without the package, but not what it needs.
    ask 'import ensurepip, venv' ||
        lacks "The module venv of $python is missing: install the Debian package python3-venv."
    # The simulators load Python as a library, and Debian ships the program alone.
    ask '
import ctypes, os, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
try:
    ctypes.CDLL(os.path.join(sysconfig.get_config_var("LIBDIR") or "", name))
except OSError:
    ctypes.CDLL(name)
' || lacks "The library of $python is missing: install the Debian package libpython3-dev."
fi
program g++ g++
program make make
program perl perl

[ "$missing" -eq 0 ] || exit 2
