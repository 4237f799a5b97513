#!/bin/sh
# plink2.sh BFILE OUT [K] [approx]: PCA by plink2, exact or not, then its eigenvalues as one JSON line.
set -eu
bfile=$1 out=$2 k=${3:-10}
shift 2
[ $# -eq 0 ] || shift
plink2 --bfile "$bfile" --pca "$k" "$@" --threads "${THREADS:-2}" --out "$out" >"$out.stdout" 2>&1 || {
    cat "$out.stdout" >&2
    exit 1
}
printf '{"eigenvalues": [%s]}\n' "$(paste -sd, "$out.eigenval")"
