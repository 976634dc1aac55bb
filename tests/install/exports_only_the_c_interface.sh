#!/bin/bash
# Fails if the library in $1 shows a symbol that is not flashtile_*, or hides a function that flashtile.h declares.
set -euo pipefail
header=$(dirname "$0")/../../include/flashtile/flashtile.h
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sort)
if grep -v '^flashtile_' <<<"$exported"; then
    echo "^ flashtile must not export these" >&2
    exit 1
fi
declared=$(tr '\n' ' ' <"$header" | grep -oE 'FLASHTILE_API [^;(]+\(' | grep -oE 'flashtile_[a-z_]+\($' | tr -d '(' | sort)
missing=$(comm -13 <(echo "$exported") <(echo "$declared"))
if [[ -n $missing ]]; then
    echo "declared in flashtile.h but not exported: $missing" >&2
    exit 1
fi
