#!/bin/bash
# Builds the project in outside/ against flashtile and runs both its programs.
#   build_outside.sh package|package-static|pkg-config|pkg-config-static PREFIX   against an installed tree
#   build_outside.sh readme PREFIX README          the README's C++ program, through pkg-config
#   build_outside.sh subdirectory SOURCE BUILD     with flashtile, static, built inside BUILD
#   build_outside.sh fetch SOURCE                  the same through FetchContent, configured only
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
how=$1 from=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

find_pc() {
    PKG_CONFIG_PATH=$(dirname "$(find "$from" -name flashtile.pc)")
    export PKG_CONFIG_PATH
}

# run_both BUILD shared|static: that kind of library must be what was linked.
run_both() {
    local program found
    for program in "$1/use_c" "$1/use_cpp"; do
        found=static
        if readelf -d "$program" | grep -q 'NEEDED.*libflashtile'; then found=shared; fi
        [[ $found == "$2" ]] || { echo "$program is linked to the $found library, not the $2 one" >&2; exit 1; }
        "$program"
    done
}

# Warnings are errors here: the public headers must be clean in a stranger's build.
warnings="-Wall -Wextra -Werror"
kind=shared
if [[ $how == *-static ]]; then kind=static; fi
case $how in
package | package-static)
    "$CMAKE" -S "$here/outside" -B "$work" -DCMAKE_PREFIX_PATH="$from" \
        -DFLASHTILE_USE_STATIC=$([[ $kind == static ]] && echo ON || echo OFF) \
        -DCMAKE_C_FLAGS="$warnings" -DCMAKE_CXX_FLAGS="$warnings"
    "$CMAKE" --build "$work"
    run_both "$work" $kind
    ;;
pkg-config | pkg-config-static)
    find_pc
    pkg-config --exact-version="$(sed -n 's/^#define FLASHTILE_VERSION_STRING "\(.*\)"/\1/p' \
        "$from/include/flashtile/version.h")" flashtile
    read -ra cflags < <(pkg-config --cflags flashtile)
    read -ra libs < <(pkg-config $([[ $kind == static ]] && echo --static) --libs flashtile)
    "$CC" $warnings "${cflags[@]}" "$here/outside/use_c.c" -o "$work/use_c" "${libs[@]}" -lm
    "$CXX" -std=c++20 $warnings "${cflags[@]}" "$here/outside/use_cpp.cpp" -o "$work/use_cpp" "${libs[@]}"
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir flashtile) run_both "$work" $kind
    ;;
readme)
    find_pc
    awk '/^```cpp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$3" >"$work/readme.cpp"
    read -ra flags < <(pkg-config --cflags --libs flashtile)
    "$CXX" -std=c++20 $warnings "$work/readme.cpp" -o "$work/readme" "${flags[@]}"
    # Every row of v is 0.5, and so every mean of them.
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir flashtile) "$work/readme" | tee "$work/said"
    grep -q '^0.5, on cpu ' "$work/said"
    ;;
subdirectory)
    # Hardly optimised, which is quicker: how the library is built in and linked is looked at here, not how fast it is.
    "$CMAKE" -S "$here/outside" -B "$3" -DFLASHTILE_FROM=subdirectory -DFLASHTILE_SOURCE="$from" \
        -DFLASHTILE_INSTALL=ON -DBUILD_SHARED_LIBS=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
    "$CMAKE" --build "$3" --parallel 2
    run_both "$3" static
    ;;
fetch)
    "$CMAKE" -S "$here/outside" -B "$work" -DFLASHTILE_FROM=fetch -DFLASHTILE_SOURCE="$from"
    ;;
*)
    echo "unknown way: $how" >&2
    exit 2
    ;;
esac
