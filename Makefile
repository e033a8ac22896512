# SPDX-License-Identifier: Apache-2.0
#
# The newcomer's door. Each target does the set-up that it needs.

# Where rustup puts cargo.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
MESON ?= meson
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
OUT ?= build/demo
# Of `make bench`: where its results go, what else it is told, and what to compare with.
BENCH_OUT ?= build/bench
BENCH_ARGS ?=
BASE ?=

# Run real DPDK ports; everything else is in the unit suite.
DPDK_CRATES := dpdk-sys dpdk linkd-dataplane perf

.NOTPARALLEL:
.PHONY: help setup build demo bench test unit nohuge smoke p4 lint install clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (Debian, as root)
	@scripts/setup.sh

build: setup ## Build everything, optimised
	$(CARGO) build --workspace --release

demo: build ## Three minutes of a satellite link between two hosts (as root)
	LINKEMU_BIN=$(TARGET_DIR)/release $(TARGET_DIR)/release/demo --out $(OUT)

bench: ## What a packet costs, beside the driver alone (BASE=REV BENCH_ARGS=--quick)
	@scripts/setup.sh bench
	$(CARGO) build --release -p perf
	$(TARGET_DIR)/release/bench --out $(BENCH_OUT) $(BASE:%=--base %) $(BENCH_ARGS)

test: unit nohuge smoke p4 ## All suites

unit: setup ## Units, properties and fits in virtual time; ports on loopback only
	$(CARGO) test --workspace --no-fail-fast --exclude smoke --exclude p4 $(DPDK_CRATES:%=--exclude %)
	$(CARGO) test -p smoke -p p4 --lib

nohuge: setup ## Real DPDK without hugepages
	$(CARGO) test --no-fail-fast $(DPDK_CRATES:%=-p %)

smoke: build ## Real hosts in network namespaces, the real programs (as root)
	LINKEMU_BIN=$(TARGET_DIR)/release $(CARGO) test --release -p smoke --test smoke

p4: build ## The P4 pipeline in a software switch, where there is one (as root)
	LINKEMU_BIN=$(TARGET_DIR)/release $(CARGO) test --release -p p4 --test p4

lint: setup ## Formatting and clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

install: setup ## Install the programs by meson (PREFIX, DESTDIR)
	[ -d build/meson ] || $(MESON) setup build/meson $(if $(PREFIX),--prefix $(PREFIX))
	$(MESON) install -C build/meson

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf build
