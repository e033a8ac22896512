// SPDX-License-Identifier: Apache-2.0
//! Errors of this crate. Each message names the value, the limit and the remedy.

use std::io;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// EAL can be initialised once per process, even after cleanup.
    #[error("EAL was already initialised in this process; DPDK allows it once")]
    AlreadyInitialised,

    /// `rte_eal_init` refused.
    #[error("EAL refused to start with `{arguments}`: {reason}; {remedy}")]
    EalInit {
        /// The argument line given to EAL.
        arguments: String,
        /// DPDK's text for the error number.
        reason: String,
        remedy: &'static str,
    },

    /// Another object still uses EAL.
    #[error(
        "EAL is still in use by {holders} object(s) (ports, queues, pools, threads); drop them \
         before the cleanup"
    )]
    InUse {
        /// Number of objects that hold EAL.
        holders: usize,
    },

    /// All thread slots of EAL are in use.
    #[error("this thread cannot be registered with EAL: {reason}")]
    ThreadRegister {
        /// DPDK's text for the error number.
        reason: String,
    },

    /// DPDK cannot accept the value.
    #[error("{what} `{value}` is not valid: {rule}")]
    Invalid { what: &'static str, value: String, rule: String },

    /// A memory pool could not be created.
    #[error(
        "mempool `{name}` of {count} buffers of {data_room} bytes ({megabytes} MB) cannot be made: \
         {reason}; give EAL more memory or ask for fewer buffers"
    )]
    Mempool {
        name: String,
        count: u32,
        /// Bytes of data per buffer.
        data_room: u16,
        megabytes: u64,
        /// DPDK's text for the error number.
        reason: String,
    },

    /// The text after `--port` is not a port.
    #[error("port `{text}` is not valid: {rule}")]
    Spec { text: String, rule: String },

    /// No driver recognises the device.
    #[error(
        "there is no driver `{driver}`{}; there are: {}",
        nearest.as_ref().map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default(),
        known.join(", ")
    )]
    UnknownDriver { driver: String, known: Vec<&'static str>, nearest: Option<String> },

    /// The network interface does not exist in this network namespace.
    #[error(
        "port `{port}`: there is no interface `{iface}` in this network namespace; there are: {}",
        if existing.is_empty() { "none".to_owned() } else { existing.join(", ") }
    )]
    NoInterface { port: String, iface: String, existing: Vec<String> },

    /// The process may not open the device.
    #[error("port `{port}`: no permission to open `{device}` ({reason}); {remedy}")]
    Permission { port: String, device: String, reason: String, remedy: &'static str },

    /// The PCI device is missing or bound to the wrong driver.
    #[error("port `{port}`: PCI device {address} cannot be used: {reason}; {remedy}")]
    Pci { port: String, address: String, reason: String, remedy: String },

    /// Two ports name one device.
    #[error("ports `{first}` and `{second}` name the same device `{device}`; give each its own")]
    SameDevice {
        /// The port that has the device.
        first: String,
        /// The port that requested it.
        second: String,
        device: String,
    },

    #[error("two ports are named `{name}`; give each its own name")]
    SameName { name: String },

    /// The driver refused to open the device.
    #[error("port `{port}`: the driver did not accept `{device}`: {reason}; {hint}")]
    Probe {
        port: String,
        /// The device with its arguments.
        device: String,
        /// DPDK's text for the error number.
        reason: String,
        hint: String,
    },

    /// More or fewer queues than the device has.
    #[error("port `{port}`: {asked} {direction} queue(s) asked for, {limit}; {remedy}")]
    Queues {
        port: String,
        /// `receive` or `transmit`.
        direction: &'static str,
        asked: u16,
        /// The queues that the device supports.
        limit: String,
        remedy: &'static str,
    },

    /// The pool's buffers are too small for the device's frames.
    #[error(
        "port `{port}`: buffers of {have} bytes are too small, the device writes up to {need} \
         bytes into one; make the mempool with a data room of at least {need}"
    )]
    SmallBuffers {
        port: String,
        /// Bytes per buffer.
        have: u32,
        /// Bytes needed.
        need: u32,
    },

    /// A call on a port failed.
    #[error("port `{port}`: {action} failed: {reason}")]
    Port {
        port: String,
        action: &'static str,
        /// DPDK's text for the error number.
        reason: String,
    },

    /// A call to the system failed.
    #[error("{action}: {source}")]
    Io {
        action: String,
        #[source]
        source: io::Error,
    },

    /// An interface or its offloads cannot be read or changed.
    #[error(transparent)]
    Interface(#[from] interface::Error),
}

impl Error {
    pub(crate) fn invalid(what: &'static str, value: &str, rule: impl Into<String>) -> Self {
        Self::Invalid { what, value: value.to_owned(), rule: rule.into() }
    }
}

/// The system's text for a negative error number as DPDK returns it.
pub(crate) fn reason(code: i32) -> String {
    io::Error::from_raw_os_error(code.checked_abs().unwrap_or(libc::EINVAL)).to_string()
}

/// Text for the calling thread's `rte_errno`.
pub(crate) fn rte_reason() -> String {
    // SAFETY: reads a per-thread variable.
    let code = unsafe { dpdk_sys::lke_errno() };
    // SAFETY: rte_strerror returns a pointer to a per-thread buffer that stays valid until the
    // next call on this thread; it is copied before that.
    unsafe {
        let text = dpdk_sys::rte_strerror(code);
        if text.is_null() {
            return reason(code);
        }
        std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
