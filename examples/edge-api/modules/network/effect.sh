#!/bin/sh
# Simulate one effect: wait, then append the resource and the execution to the ledger.
set -eu
echo "$1: working for $2 s"
sleep "$2"
if [ -n "${STEAD_LEDGER:-}" ]; then
  echo "$1 ${STEAD_EXECUTION:-${STEAD_EXECUTION_ID:-nobody}}" >> "$STEAD_LEDGER"
fi
echo "$1: done"
