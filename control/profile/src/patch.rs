// SPDX-License-Identifier: Apache-2.0
//! A change of parts of a pipe: new values, and the paths of those that are meant, by the schema.

use crate::schema::{self, Field, Kind, Path, Table};
use crate::{Violations, nearest};
use prost_reflect::DynamicMessage;
use proto::linkemu::v1 as pb;
use units::shown;

/// Paths of a mask; more name something twice.
const PATHS: usize = 48;

/// Which fields of a pipe become what.
#[derive(Clone, Debug)]
pub struct Patch {
    paths: Vec<&'static Path>,
    values: DynamicMessage,
}

impl Patch {
    /// Of `values` those at `paths`, as a `PatchLinkRequest` has them.
    ///
    /// # Errors
    /// Paths that are none, and values that are not there.
    pub fn new<T: AsRef<str>>(values: &pb::Pipe, paths: &[T]) -> Result<Self, Violations> {
        let mut found = Violations::default();
        let names = || schema::paths().iter().map(|path| path.name.as_str());
        if paths.is_empty() {
            let all = names().collect::<Vec<_>>().join(", ");
            found.push("mask", format!("names nothing to change: name some of {all}"));
        }
        if paths.len() > PATHS {
            let message = format!("{} paths are more than {PATHS}: name each once", paths.len());
            found.push("mask", message);
            return Err(found);
        }
        let values = Table::named("Pipe").reflect(values);
        let mut known = Vec::new();
        for (i, name) in paths.iter().map(AsRef::as_ref).enumerate() {
            let Some(path) = schema::path(name) else {
                let near = nearest(name, names()).unwrap_or("rate_bps");
                let name = shown(name);
                let message = format!("{name:?} is no part of a pipe: the nearest is {near:?}");
                found.push(format!("mask.paths[{i}]"), message);
                continue;
            };
            // A value whose message is absent would silently become zero.
            if let [parent, field] = path.steps[..]
                && field.kind != Kind::Table
                && !parent.is_given(&values)
            {
                let message = "missing, though the mask names a part of it: give it";
                found.push(format!("pipe.{}", parent.key), message);
            }
            known.push(path);
        }
        found.into_result()?;
        Ok(Self { paths: known, values })
    }

    /// Whether it names a field, such as `queue.limit_bytes`.
    #[must_use]
    pub fn names(&self, path: &str) -> bool {
        self.paths.iter().any(|it| it.name == path)
    }

    /// Changes a pipe.
    ///
    /// What cannot stay beside a value that is given, and is not named, goes: the others of its
    /// choice, a fade without outages, marks without a queue management that makes them.
    pub fn apply(&self, pipe: &mut pb::Pipe) {
        let table = Table::named("Pipe");
        let mut message = table.reflect(pipe);
        for path in &self.paths {
            match path.steps[..] {
                [field] => self.change(&mut message, &self.values, table, field, ""),
                [parent, field] => {
                    let given = self.values.get_field(&parent.descriptor);
                    let value = message.get_field_mut(&parent.descriptor);
                    if let (Some(inner), Some(given), Some(table)) =
                        (value.as_message_mut(), given.as_message(), parent.table())
                    {
                        let prefix = format!("{}.", parent.descriptor.name());
                        self.change(inner, given, table, field, &prefix);
                    }
                }
                _ => {}
            }
        }
        *pipe = schema::typed(&message);
        if pipe.outages.is_empty() && self.names("outages") && !self.names("fade") {
            pipe.fade = None;
        }
        let aqms = ["queue.random_drop", "queue.red", "queue.codel", "queue.pie"];
        if let Some(queue) = &mut pipe.queue
            && aqms.iter().any(|aqm| self.names(aqm))
            && !self.names("queue.ecn")
            && !queue.has_aqm()
        {
            queue.ecn = false;
        }
    }

    /// Changes a field of a message, and takes away the others of its choice.
    fn change(
        &self,
        message: &mut DynamicMessage,
        values: &DynamicMessage,
        table: &Table,
        field: &Field,
        prefix: &str,
    ) {
        let is_given = field.is_given(values);
        if is_given {
            let value = values.get_field(&field.descriptor).into_owned();
            message.set_field(&field.descriptor, value);
        } else {
            message.clear_field(&field.descriptor);
        }
        // Of a rate, nothing is a value as well: it is not limited.
        let is_value = field.kind != Kind::Table && field.descriptor.supports_presence();
        if !(is_given || is_value) {
            return;
        }
        for other in table.alternatives(field) {
            let name = format!("{prefix}{}", other.descriptor.name());
            if !self.names(&name) {
                message.clear_field(&other.descriptor);
            }
        }
    }
}
