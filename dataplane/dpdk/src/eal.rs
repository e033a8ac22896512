// SPDX-License-Identifier: Apache-2.0
//! The environment abstraction layer: started once per process, kept alive by everything else.
//!
//! Reference: DPDK Linux guide, "EAL parameters". Differences from a default start: EAL gets one
//! lcore that may run on every core allowed to the process, so it pins no thread. It opens no
//! telemetry socket and shares no configuration with other processes, so it leaves no files.
//! Control thread.

use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::error::{Error, rte_reason};
use crate::hugepages::hugepages_reserved;
use crate::instance::{EalInner, remove_runtime_folder};
use crate::spec::PortSpec;
use crate::thread::ThreadGuard;

/// Source of EAL's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Ordinary pages (`--no-huge`): works unprivileged, a third slower, no PCI ports.
    NoHuge {
        /// Memory to reserve at start, MB.
        megabytes: u32,
    },
    /// Hugepages without files (`--in-memory`), allocated on demand.
    InMemory {
        /// Memory to allocate at start, MB. The rest is allocated on demand.
        megabytes: Option<u32>,
    },
}

impl Memory {
    /// Hugepages if `megabytes` of them are free, otherwise ordinary pages.
    #[must_use]
    pub fn available(megabytes: u32) -> Self {
        if hugepages_reserved().free >> 20 >= u64::from(megabytes) {
            Self::InMemory { megabytes: Some(megabytes) }
        } else {
            Self::NoHuge { megabytes }
        }
    }
}

/// Verbosity of EAL and the drivers on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    #[default]
    Warning,
    /// Messages for an operator.
    Notice,
    Info,
    Debug,
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        })
    }
}

#[derive(Clone, Debug)]
pub struct EalOptions {
    pub memory: Memory,
    pub log_level: LogLevel,
    /// PCI devices that EAL may use, as `ADDRESS[,arguments]`. If empty, EAL does not scan PCI.
    pub pci: Vec<String>,
    /// Cores for EAL's threads. `None`: all cores allowed to the calling thread.
    pub cores: Option<Vec<usize>>,
}

impl EalOptions {
    /// Default options with the given memory.
    #[must_use]
    pub const fn new(memory: Memory) -> Self {
        Self { memory, log_level: LogLevel::Warning, pci: Vec::new(), cores: None }
    }

    /// Allows the PCI devices among `specs`.
    #[must_use]
    pub fn with_ports<'a>(mut self, specs: impl IntoIterator<Item = &'a PortSpec>) -> Self {
        self.pci.extend(specs.into_iter().filter_map(PortSpec::pci_allow));
        self
    }

    fn arguments(&self) -> Result<Vec<String>, Error> {
        let mut line = vec!["linkemu".to_owned()];
        let mut add = |words: &[&str]| line.extend(words.iter().map(|w| (*w).to_owned()));
        match self.memory {
            Memory::NoHuge { megabytes } => {
                add(&["--no-huge", "--no-shconf", "-m", &megabytes.to_string()]);
            }
            Memory::InMemory { megabytes } => {
                add(&["--in-memory"]);
                if let Some(megabytes) = megabytes {
                    add(&["-m", &megabytes.to_string()]);
                }
            }
        }
        add(&["--no-telemetry"]);
        add(&["--file-prefix", &format!("linkemu-{}", std::process::id())]);
        add(&["--lcores", &lcores(self.cores.as_deref())?]);
        add(&[&format!("--log-level=*:{}", self.log_level)]);
        if self.pci.is_empty() {
            add(&["--no-pci"]);
        }
        for device in &self.pci {
            add(&["-a", device]);
        }
        Ok(line)
    }
}

/// The argument for one lcore, number 0, that floats over `cores`.
fn lcores(cores: Option<&[usize]>) -> Result<String, Error> {
    let list: Vec<String> = match cores {
        Some(cores) => cores.iter().map(usize::to_string).collect(),
        None => {
            let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| Error::Io {
                action: "cannot read the allowed cores".to_owned(),
                source: errno.into(),
            })?;
            (0..CpuSet::count())
                .filter(|core| allowed.is_set(*core).unwrap_or(false))
                .map(|core| core.to_string())
                .collect()
        }
    };
    if list.is_empty() {
        return Err(Error::invalid("core list", "", "at least one core is needed"));
    }
    Ok(format!("0@({})", list.join(",")))
}

/// An initialised EAL. It is cleaned up when no object holds it.
#[derive(Debug)]
pub struct Eal {
    inner: Arc<EalInner>,
}

static INITIALISED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts EAL.
    ///
    /// # Errors
    /// [`Error::AlreadyInitialised`] the second time, [`Error::EalInit`] if DPDK refuses.
    pub fn init(options: &EalOptions) -> Result<Self, Error> {
        let words = options.arguments()?;
        let arguments = words.join(" ");
        let mut owned = Vec::with_capacity(words.len());
        for word in words {
            let text = CString::new(word.as_str())
                .map_err(|_| Error::invalid("EAL argument", &word, "it contains a zero byte"))?;
            // EAL keeps pointers to its arguments, so they are leaked.
            owned.push(text.into_raw());
        }
        if INITIALISED.swap(true, Ordering::SeqCst) {
            return Err(Error::AlreadyInitialised);
        }
        let count = i32::try_from(owned.len()).unwrap_or(i32::MAX);
        // EAL permutes the array and may keep it, so it is leaked too.
        let vector: &'static mut [*mut libc::c_char] = owned.leak();
        // SAFETY: `vector` holds `count` valid, zero-terminated, writable strings, all leaked; EAL
        // was not initialised before in this process.
        let ret = unsafe { dpdk_sys::rte_eal_init(count, vector.as_mut_ptr()) };
        remove_runtime_folder();
        if ret < 0 {
            let remedy = match options.memory {
                Memory::NoHuge { .. } => {
                    "ask for less memory, or see what EAL wrote on standard error"
                }
                Memory::InMemory { .. } => {
                    "reserve hugepages (vm.nr_hugepages) or start without them"
                }
            };
            return Err(Error::EalInit { arguments, reason: rte_reason(), remedy });
        }
        Ok(Self { inner: Arc::new(EalInner::default()) })
    }

    /// DPDK's name and release, as `DPDK 22.11.11`.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: returns a pointer to a static string.
        unsafe { CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy().into_owned()
    }

    /// Registers the calling thread with EAL, so that it gets a mempool cache. Call it first in
    /// each worker thread and keep the guard until the thread ends.
    ///
    /// # Errors
    /// [`Error::ThreadRegister`] if EAL has no slot left.
    pub fn register_thread(&self) -> Result<ThreadGuard, Error> {
        ThreadGuard::new(Arc::clone(&self.inner))
    }

    /// Another handle on EAL, for a thread that registers itself.
    #[must_use]
    pub fn share(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }

    /// Cleans EAL up now.
    ///
    /// # Errors
    /// [`Error::InUse`] if ports, queues, pools or registered threads still hold it. EAL is then
    /// cleaned up when the last of them is dropped.
    pub fn cleanup(self) -> Result<(), Error> {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => {
                drop(inner);
                Ok(())
            }
            Err(inner) => Err(Error::InUse { holders: Arc::strong_count(&inner) - 1 }),
        }
    }

    /// True if a registered driver accepts the device.
    pub(crate) fn recognises(&self, device: &str) -> bool {
        let Ok(text) = CString::new(device) else {
            return false;
        };
        let _control = self.inner.control();
        // SAFETY: `text` is a valid string for the call; EAL is initialised.
        unsafe { dpdk_sys::lke_device_check(text.as_ptr()) == 0 }
    }

    pub(crate) fn inner(&self) -> Arc<EalInner> {
        Arc::clone(&self.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_pci_ports_disable_the_bus() {
        let words = EalOptions::new(Memory::NoHuge { megabytes: 64 }).arguments().unwrap();
        assert!(words.contains(&"--no-pci".to_owned()));
        assert!(words.contains(&"--no-huge".to_owned()));
        assert!(!words.contains(&"--in-memory".to_owned()));
    }

    #[test]
    fn pci_ports_are_allowed_one_by_one() {
        let specs: Vec<PortSpec> =
            vec!["0000:01:00.0".parse().unwrap(), "net_null0".parse().unwrap()];
        let options = EalOptions::new(Memory::InMemory { megabytes: None }).with_ports(&specs);
        let words = options.arguments().unwrap();
        assert!(!words.contains(&"--no-pci".to_owned()));
        let at = words.iter().position(|word| word == "-a").unwrap();
        assert_eq!(words[at + 1], "0000:01:00.0");
    }

    #[test]
    fn one_lcore_floats_over_the_cores_given() {
        assert_eq!(lcores(Some(&[1, 3])).unwrap(), "0@(1,3)");
        assert!(lcores(Some(&[])).is_err());
    }
}
