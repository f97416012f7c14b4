# Sourced by ./run and ./test: makes .venv when it is missing and installs when pyproject.toml or
# constraints.txt changed. Usage: set_up EXTRAS, for example set_up "[test]".
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$root/.venv

set_up() {
    local extras=$1 wanted stamp python
    wanted=$(cat "$root/pyproject.toml" "$root/constraints.txt" | cksum)
    stamp=$venv/.installed$extras
    if [ -x "$venv/bin/python" ]; then
        for stamp in "$venv/.installed$extras" "$venv/.installed[test]"; do
            [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && return 0
        done
    fi
    stamp=$venv/.installed$extras
    python=${PYTHON:-python3}
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        echo "onepos needs Python 3.11 or newer; '$python' is not. Install it, or name it: PYTHON=python3.12 $0" >&2
        exit 2
    fi
    echo "onepos: setting up $venv (once; a minute or two) …" >&2
    if [ ! -x "$venv/bin/python" ] && ! "$python" -m venv "$venv"; then
        echo "onepos: could not make a virtual environment. On Debian: apt-get install python3-venv" >&2
        rm -rf "$venv"
        exit 1
    fi
    # Without the constraints pip would take a torch with several GB of CUDA packages on Linux.
    if ! "$venv/bin/python" -m pip install -q --disable-pip-version-check \
        -c "$root/constraints.txt" -e "$root$extras"; then
        echo "onepos: the installation failed, see above. Run the same command again once it is mended." >&2
        exit 1
    fi
    echo "$wanted" >"$stamp"
}
