# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
#
# Sets for scripts that make a Debian system, from the configuration of this machine's apt: `mirror`,
# empty if it has none of Debian, and what mmdebstrap needs to use it, as it can be a snapshot or
# behind a proxy: `valid` and `proxy`.

# shellcheck disable=SC2016 # apt's own variables
mirror=$(apt-get indextargets --format '$(LABEL) $(CODENAME) $(SITE)' 'Created-By: Packages' |
    sed -n "s/^Debian $(. /etc/os-release && echo "$VERSION_CODENAME") //p" | head -n 1)
valid='' proxy=''
eval "$(apt-config shell valid Acquire::Check-Valid-Until proxy Acquire::http::Proxy)"
