#!/bin/sh
# Print the first Python from 3.11 to 3.14: $PYTHON alone where it is set, else what PATH offers.
# With --install, root on Debian gets one where there is none.

find_python() {
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

find_python && exit
if [ "$1" = --install ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "nanoqwen-lab: installing Debian packages: python3 python3-venv" >&2
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt-get -qq update && apt-get -qq install --yes --no-install-recommends python3 python3-venv >/dev/null
    find_python && exit
fi
echo "nanoqwen-lab: no Python 3.11, 3.12, 3.13 or 3.14 found (looked for: ${PYTHON:-python3, python3.11 to python3.14}): install one, or name it with PYTHON=/path/to/python" >&2
exit 1
