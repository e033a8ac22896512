// SPDX-License-Identifier: Apache-2.0
//! Kinds of switches.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Bmv2,
    Swx,
    Tofino,
}

impl Target {
    /// Tick of the switch's clock, ns.
    #[must_use]
    pub fn tick(self) -> u64 {
        match self {
            Self::Bmv2 | Self::Swx => 1000,
            Self::Tofino => 1,
        }
    }

    /// Whether a frame has a port or a group, and not both.
    pub(crate) fn has_group_or_port(self) -> bool {
        self == Self::Bmv2
    }

    /// P4 architecture of the program.
    pub(crate) fn arch(self) -> &'static str {
        match self {
            Self::Bmv2 => "v1model",
            Self::Swx => "pna",
            Self::Tofino => "tna",
        }
    }
}
