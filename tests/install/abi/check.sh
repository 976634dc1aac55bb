#!/bin/bash
# Compares the C interface of the library in $1 with the one that libflashtile.abi keeps, by libabigail: SONAME, exported
# symbols, and every type of flashtile.h. Any difference fails, and what it prints says what to do.
#   check.sh LIBRARY            HEADERS: a folder whose flashtile/flashtile.h is looked at in place of this project's
#   check.sh LIBRARY --renew    writes libflashtile.abi, unless programs that were built before would break
#
# What is compared is a library of the same functions without their bodies, made from flashtile.h in C, so that neither
# debug information nor the C++ runtime's types of some compiler have a part in it. That it has the symbols of the real
# one is checked here; that c_api.cpp defines them with these types, the compiler checks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
library=$1 stored=$here/libflashtile.abi renew=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
headers=${HEADERS:-$here/../../../include}

soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
mkdir "$work/flashtile"
# The version is no part of the ABI.
printf '#define FLASHTILE_VERSION_STRING ""\n' >"$work/flashtile/version.h"
{
    echo '#include <flashtile/flashtile.h>'
    sed 's|/\*.*\*/||' "$headers/flashtile/flashtile.h" | tr '\n' ' ' | grep -oE 'FLASHTILE_API [^;{}]+\);' |
        sed 's/;$/ { __builtin_trap(); }/'
} >"$work/interface.c"
"${CC:-cc}" -g -fno-eliminate-unused-debug-types -Wno-unused-parameter -fPIC -shared -nostdlib -I"$headers" -I"$work" \
    -Wl,-soname,"$soname" -Wl,--version-script="$here/../../../cmake/flashtile.map" "$work/interface.c" -o "$work/interface.so"

symbols() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort; }
diff <(symbols "$work/interface.so") <(symbols "$library") || {
    echo "^ flashtile.h declares (<) and the library exports (>) different functions" >&2
    exit 1
}

abidw --load-all-types --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed "$work/interface.so" |
    sed "s|path='[^']*interface.c'|path='flashtile.h'|" >"$work/now.abi"
# 0: the same; bit 0 or 1: it could not compare; the others: a difference.
status=0
abidiff --non-reachable-types --no-default-suppression --harmless "$stored" "$work/now.abi" >"$work/report" || status=$?
if ! ((status)); then
    echo "the ABI is that of $(basename "$stored"), $soname"
    exit 0
fi
cat "$work/report"
if ((status & 3)); then exit 1; fi

# Structs that grow at their end, behind their `size`, new enumerators and new functions break no program that was built
# before. Whatever else there is breaks some.
kept=$(sed -n "s/.*soname='\([^']*\)'.*/\1/p" "$stored")
if [[ $soname == "$kept" ]] && grep -qE "offset changed|from value|type(def)? name changed|entity changed|deletion|\[D\]|has been removed|[1-9][0-9]* (R|r)emoved" "$work/report"; then
    echo "^ programs that were linked to $soname would break: undo it, or give the library another SOVERSION" >&2
    exit 1
fi
if [[ $renew == --renew ]]; then
    cp "$work/now.abi" "$stored"
    echo "renewed $stored: CHANGELOG.md must say what is above"
    exit 0
fi
echo "^ the ABI has grown: say so in CHANGELOG.md, then run tests/install/abi/check.sh LIBRARY --renew" >&2
exit 1
