#!/bin/sh
# isa_symbols.sh: an instruction set's object may define no weak symbol outside its own namespace. The linker keeps one
# of several weak copies, and one compiled for AVX-512 must not become everybody's. And no object of the library may name
# what counts moves (src/cpu/counted).
#   isa_symbols.sh NM OBJECT...
nm=$1
shift
checked=0
bad=0
for object in "$@"; do
    if "$nm" -C "$object" | grep -E 'flashtile::(counted::|counting::|cpu::counted_kernels)'; then
        echo "$object names the unit that counts"
        bad=1
    fi
    case $object in
    */cpu/kernels/*.cpp.o) ;;
    *) continue ;;
    esac
    isa=$(basename "$object" .cpp.o)
    checked=$((checked + 1))
    symbols=$("$nm" --defined-only -C "$object") || exit 1
    # W, V: weak; u: unique. DW.ref. symbols are the exception handling's own and hold no code; nor do the types of
    # functions, which clang's -fsanitize=function writes down.
    strays=$(echo "$symbols" | grep -E '^[0-9a-f]* [WVu] ' | grep -v "flashtile::$isa::" |
        grep -vE ' (DW\.ref\.|V typeinfo (name )?for )')
    if [ -n "$strays" ]; then
        echo "$object defines weak symbols outside flashtile::$isa:"
        echo "$strays"
        bad=1
    fi
done
if [ "$checked" -eq 0 ]; then
    echo "no instruction set's object was given"
    exit 1
fi
echo "$checked objects checked"
exit $bad
