#!/bin/sh
# Runs one step of make and says how long it took: setup/step.sh NAME COMMAND [ARGUMENT...]
# `.ci/run` repeats these lines together at its end.
name=$1
shift
began=$(date +%s)
"$@"
status=$?
printf 'step  %-14s %4d s%s\n' "$name" $(($(date +%s) - began)) "$([ $status = 0 ] || echo "  failed")"
exit $status
