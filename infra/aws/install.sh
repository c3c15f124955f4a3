#!/bin/bash
# Makes this machine a node's or the head's image: install.sh node|head, as root, in a clone at /opt/proteus.
set -eu
ROLE=${1:?node or head}
HERE=/opt/proteus
cd "$HERE"
id proteus >/dev/null 2>&1 || useradd --system --home-dir /var/lib/proteus --shell /usr/sbin/nologin proteus
install -d -o proteus -g proteus -m 750 /var/lib/proteus
case $ROLE in
  node)
    python3 -m venv .venv
    .venv/bin/pip install --quiet --require-hashes -r requirements-node.lock
    .venv/bin/pip install --quiet --no-deps .
    .venv/bin/python -m proteus_spot.infra.nodes.main --help >/dev/null
    ;;
  head)
    make .venv
    install -d -m 750 -g proteus /etc/proteus
    install -m 644 infra/aws/*.service /etc/systemd/system/
    .venv/bin/proteus --version
    ;;
  *)
    echo "install.sh: $ROLE: want node or head" >&2
    exit 2
    ;;
esac
