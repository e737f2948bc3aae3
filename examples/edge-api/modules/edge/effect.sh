#!/bin/sh
# One real effect: takes a while, and leaves a line that says what it was and who did it.
set -eu
echo "$1: working for $2 s"
sleep "$2"
if [ -n "${STEAD_LEDGER:-}" ]; then
  echo "$1 ${STEAD_EXECUTION:-${STEAD_EXECUTION_ID:-nobody}}" >> "$STEAD_LEDGER"
fi
echo "$1: done"
