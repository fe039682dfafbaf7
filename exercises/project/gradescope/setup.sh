#!/usr/bin/env bash
# Run once when the image of the assignment is built: installs Rust, and builds all that a submission
# needs, so that grading is offline. Everything is in this folder: `source`, when it is Gradescope's.
set -euo pipefail
autograder=${AUTOGRADER:-/autograder}
source=$autograder/source

# Debian 13 and Ubuntu 24.04 have it; an image that brings Rust 1.88 or later needs nothing.
has_rust() {
    command -v cargo >/dev/null && cargo --version | awk '{
        split($2, v, "."); exit !(v[1] > 1 || v[1] == 1 && v[2] >= 88) }'
}
if ! has_rust; then
    apt-get update -q
    apt-get install -y -q gcc libc6-dev rustup
    rustup toolchain install stable --profile minimal
    rustup default stable
fi
command -v cc >/dev/null || { apt-get update -q && apt-get install -y -q gcc libc6-dev; }
command -v jq >/dev/null || { apt-get update -q && apt-get install -y -q jq; }

# What is ours is for nobody else to read: a submission runs as nobody.
chmod 0700 "$source"
cd "$source/grader"
cargo build --locked --offline -p course
target/debug/course grade --prepare
