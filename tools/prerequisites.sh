#!/bin/sh
# Prints which prerequisites of a checkout are missing or too old, and the package to install. This is plain POSIX shell, with
# builtins only, since Python may be what is missing.
#
#   sh tools/prerequisites.sh [python] [java] [cargo] [cc]      (all four when none is named)
#
# Exit code 0: all named prerequisites are there. 1: at least one is not. PYTHON and CARGO name the programs to check.
set -u

PYTHON=${PYTHON:-python3}
CARGO=${CARGO:-cargo}
PYTHON_MIN_MINOR=11
JAVA_MIN=17
missing=0

# Prints the lowest version of Rust that the kernel's manifest accepts.
rust_min() {
    case $0 in */*) root=${0%/*}/.. ;; *) root=.. ;; esac
    while IFS= read -r line; do
        case $line in
            rust-version*) line=${line#*\"}; echo "${line%%\"*}"; return ;;
        esac
    done < "$root/kernel/Cargo.toml"
}

# say WHAT DEBIAN FEDORA MACOS: reports a missing prerequisite, and how to install it on each system
say() {
    missing=1
    echo "$1"
    echo "  Debian, Ubuntu:  $2"
    echo "  Fedora:          $3"
    echo "  macOS:           $4"
}

# at_least VERSION MAJOR MINOR: whether "1.95.0 (…)" is MAJOR.MINOR or newer
at_least() {
    major=${1%%[!0-9]*}
    minor=
    case $1 in "$major".*) minor=${1#*.}; minor=${minor%%[!0-9]*} ;; esac
    [ -n "$major" ] || return 1
    [ "$major" -gt "$2" ] || { [ "$major" -eq "$2" ] && [ "${minor:-0}" -ge "$3" ]; }
}

# Prints a newer Python that is installed under another name, if there is one.
newer_python() {
    for name in python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c '' > /dev/null 2>&1; then
            echo "  found $name:  run make with PYTHON=$name"
            return
        fi
    done
}

check_python() {
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || version=
    if [ -z "$version" ]; then
        say "python: $PYTHON not found; Python 3.$PYTHON_MIN_MINOR or newer is needed" \
            "apt-get install python3 python3-venv" "dnf install python3" "brew install python@3.12"
        newer_python
    elif ! at_least "$version" 3 "$PYTHON_MIN_MINOR"; then
        say "python: $PYTHON is $version; Python 3.$PYTHON_MIN_MINOR or newer is needed" \
            "apt-get install python3.11 python3.11-venv, then make PYTHON=python3.11" \
            "dnf install python3.12, then make PYTHON=python3.12" \
            "brew install python@3.12, then make PYTHON=python3.12"
        newer_python
    elif ! "$PYTHON" -c 'import venv, ensurepip' > /dev/null 2>&1; then
        say "python: $PYTHON ($version) has no venv module" \
            "apt-get install python$version-venv" "dnf install python3-libs" "brew reinstall python@$version"
    fi
}

check_java() {
    # `java -version` prints to standard error, for example: openjdk version "17.0.15" 2025-04-15
    version=$(java -version 2>&1) || version=
    case $version in
        *\"*) version=${version#*\"}; version=${version%%\"*} ;;
        *) version= ;;
    esac
    if [ -z "$version" ]; then
        say "java: not found; Java $JAVA_MIN or newer is needed by Spark" \
            "apt-get install openjdk-17-jre-headless" "dnf install java-21-openjdk-headless" "brew install openjdk@17"
    elif ! at_least "$version" "$JAVA_MIN" 0; then
        say "java: found $version; Java $JAVA_MIN or newer is needed by Spark" \
            "apt-get install openjdk-17-jre-headless" "dnf install java-21-openjdk-headless" "brew install openjdk@17"
    fi
}

check_cargo() {
    needed=$(rust_min)
    if [ -z "$needed" ]; then
        echo "cargo: kernel/Cargo.toml names no rust-version" >&2
        exit 2
    fi
    version=$("$CARGO" --version 2> /dev/null) || version=
    version=${version#cargo }
    if at_least "$version" "${needed%%.*}" "${needed#*.}"; then
        return
    fi
    if ! command -v "$CARGO" > /dev/null 2>&1; then
        state="not found"
    elif [ -z "$version" ]; then
        state="found, but it does not run (rustup without a toolchain?)"
    else
        state="found ${version%% *}"
    fi
    say "cargo: $state; Rust $needed or newer is needed to build the native kernel" \
        "apt-get install rustup && rustup default stable" \
        "dnf install rustup && rustup-init -y" \
        "brew install rustup && rustup default stable"
    echo "  Debian 12, Ubuntu 22.04 have no rustup package: take the installer of the Rust project (rustup-init)"
}

check_cc() {
    if ! command -v cc > /dev/null 2>&1; then
        say "cc: not found; a C compiler and linker is needed to build the native kernel" \
            "apt-get install build-essential" "dnf install gcc" "xcode-select --install"
    fi
}

[ $# -gt 0 ] || set -- python java cargo cc
for part in "$@"; do
    case $part in
        python | java | cargo | cc) "check_$part" ;;
        *) echo "usage: sh tools/prerequisites.sh [python] [java] [cargo] [cc]" >&2; exit 2 ;;
    esac
done
exit $missing
