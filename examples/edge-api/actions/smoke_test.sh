#!/bin/sh
# Check the format of the address. This example has no network to call it.
set -eu

echo "looking at $ADDRESS, which should have $REPLICAS replicas behind it"
case "$ADDRESS" in
  http*://*) echo "the address is well formed" ;;
  *) echo "no address: $ADDRESS" >&2; exit 1 ;;
esac

printf '{"address": "%s", "healthy": true}\n' "$ADDRESS" >> "$NUON_ACTIONS_OUTPUT_FILEPATH"
