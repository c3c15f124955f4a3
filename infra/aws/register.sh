#!/bin/bash
# Registers pool, deployments and automations on the server; run again, it changes nothing.
set -eu
cd "$(dirname "$0")/../.."
for ((tries = 60; tries > 0; tries--)); do
  .venv/bin/prefect work-pool inspect proteus >/dev/null 2>&1 && break
  .venv/bin/prefect --no-prompt work-pool create proteus --type process >/dev/null 2>&1 && break
  sleep 2
done
.venv/bin/prefect --no-prompt deploy --all
exec .venv/bin/python -m proteus_spot.flows.automations
