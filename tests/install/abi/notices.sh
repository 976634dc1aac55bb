#!/bin/bash
# Whether check.sh finds what it is there for: headers that differ from flashtile.h in one place each, and what it must
# say of them. LIBRARY in $1 is this build's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
header=$here/../../../include/flashtile/flashtile.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/flashtile"

# expect WORDS SED: the header with this change is refused in these words.
expect() {
    local words=$1 change=$2 said status=0
    sed "$change" "$header" >"$work/flashtile/flashtile.h"
    if cmp -s "$header" "$work/flashtile/flashtile.h"; then echo "$change changes nothing" >&2; exit 1; fi
    said=$(HEADERS=$work "$here/check.sh" "$library" 2>&1) || status=$?
    if ((status != 1)) || [[ $said != *"$words"* ]]; then
        echo "$change: exit code $status, expected is 1 and \"$words\" in: $said" >&2
        exit 1
    fi
}
library=$1
grown="the ABI has grown" breaks="would break"
expect "$grown" 's/int64_t origin_j;$/int64_t origin_j, more;/'
expect "$grown" 's/FLASHTILE_INT64 = 7/FLASHTILE_INT64 = 7, FLASHTILE_NEW = 8/'
expect "$breaks" 's/FLASHTILE_INT64 = 7/FLASHTILE_INT64 = 9/'
expect "$breaks" 's/FLASHTILE_CAUSAL_TOP_LEFT = 2/FLASHTILE_CAUSAL_TOP_LEFT = 3/'
expect "$breaks" 's/^    float softcap;/    int64_t early; float softcap;/'
expect "$breaks" 's/^    int32_t dtype;       /    int64_t dtype;/'
expect "$breaks" 's/^    int64_t origin_h;$//'
expect "different functions" 's/flashtile_get_threads/flashtile_threads/'
echo "each change was noticed"
