# Sourced by scripts/demo and scripts/test: a Python environment, in .venv by default, and an adapter to run on.
# Whatever is done already is not done again.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

use_environment() {
    VENV=$1 BIN=$1/bin
    case ${OSTYPE:-} in msys* | cygwin*) BIN=$1/Scripts ;; esac # Git's bash on Windows
    PYTHON_IN_VENV=$BIN/python
}
use_environment .venv

say() { printf '… %s\n' "$*"; }

fail() {
    printf '%s: %s\n' "$0" "$*" >&2
    exit 1
}

# quietly COMMAND...: the command's output is shown only if it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    [ "$status" = 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$status"
}

# install_system PACKAGE...: with apt, where we may; otherwise it fails without a word.
install_system() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    say "installing $* with apt"
    quietly apt-get update -qq && DEBIAN_FRONTEND=noninteractive quietly apt-get install -qq -y "$@"
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3.14 python3.13 python3.12 python3.11 python3 python; do
        if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' &>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

make_environment() {
    "$PYTHON_IN_VENV" -P -m pip --version &>/dev/null && return
    local python
    python=$(find_python) || { install_system python3-venv && python=$(find_python); } ||
        fail "Python 3.11 or newer with its venv module is needed; found: $(python3 --version 2>/dev/null || echo none) (from Debian 12 and Ubuntu 24.04 on: apt install python3-venv; another Python: PYTHON=/path/to/python $0)"
    say "making $VENV with $("$python" --version)"
    rm -rf "$VENV"
    quietly "$python" -m venv "$VENV" || fail "$python cannot make a virtual environment"
}

# pip_install NAME WHAT PIP-ARGUMENTS...: unless it was done since pyproject.toml last changed.
pip_install() {
    local stamp=$VENV/installed-$1 what=$2 version
    version=$(cksum <pyproject.toml)
    shift 2
    [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && return
    say "installing $what"
    quietly "$PYTHON_IN_VENV" -P -m pip install --quiet --disable-pip-version-check "$@" ||
        fail "pip could not install $what, for the reasons above; it needs a network, or an index of packages in PIP_INDEX_URL"
    echo "$version" >"$stamp"
}

# On Linux PyPI's build of PyTorch needs gigabytes of CUDA packages that nothing here uses. PyTorch's own index has a
# build for CPUs; it is asked for this package only. Where it cannot be reached, pip goes on with the other indexes.
install_pytorch() {
    if [ "$(uname -s)" = Linux ]; then
        pip_install torch-cpu "PyTorch's build for CPUs" --no-deps torch==2.13.0 \
            --extra-index-url https://download.pytorch.org/whl/cpu --retries 1 --timeout 10
    fi
    pip_install torch "PyTorch" torch==2.13.0
}

# Where there is no adapter at all, Mesa's software adapter makes the CPU one.
provide_adapter() {
    local message
    message=$("$PYTHON_IN_VENV" -P -m pteron info 2>&1 >/dev/null) && return
    case $message in
    *"no GPU adapter"*)
        install_system mesa-vulkan-drivers || true
        message=$("$PYTHON_IN_VENV" -P -m pteron info 2>&1 >/dev/null) && return
        ;;
    esac
    fail "${message#pteron: }"
}

# The packages of web/, with which tests build and check the pages and lint the workflows. node comes with the extra
# `checks`.
provide_web() {
    local stamp=web/node_modules/installed version
    version=$(cksum <web/package-lock.json)
    [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && return
    say "installing the packages of web/"
    PATH=$PWD/$BIN:$PATH quietly npm ci --prefix web || fail "npm could not install the packages of web/"
    echo "$version" >"$stamp"
}

# Chromium, with which tests open the pages that tools write. Where it cannot be had, those tests are skipped.
provide_browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && return
    done
    install_system chromium || say "no Chromium, so pages are not opened (on Debian and Ubuntu: apt install chromium)"
}
