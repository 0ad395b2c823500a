#!/usr/bin/env bash
# The one step of action.yml: compare, then tell GitHub. Everything comes from the environment, so that no input is ever
# read as a command.
set -uo pipefail

folder=${RELFIT_FOLDER:-relfit-gate}
mkdir -p "$folder"
options=(--html "$folder/report.html" --json "$folder/result.json" --junit "$folder/gate.xml" --markdown "$folder/gate.md")
add() { if [ -n "$2" ]; then options+=("$1" "$2"); fi; }
add --gate "${RELFIT_GATE:-}"
add --gate-against "${RELFIT_GATE_AGAINST:-}"
add --margin "${RELFIT_MARGIN:-}"
add --test "${RELFIT_TEST:-}"
add --alpha "${RELFIT_ALPHA:-}"
lines() { while IFS= read -r line || [ -n "$line" ]; do if [ -n "${line//[[:space:]]/}" ]; then items+=("$line"); fi; done <<<"$1"; }
items=() && lines "${RELFIT_OPTIONS:-}" && options+=("${items[@]}")
items=() && lines "${RELFIT_MODELS:?the input models is empty}"

relfit compare "${options[@]}" -- "${RELFIT_REFERENCE:?the input reference is empty}" "${items[@]}" 2>"$folder/messages.txt"
status=$?
cat "$folder/messages.txt" >&2

# GitHub reads these three characters of an annotation as its own.
escaped() { sed -e 's/%/%25/g' -e 's/\r/%0D/g' "$1" | awk '{printf "%s%s", (NR > 1 ? "%0A" : ""), $0}'; }
if [ "$status" = 1 ]; then
    echo "::error title=relfit: the gate failed::$(escaped "$folder/messages.txt")"
elif [ "$status" != 0 ]; then
    echo "::error title=relfit: no answer (status $status)::$(escaped "$folder/messages.txt")"
fi
if [ -f "$folder/gate.md" ]; then cat "$folder/gate.md" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"; fi
verdict=none
if [ -n "${RELFIT_GATE:-}" ] && [ "$status" = 0 ]; then verdict=passed; elif [ "$status" = 1 ]; then verdict=failed; fi
{
    echo "status=$status"
    echo "verdict=$verdict"
    echo "folder=$folder"
    echo "comment=$folder/gate.md"
} >>"${GITHUB_OUTPUT:-/dev/null}"
exit "$status"
