# For scripts that use other people's programs: a Python environment in BUILD/python with TensorBoard (and what else is asked for),
# and Debian's chromium. Needs PyPI. Sourced: . scripts/python.sh; use_python BUILD [PACKAGE ...] sets $venv.

use_python() {
  local build=$1 scripts package
  shift
  scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  venv=$build/python
  if ! [ -x "$venv/bin/python" ]; then
    python3 -c 'import ensurepip' 2>/dev/null || "$scripts/setup.sh" python
    python3 -m venv "$venv"
  fi
  for package in tensorboard "$@"; do
    "$venv/bin/python" -c "import ${package%%==*}" 2>/dev/null || "$venv/bin/pip" install -q --disable-pip-version-check "$package"
  done
  command -v chromium >/dev/null || "$scripts/setup.sh" python
}
