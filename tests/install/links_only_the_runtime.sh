#!/bin/bash
# Fails if the library in $1 needs anything but the C and C++ runtime, threads and dl.
set -euo pipefail
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[[ -n $needed ]] || { echo "readelf shows no NEEDED entry in $1" >&2; exit 1; }
if grep -vE '^(libstdc\+\+|libgcc_s|libm|libc|libpthread|libdl|ld-linux-[a-z0-9-]+)\.so\.[0-9]+$' <<<"$needed"; then
    echo "^ flashtile must not link these" >&2
    exit 1
fi
