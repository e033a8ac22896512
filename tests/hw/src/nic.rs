// SPDX-License-Identifier: Apache-2.0
//! Kinds of NIC that QEMU emulates and DPDK supports.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// Intel 82576: DPDK's `net_e1000_igb`.
    Igb,
    /// Intel 82574L: DPDK's `net_e1000_em`.
    E1000e,
    /// VMware's: DPDK's `net_vmxnet3`.
    Vmxnet3,
    /// Virtio 1.0 over PCI: DPDK's `net_virtio`.
    Virtio,
}

impl Nic {
    pub const ALL: [Self; 4] = [Self::Igb, Self::E1000e, Self::Vmxnet3, Self::Virtio];

    /// Name in tests and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Virtio => "virtio-net",
        }
    }

    /// Device of QEMU, with options for an IOMMU.
    #[must_use]
    pub const fn device(self) -> &'static str {
        match self {
            Self::Igb => "igb",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            // Otherwise it accesses the guest's memory past the IOMMU, and DPDK refuses it.
            Self::Virtio => "virtio-net-pci,disable-legacy=on,iommu_platform=on",
        }
    }

    /// Driver of the kernel, if the guest's kernel has one.
    #[must_use]
    pub const fn kernel_driver(self) -> Option<&'static str> {
        match self {
            Self::Igb | Self::E1000e => None,
            Self::Vmxnet3 => Some("vmxnet3"),
            Self::Virtio => Some("virtio-pci"),
        }
    }

    /// Prefix of the name of DPDK's driver.
    #[must_use]
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Igb => "net_e1000_igb",
            Self::E1000e => "net_e1000_em",
            Self::Vmxnet3 => "net_vmxnet3",
            Self::Virtio => "net_virtio",
        }
    }
}
