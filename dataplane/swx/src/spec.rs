// SPDX-License-Identifier: Apache-2.0
//! Reads a specification by librte_pipeline, after checks that it does not make.
//!
//! `rte_swx_pipeline_table_config` of 22.11 reads beyond the list of a table's actions if the default
//! action is not in it.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};

use crate::error::Error;

/// Longest line that librte_pipeline reads at once.
const LINE: usize = 2047;

/// A parsed specification.
pub struct Spec(NonNull<swx_sys::pipeline_spec>);

impl Spec {
    pub fn parse(text: &str) -> Result<Self, Error> {
        check(text)?;
        let mut line = 0;
        let mut message: *const c_char = ptr::null();
        // SAFETY: the stream only reads `text`, which outlives it; `text` is not empty, as fmemopen
        // requires. The parser reads the stream and writes the two results.
        let spec = unsafe {
            let stream = libc::fmemopen(text.as_ptr().cast_mut().cast(), text.len(), c"r".as_ptr());
            if stream.is_null() {
                let reason = std::io::Error::last_os_error().to_string();
                return Err(Error::Call { action: "read the specification".into(), reason });
            }
            let spec = swx_sys::pipeline_spec_parse(stream.cast(), &raw mut line, &raw mut message);
            libc::fclose(stream);
            spec
        };
        let spec = NonNull::new(spec);
        // SAFETY: the message is a static string.
        spec.map(Self).ok_or_else(|| Error::Spec { line, reason: unsafe { said(message) } })
    }

    /// Configures a pipeline that has its ports, and no program.
    ///
    /// # Safety
    /// `pipeline` is valid.
    pub unsafe fn configure(
        &self,
        pipeline: NonNull<swx_sys::rte_swx_pipeline>,
    ) -> Result<(), Error> {
        let mut message: *const c_char = ptr::null();
        // SAFETY: both pointers are valid, and the names in `self` are copied by the call.
        let ret = unsafe {
            swx_sys::pipeline_spec_configure(pipeline.as_ptr(), self.0.as_ptr(), &raw mut message)
        };
        // SAFETY: the message is a static string.
        if ret == 0 { Ok(()) } else { Err(Error::Refused(unsafe { said(message) })) }
    }
}

impl Drop for Spec {
    fn drop(&mut self) {
        // SAFETY: the specification was returned by the parser, and is freed once.
        unsafe { swx_sys::pipeline_spec_free(self.0.as_ptr()) };
    }
}

/// # Safety
/// `message` is null or a static string.
unsafe fn said(message: *const c_char) -> String {
    if message.is_null() {
        return "no reason given".into();
    }
    // SAFETY: as for the function.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

/// A table of the specification, as far as it was read.
#[derive(Default)]
struct Seen<'a> {
    actions: BTreeSet<&'a str>,
    default: Option<(u32, &'a str)>,
    in_actions: bool,
}

fn check(text: &str) -> Result<(), Error> {
    let fault = |line, reason: String| Err(Error::Spec { line, reason });
    if text.trim().is_empty() {
        return fault(1, "the specification is empty".into());
    }
    let mut table: Option<Seen<'_>> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if line.len() > LINE || line.contains('\0') {
            return fault(number, format!("longer than {LINE} bytes, or with a zero byte"));
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match (&mut table, words.as_slice()) {
            (None, ["table", ..]) => table = Some(Seen::default()),
            (Some(seen), ["actions", "{"]) => seen.in_actions = true,
            (Some(seen), ["}"]) if seen.in_actions => seen.in_actions = false,
            (Some(seen), [action, ..]) if seen.in_actions => {
                seen.actions.insert(action);
            }
            (Some(seen), ["default_action", action, ..]) => seen.default = Some((number, action)),
            (Some(seen), ["}"]) => {
                if let Some((number, action)) = seen.default
                    && !seen.actions.contains(action)
                {
                    let reason = format!("the default action `{action}` is not among the actions");
                    return fault(number, reason);
                }
                // The blocks `key` and `actions` end with a brace too; the table's is the last.
                if seen.default.is_some() && !seen.actions.is_empty() {
                    table = None;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (u32, String) {
        match Spec::parse(text).err().unwrap() {
            Error::Spec { line, reason } => (line, reason),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn faults_have_their_line() {
        assert_eq!(fault("").0, 1);
        assert_eq!(fault("struct a instanceof b\n").0, 1);
        assert_eq!(fault("\n\nregarray r size x initval 0\n").0, 3);
        assert_eq!(fault(&format!("\n{}\n", "x ".repeat(2000))).0, 2);
        assert_eq!(fault(&format!("struct {} {{\n", "x".repeat(100))).0, 1);
    }

    #[test]
    fn default_action_outside_of_the_list_is_a_fault() {
        let text = "table t {\n\tkey {\n\t\tm.a exact\n\t}\n\tactions {\n\t\ta\n\t}\n\
                    \tdefault_action b args none\n\tsize 1\n}\n";
        let (line, reason) = fault(text);
        assert_eq!(line, 8);
        assert!(reason.contains("`b`"), "{reason}");
    }
}
