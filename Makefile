# SPDX-License-Identifier: Apache-2.0
#
# The newcomer's door. Each target does the set-up that it needs.

# Where rustup puts cargo.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
MESON ?= meson
TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
SUITES := unit nohuge python smoke p4 hw package
OUT ?= build/demo
# Of `make bench`: where its results go, what else it is told, and what to compare with.
BENCH_OUT ?= build/bench
BENCH_ARGS ?=
# Arguments for the test programs of a suite, for example a filter by name.
export TEST_ARGS ?=
BASE ?=
# Of `make budget`: why the budget changes, and the cases, all by default.
export REASON ?=
CASE ?=
# Of `make repro`: the studies, and further arguments, for example --short.
STUDY ?= sat20
REPRO_ARGS ?=

.NOTPARALLEL:
.PHONY: help setup web web-test build demo p4-demo bench budget repro deb wheel image test soak $(SUITES) lint install clean

help: ## Show this
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing (Debian, as root)
	@scripts/setup.sh

web: ## Build the web page of linkd, which `make build` embeds
	@scripts/setup.sh node
	@scripts/web.sh

build: setup web ## Build the programs, optimised, with assertions
	@scripts/cargo.sh build

demo: build ## Three minutes of a satellite link between two hosts (as root)
	LINKEMU_BIN=$(TARGET_DIR)/debug $(TARGET_DIR)/debug/demo --out $(OUT)

p4-demo: build ## Two boxes behind a P4 switch as one emulator (as root)
	LINKEMU_BIN=$(TARGET_DIR)/debug $(TARGET_DIR)/debug/p4-demo

bench: ## What a packet costs, beside the driver alone (BASE=REV BENCH_ARGS=--quick)
	@scripts/setup.sh bench
	$(CARGO) build --release -p perf
	$(TARGET_DIR)/release/bench --out $(BENCH_OUT) $(BASE:%=--base %) $(BENCH_ARGS)

repro: build ## Published studies with real hosts (STUDY="sat20 …" REPRO_ARGS=--short; as root)
	$(CARGO) build -p repro -p quicflow --features quicflow/s2n
	for study in $(STUDY); do \
	    $(TARGET_DIR)/debug/repro run $$study $(REPRO_ARGS) || [ $$? = 3 ] || exit; \
	done
	$(TARGET_DIR)/debug/repro report $(STUDY) --document docs/studies.md

deb: ## Debian packages of the release build, in build/deb
	@scripts/setup.sh deb node
	@scripts/web.sh
	@scripts/cargo.sh build --release -p linkctl -p linkd -p linkd-dataplane -p linkd-p4switch \
	    -p linkd-group
	LINKEMU_BIN=$(TARGET_DIR)/release scripts/deb.sh build/deb

wheel: ## Wheel of the Python client, in build/wheel
	@scripts/setup.sh python
	build/tools/python/bin/python -m pip wheel --disable-pip-version-check --quiet \
	    --no-build-isolation --no-deps --no-index --wheel-dir build/wheel control/python
	@ls build/wheel/*.whl

image: deb ## A container image of these packages, in build/image (as root)
	@scripts/setup.sh image
	@scripts/image.sh build/deb build/image

test: ## All suites in their short form, with the time of each (as root)
	@scripts/test.sh

soak: ## Long forms, by parts (PART=NAME; PART=list shows them)
	@scripts/soak.sh $(PART)

# One suite: `make smoke TEST_ARGS=download`.
unit: ## Units, properties and fits in virtual time; ports on loopback only
nohuge: ## Real DPDK without hugepages
python: ## The Python client and the pytest plugin, with the real programs (as root)
smoke: ## Real hosts in network namespaces, the real programs (as root)
p4: ## The P4 pipeline in DPDK's software switch, or in bmv2 if LINKEMU_BMV2 names it (as root)
hw: ## DPDK's drivers for real NICs, in a QEMU guest (as root)
package: ## Packages and services on a Debian system (as root)
$(SUITES):
	@scripts/test.sh $@

web-test: ## The web page in a browser, with the real programs (as root)
	@scripts/test.sh web

budget: ## Instructions of a packet against their budget (REASON="…" records it, BASE=REV compares)
ifeq ($(REASON)$(BASE),)
	@scripts/test.sh $@
else
	@scripts/setup.sh budget
	$(CARGO) build --release -p perf
	$(TARGET_DIR)/release/budget $(if $(BASE),--base $(BASE),--reason "$$REASON") $(CASE)
endif

lint: ## Formatting, clippy, protos, and the rules of the one build
	@scripts/setup.sh lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	@scripts/lint.sh

install: ## Install the programs by meson (PREFIX, DESTDIR)
	@scripts/setup.sh install node
	@scripts/web.sh
	[ -d build/meson ] || $(MESON) setup build/meson $(if $(PREFIX),--prefix $(PREFIX))
	$(MESON) install -C build/meson

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf build
