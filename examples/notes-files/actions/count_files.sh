#!/bin/sh
# Count the files of the archive.
set -eu

if [ ! -d "$ARCHIVE" ]; then
  echo "no archive at $ARCHIVE" >&2
  exit 1
fi
count=$(find "$ARCHIVE" -type f | wc -l | tr -d ' ')
echo "$ARCHIVE has $count files"
printf '{"files": %s}\n' "$count" >> "$NUON_ACTIONS_OUTPUT_FILEPATH"
