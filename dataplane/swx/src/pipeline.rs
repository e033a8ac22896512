// SPDX-License-Identifier: Apache-2.0
//! A pipeline with its tables and registers.
//!
//! Invariant: `ports` outlives the pipeline, and nothing borrows it while the pipeline runs.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};

use dpdk::Eal;

use crate::compact::compact;
use crate::error::{Error, check};
use crate::spec::Spec;
use crate::table::{Action, Argument, Entry, Field, Key, Match, Table};
use crate::wire::{Ports, Wire};

/// Number of the input port.
const PORT: u32 = 0;
/// Number of the output port of packets that are sent.
const SENT: u32 = 0;
/// SWX adds a port for packets that are dropped.
const DROPPED: u32 = 1;
/// Instructions between checks whether the pipeline is empty.
const DRAIN: u32 = 64;

/// A pipeline with its source and destination of packets.
#[derive(Debug)]
pub struct Pipeline<W: Wire> {
    pipeline: NonNull<swx_sys::rte_swx_pipeline>,
    control: NonNull<swx_sys::rte_swx_ctl_pipeline>,
    ports: NonNull<Ports<W>>,
    tables: HashMap<String, Table>,
    _eal: Eal,
}

// SAFETY: the pipeline and its tables are plain memory without thread-local state, and this value is
// their only owner.
unsafe impl<W: Wire + Send> Send for Pipeline<W> {}

impl<W: Wire> Pipeline<W> {
    /// Builds a pipeline from a specification.
    ///
    /// A specification is code: SWX does not check that the headers that it extracts and emits fit
    /// a buffer.
    ///
    /// # Errors
    /// [`Error`] if the specification is wrong or memory is short.
    pub fn build(eal: &Eal, spec: &str, wire: W) -> Result<Self, Error> {
        let spec = Spec::parse(&compact(spec)?)?;
        let ports = NonNull::from(Box::leak(Box::new(Ports::new(wire))));
        let mut pipeline = ptr::null_mut();
        // SAFETY: EAL runs and the result is writable; no name, any NUMA node.
        let ret = unsafe { swx_sys::rte_swx_pipeline_config(&raw mut pipeline, ptr::null(), -1) };
        let built = check(ret, || "make a pipeline".into()).and_then(|()| {
            let pipeline =
                NonNull::new(pipeline).ok_or_else(|| Error::Refused("no memory".into()))?;
            // SAFETY: the pipeline was just made, and `ports` outlives it.
            unsafe { configure(pipeline, &spec, ports) }
        });
        match built {
            Ok((pipeline, control)) => {
                let mut this =
                    Self { pipeline, control, ports, tables: HashMap::new(), _eal: eal.share() };
                this.tables = this.describe()?;
                Ok(this)
            }
            Err(error) => {
                // SAFETY: a pipeline that was not built is freed once, then its ports. Null is
                // allowed.
                unsafe {
                    swx_sys::rte_swx_pipeline_free(pipeline);
                    drop(Box::from_raw(ports.as_ptr()));
                }
                Err(error)
            }
        }
    }

    /// Executes this number of instructions.
    #[inline]
    pub fn run(&mut self, instructions: u32) {
        // SAFETY: the pipeline is built, and nothing borrows its ports.
        unsafe { swx_sys::rte_swx_pipeline_run(self.pipeline.as_ptr(), instructions) };
    }

    /// Runs without reception until no packet is in the pipeline.
    pub fn drain(&mut self) {
        self.ports_mut().is_closed = true;
        while self.in_flight() > 0 {
            self.run(DRAIN);
        }
        self.ports_mut().is_closed = false;
    }

    /// Packets that the program has dropped.
    pub fn dropped(&mut self) -> u64 {
        let mut stats = swx_sys::rte_swx_port_out_stats::default();
        // SAFETY: the pipeline is built and has this port; the result is writable.
        unsafe {
            let pipeline = self.pipeline.as_ptr();
            swx_sys::rte_swx_ctl_pipeline_port_out_stats_read(pipeline, DROPPED, &raw mut stats);
        }
        stats.n_pkts_drop
    }

    fn in_flight(&mut self) -> u64 {
        let dropped = self.dropped();
        let ports = self.ports_mut();
        ports.received.saturating_sub(ports.sent + dropped)
    }

    pub fn wire(&mut self) -> &mut W {
        &mut self.ports_mut().wire
    }

    const fn ports_mut(&mut self) -> &mut Ports<W> {
        // SAFETY: the pipeline does not run, since `run` borrows this value, too.
        unsafe { self.ports.as_mut() }
    }

    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn table(&self, name: &str) -> Result<&Table, Error> {
        self.tables.get(name).ok_or_else(|| missing("table", name))
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    /// Adds an entry, or replaces the one with the same key, at the next [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`Error`] if it does not fit the table.
    pub fn set(&mut self, table: &str, entry: &Entry) -> Result<(), Error> {
        let (action_id, mut data) = self.table(table)?.action(&entry.action, &entry.arguments)?;
        self.with_entry(table, &entry.key, |control, name, raw| {
            raw.action_id = action_id;
            raw.action_data = if data.is_empty() { ptr::null_mut() } else { data.as_mut_ptr() };
            // SAFETY: all pointers are valid for the call, which copies what they point to.
            unsafe { swx_sys::rte_swx_ctl_pipeline_table_entry_add(control, name, raw) }
        })
    }

    /// Removes an entry at the next [`commit`](Self::commit). Without an entry, nothing happens.
    ///
    /// # Errors
    /// [`Error`] if the key does not fit the table.
    pub fn remove(&mut self, table: &str, key: &Key) -> Result<(), Error> {
        self.with_entry(table, key, |control, name, raw| {
            // SAFETY: as for `set`.
            unsafe { swx_sys::rte_swx_ctl_pipeline_table_entry_delete(control, name, raw) }
        })
    }

    fn with_entry(
        &mut self,
        table: &str,
        key: &Key,
        call: impl FnOnce(
            *mut swx_sys::rte_swx_ctl_pipeline,
            *const c_char,
            &mut swx_sys::rte_swx_table_entry,
        ) -> i32,
    ) -> Result<(), Error> {
        let mut bytes = self.table(table)?.key(key)?;
        let name = text(table)?;
        let mut raw = swx_sys::rte_swx_table_entry {
            key: bytes.key.as_mut_ptr(),
            key_mask: bytes.mask.as_mut_ptr(),
            key_priority: bytes.priority,
            ..Default::default()
        };
        let ret = call(self.control.as_ptr(), name.as_ptr(), &mut raw);
        check(ret, || format!("change table `{table}`"))
    }

    /// Applies all changes of entries at once, between packets. Without success, none is applied.
    ///
    /// # Errors
    /// [`Error::Call`], as for a table that is full.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.drain();
        // SAFETY: no packet is in the pipeline, so nothing refers to the tables that it replaces.
        let ret = unsafe { swx_sys::rte_swx_ctl_pipeline_commit(self.control.as_ptr(), 1) };
        check(ret, || "change tables".into())
    }

    /// Forgets the changes since the last commit.
    pub fn abort(&mut self) {
        // SAFETY: the control object is valid.
        unsafe { swx_sys::rte_swx_ctl_pipeline_abort(self.control.as_ptr()) };
    }

    /// The value of a register.
    ///
    /// # Errors
    /// [`Error::Call`] without this array or register.
    pub fn register(&mut self, array: &str, index: u32) -> Result<u64, Error> {
        self.read(&text(array)?, index)
    }

    /// Values of registers.
    ///
    /// # Errors
    /// As for [`register`](Self::register).
    pub fn registers(&mut self, array: &str, indices: Range<u32>) -> Result<Vec<u64>, Error> {
        let name = text(array)?;
        indices.map(|index| self.read(&name, index)).collect()
    }

    fn read(&mut self, name: &CStr, index: u32) -> Result<u64, Error> {
        let mut value = 0;
        // SAFETY: the pipeline is built, `name` and the result are valid for the call.
        let ret = unsafe {
            let pipeline = self.pipeline.as_ptr();
            swx_sys::rte_swx_ctl_pipeline_regarray_read(
                pipeline,
                name.as_ptr(),
                index,
                &raw mut value,
            )
        };
        check(ret, || format!("read register {index} of `{}`", name.to_string_lossy()))?;
        Ok(value)
    }

    /// Sets a register.
    ///
    /// # Errors
    /// As for [`register`](Self::register).
    pub fn set_register(&mut self, array: &str, index: u32, value: u64) -> Result<(), Error> {
        let name = text(array)?;
        // SAFETY: as for `register`.
        let ret = unsafe {
            let pipeline = self.pipeline.as_ptr();
            swx_sys::rte_swx_ctl_pipeline_regarray_write(pipeline, name.as_ptr(), index, value)
        };
        check(ret, || format!("write register {index} of `{array}`"))
    }

    fn describe(&self) -> Result<HashMap<String, Table>, Error> {
        let pipeline = self.pipeline.as_ptr();
        let told = |ret| check(ret, || "describe the pipeline".into());
        let mut info = swx_sys::rte_swx_ctl_pipeline_info::default();
        // SAFETY: here and below the pipeline is built, and the results are writable. A number out
        // of range is an error.
        told(unsafe { swx_sys::rte_swx_ctl_pipeline_info_get(pipeline, &raw mut info) })?;
        let mut actions = Vec::new();
        for id in 0..info.n_actions {
            let mut action = swx_sys::rte_swx_ctl_action_info::default();
            // SAFETY: as above.
            told(unsafe { swx_sys::rte_swx_ctl_action_info_get(pipeline, id, &raw mut action) })?;
            let mut arguments = Vec::new();
            for number in 0..action.n_args {
                let mut raw = swx_sys::rte_swx_ctl_action_arg_info::default();
                // SAFETY: as above.
                told(unsafe {
                    swx_sys::rte_swx_ctl_action_arg_info_get(pipeline, id, number, &raw mut raw)
                })?;
                let is_network = raw.is_network_byte_order != 0;
                arguments.push(Argument { name: name(&raw.name), bits: raw.n_bits, is_network });
            }
            actions.push((name(&action.name), arguments));
        }
        let mut tables = HashMap::new();
        for id in 0..info.n_tables {
            let mut raw = swx_sys::rte_swx_ctl_table_info::default();
            // SAFETY: as above.
            told(unsafe { swx_sys::rte_swx_ctl_table_info_get(pipeline, id, &raw mut raw) })?;
            let table = Table {
                name: name(&raw.name),
                fields: (0..raw.n_match_fields)
                    .map(|number| self.field(id, number))
                    .collect::<Result<_, _>>()?,
                actions: (0..raw.n_actions)
                    .map(|number| self.action(id, number, &actions))
                    .collect::<Result<_, _>>()?,
                size: raw.size,
            };
            tables.insert(table.name.clone(), table);
        }
        Ok(tables)
    }

    fn field(&self, table: u32, number: u32) -> Result<Field, Error> {
        let mut raw = swx_sys::rte_swx_ctl_table_match_field_info::default();
        // SAFETY: as for `describe`.
        let ret = unsafe {
            let pipeline = self.pipeline.as_ptr();
            swx_sys::rte_swx_ctl_table_match_field_info_get(pipeline, table, number, &raw mut raw)
        };
        check(ret, || "describe a key".into())?;
        let kind = match raw.match_type {
            swx_sys::RTE_SWX_TABLE_MATCH_EXACT => Match::Exact,
            swx_sys::RTE_SWX_TABLE_MATCH_LPM => Match::Lpm,
            _ => Match::Wildcard,
        };
        let (is_header, offset) = (raw.is_header != 0, raw.offset as usize / 8);
        Ok(Field { bits: raw.n_bits, kind, is_header, offset })
    }

    fn action(
        &self,
        table: u32,
        number: u32,
        all: &[(String, Vec<Argument>)],
    ) -> Result<Action, Error> {
        let mut raw = swx_sys::rte_swx_ctl_table_action_info::default();
        // SAFETY: as for `describe`.
        let ret = unsafe {
            let pipeline = self.pipeline.as_ptr();
            swx_sys::rte_swx_ctl_table_action_info_get(pipeline, table, number, &raw mut raw)
        };
        check(ret, || "describe an action".into())?;
        let action = all.get(raw.action_id as usize);
        let (name, arguments) = action.ok_or_else(|| missing("action", "of a table"))?.clone();
        let is_for_entries = raw.action_is_for_table_entries != 0;
        Ok(Action { name, arguments, is_for_entries, id: raw.action_id.into() })
    }
}

impl<W: Wire> Drop for Pipeline<W> {
    fn drop(&mut self) {
        let pipeline = self.pipeline.as_ptr();
        // SAFETY: each is freed once, the ports last, because the pipeline refers to them.
        unsafe {
            swx_sys::rte_swx_ctl_pipeline_free(self.control.as_ptr());
            forget_shared(pipeline, self.tables.len());
            swx_sys::rte_swx_pipeline_free(pipeline);
            drop(Box::from_raw(self.ports.as_ptr()));
        }
    }
}

/// Prevents a second free of wildcard tables. They cannot be changed in place, so the control object
/// and the pipeline share them, and both free them (22.11 to 25.11).
///
/// # Safety
/// The control object has just been freed.
unsafe fn forget_shared(pipeline: *mut swx_sys::rte_swx_pipeline, tables: usize) {
    let mut states = ptr::null_mut();
    // SAFETY: the pipeline is built, so it has one state for each table, and the results are writable.
    unsafe {
        if swx_sys::rte_swx_pipeline_table_state_get(pipeline, &raw mut states) != 0 {
            return;
        }
        for id in 0..tables {
            let mut ops = swx_sys::rte_swx_table_ops::default();
            let mut is_stub = 0;
            swx_sys::rte_swx_ctl_table_ops_get(pipeline, id as u32, &raw mut ops, &raw mut is_stub);
            if is_stub == 0 && ops.add.is_none() {
                (*states.add(id)).obj = ptr::null_mut();
            }
        }
    }
}

type Built = (NonNull<swx_sys::rte_swx_pipeline>, NonNull<swx_sys::rte_swx_ctl_pipeline>);

/// # Safety
/// `pipeline` was just made, and `ports` outlives it.
unsafe fn configure<W: Wire>(
    pipeline: NonNull<swx_sys::rte_swx_pipeline>,
    spec: &Spec,
    ports: NonNull<Ports<W>>,
) -> Result<Built, Error> {
    let raw = pipeline.as_ptr();
    let object: *mut c_void = ports.as_ptr().cast();
    let name = c"linkemu".as_ptr();
    let (mut input, mut output) = (Ports::<W>::IN, Ports::<W>::OUT);
    let told = |ret, what: &str| check(ret, || format!("configure the {what}"));
    // SAFETY: the pipeline is valid; names, operations and `object` are valid for the calls, which
    // copy the first two and keep the third.
    unsafe {
        let ret = swx_sys::rte_swx_pipeline_port_in_type_register(raw, name, &raw mut input);
        told(ret, "input")?;
        let ret = swx_sys::rte_swx_pipeline_port_out_type_register(raw, name, &raw mut output);
        told(ret, "output")?;
        told(swx_sys::rte_swx_pipeline_port_in_config(raw, PORT, name, object), "input")?;
        told(swx_sys::rte_swx_pipeline_port_out_config(raw, SENT, name, object), "output")?;
        spec.configure(pipeline)?;
        told(swx_sys::rte_swx_pipeline_build(raw), "pipeline")?;
        let control = NonNull::new(swx_sys::rte_swx_ctl_pipeline_create(raw));
        let control =
            control.ok_or_else(|| Error::Refused("its tables are not supported".into()))?;
        Ok((pipeline, control))
    }
}

fn missing(kind: &'static str, name: &str) -> Error {
    Error::Missing { kind, name: name.into() }
}

fn text(name: &str) -> Result<CString, Error> {
    CString::new(name).map_err(|_| missing("object", name))
}

/// A name that SWX has written into a fixed array.
fn name(raw: &[c_char]) -> String {
    // SAFETY: SWX ends each name with a zero.
    unsafe { CStr::from_ptr(raw.as_ptr()) }.to_string_lossy().into_owned()
}
