// SPDX-License-Identifier: Apache-2.0
//! The methods of all services, and the fields that a message of theirs has set.
//!
//! Generated from the protos (`build/methods.rs`), so that checks and logs which cover every
//! method need no reflection library. Messages are decoded by prost into the same types that
//! the services get: a check cannot read a request differently than the service behind it.

use generated::METHODS;
use prost::{DecodeError, Message};

/// A method of a service.
#[derive(Debug)]
pub struct Method {
    /// Full name, such as `linkemu.v1.Linkemu/GetLink`.
    pub name: &'static str,
    pub client_streaming: bool,
    pub server_streaming: bool,
    /// Decodes one request.
    pub request: fn(&[u8]) -> Result<Box<dyn Fields>, DecodeError>,
    /// Decodes one answer.
    pub answer: fn(&[u8]) -> Result<Box<dyn Fields>, DecodeError>,
}

/// A message of the protos.
pub trait Fields: Send {
    /// Such as `linkemu.v1.Gate`.
    fn full_name(&self) -> &'static str;
    /// Fields that are set, in the order of the proto: by presence where the field has it,
    /// else those whose value is not the default.
    fn set(&self) -> Vec<(&'static str, Field<'_>)>;
    /// The field `name`; none if the message type has no such field.
    fn name(&self) -> Option<&str>;
    /// The field `generation` of the field `applied`, or of the message itself if its type has
    /// no such field; 0 if it is not set, none if the type has neither.
    fn generation(&self) -> Option<u64>;
}

/// The value of a field that is set.
#[derive(Clone, Copy)]
pub enum Field<'a> {
    Bool(bool),
    Signed(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a str),
    Bytes,
    /// The number, and its name in the proto if it is known.
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

/// A method by its full name; none if no proto has it.
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
