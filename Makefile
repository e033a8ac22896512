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
# Of `make hw`: what its tests are told.
HW_ARGS ?=
BASE ?=

# Run real DPDK ports; everything else is in the unit suite.
DPDK_CRATES := dpdk-sys dpdk linkd-dataplane perf
# Test the whole system; of each, `unit` takes the library's tests.
SYSTEM_CRATES := smoke p4 hw package

.NOTPARALLEL:
.PHONY: help setup build demo bench deb test unit nohuge smoke p4 hw package python lint install clean

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

deb: build ## Debian packages of what was built, in build/deb
	@scripts/setup.sh package
	LINKEMU_BIN=$(TARGET_DIR)/release scripts/deb.sh build/deb

test: unit nohuge smoke p4 hw package python ## All suites

unit: setup ## Units, properties and fits in virtual time; ports on loopback only
	$(CARGO) test --workspace --no-fail-fast $(SYSTEM_CRATES:%=--exclude %) $(DPDK_CRATES:%=--exclude %)
	$(CARGO) test $(SYSTEM_CRATES:%=-p %) --lib

nohuge: setup ## Real DPDK without hugepages
	$(CARGO) test --no-fail-fast $(DPDK_CRATES:%=-p %)

smoke: build ## Real hosts in network namespaces, the real programs (as root)
	LINKEMU_BIN=$(TARGET_DIR)/release $(CARGO) test --release -p smoke --test smoke

p4: build ## The P4 pipeline in a software switch, where there is one (as root)
	LINKEMU_BIN=$(TARGET_DIR)/release $(CARGO) test --release -p p4 --test p4

hw: build ## DPDK's drivers for real NICs, in a QEMU guest (as root; HW_ARGS=--ignored: netem)
	@scripts/setup.sh hw
	LINKEMU_BIN=$(TARGET_DIR)/release $(CARGO) test --release -p hw --test hw $(if $(HW_ARGS),-- $(HW_ARGS))

package: build ## Packages and services on Debian 12 and 13 (as root)
	@scripts/setup.sh package
	LINKEMU_BIN=$(TARGET_DIR)/release $(CARGO) test --release -p package --test package

python: build ## The Python client and the pytest plugin, with the real programs (as root)
	@scripts/setup.sh python
	LINKEMU_BIN=$(TARGET_DIR)/release control/python/check.sh

lint: setup ## Formatting and clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

install: setup ## Install the programs by meson (PREFIX, DESTDIR)
	[ -d build/meson ] || $(MESON) setup build/meson $(if $(PREFIX),--prefix $(PREFIX))
	$(MESON) install -C build/meson

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf build
