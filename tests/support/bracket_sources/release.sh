#!/usr/bin/env bash
set -euo pipefail

here=${BASH_SOURCE[0]%/*}
root=$(cd "$here/.." && pwd)
targets=(linux-x64 linux-arm64 darwin-arm64)
declare -A built=()

say() {
  printf '%s  %s\n' "$(date +%H:%M:%S)" "$*" >&2
}

usage() {
  cat <<TEXT
usage: release.sh [-n] [-o DIR] VERSION
  -n  only say what would be done
TEXT
  exit "${1:-0}"
}

dry=0
out="$root/dist"
while getopts "hno:" option; do
  case $option in
    h) usage ;;
    n) dry=1 ;;
    o) out=$OPTARG ;;
    *) usage 2 ;;
  esac
done
shift $((OPTIND - 1))
version=${1:?"which version?"}

run() {
  if ((dry)); then
    say "would run: $*"
  else
    "$@"
  fi
}

for target in "${targets[@]}"; do
  name="tool-${version}-${target}"
  mkdir -p "$out/$name"
  run make -C "$root" TARGET="$target" DESTDIR="$out/$name"
  if [[ -f "$out/$name/bin/tool" && $dry -eq 0 ]]; then
    built[$target]=$(sha256sum "$out/$name/bin/tool" | cut -d' ' -f1)
  fi
done

(
  cd "$out"
  for target in "${!built[@]}"; do
    echo "${built[$target]}  tool-${version}-${target}"
  done
) > "$out/SHA256SUMS"

say "built ${#built[@]} of ${#targets[@]} targets"
