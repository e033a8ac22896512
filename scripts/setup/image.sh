# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Part of scripts/setup.sh: tools that make and run container images without a container engine.

IMAGE_PACKAGES="mmdebstrap umoci runc jq"
want_packages "There is no container image without it." "$IMAGE_PACKAGES"
