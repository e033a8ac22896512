// SPDX-License-Identifier: Apache-2.0
//! Methods of all services, and access to the set fields of their messages.
//!
//! Generated from the protos (`build/methods.rs`), so that checks and logs of all methods need no
//! reflection library. prost decodes messages into the same types as for the services, so a check
//! and the service cannot decode a request differently.

use generated::METHODS;
use prost::{DecodeError, Message};

/// A method of a service.
#[derive(Debug)]
pub struct Method {
    /// Full name, such as `linkemu.v1.Linkemu/GetLink`.
    pub name: &'static str,
    pub client_streaming: bool,
    pub server_streaming: bool,
    pub request: fn(&[u8]) -> Result<Box<dyn Fields>, DecodeError>,
    pub answer: fn(&[u8]) -> Result<Box<dyn Fields>, DecodeError>,
}

/// A message of the protos.
pub trait Fields: Send {
    /// Such as `linkemu.v1.Gate`.
    fn full_name(&self) -> &'static str;
    /// Set fields, in proto order. A field without presence is set if its value is not the
    /// default.
    fn set(&self) -> Vec<(&'static str, Field<'_>)>;
    /// Value of the field `name`; `None` if the message type has no such field.
    fn name(&self) -> Option<&str>;
    /// Value of `applied.generation`, or of `generation` if the type has no `applied`. 0 if it is
    /// not set, `None` if the type has neither.
    fn generation(&self) -> Option<u64>;
}

/// Value of a set field.
#[derive(Clone, Copy)]
pub enum Field<'a> {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a str),
    Bytes,
    /// Number, and its name if it is known.
    Enum(i32, Option<&'static str>),
    Message(&'a dyn Fields),
    /// The paths of a `google.protobuf.FieldMask`.
    Mask(&'a [String]),
    /// Another message of `google.protobuf`.
    WellKnown,
    /// A list of strings.
    Texts(&'a [String]),
    /// The length of any other list.
    List(usize),
}

/// Finds a method by its full name.
pub fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// All methods of all services.
pub fn all() -> &'static [Method] {
    METHODS
}

fn decode<M: Message + Default + Fields + 'static>(
    bytes: &[u8],
) -> Result<Box<dyn Fields>, DecodeError> {
    Ok(Box::new(M::decode(bytes)?))
}

#[allow(unused_variables)]
mod generated {
    use super::{Field, Fields, Method, decode};

    include!(concat!(env!("OUT_DIR"), "/methods.rs"));
}
