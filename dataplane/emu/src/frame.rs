// SPDX-License-Identifier: Apache-2.0
//! Frames on their way in and out: bytes that are copied, or a driver's buffer that the
//! link keeps as it is.
//!
//! The core knows only that a driver's buffers have bytes and can be given
//! back by dropping them. A link without such ports uses [`NoBuffer`], of which there is
//! none.

use std::fmt::Debug;

use crate::client::ClientKey;

/// A driver's buffer with a whole frame in one piece. The link owns it from arrival to
/// release; dropping it gives it back to the driver.
pub trait Buffer: Debug {
    fn bytes(&self) -> &[u8];

    /// The frame, to be changed in place.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Hints the processor that the buffer will be handed to a driver soon.
    fn prefetch(&self) {}

    /// The label with which the frame arrives.
    #[inline]
    fn label(&self) -> Label<'_> {
        Label::NONE
    }
}

/// What the caller knows about the client of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hint {
    /// Unknown: the frame is classified.
    #[default]
    None,
    /// The client with this index, if `epoch` is the plan's; else the frame is classified.
    Client { index: u32, epoch: u16 },
    /// This client, whatever the rules say now; if it cannot be made, the default one.
    Key(ClientKey),
    /// The frame is not one for the link, and is dropped as
    /// [`DropReason::Rejected`](crate::stats::DropReason::Rejected).
    Reject,
}

/// What is known of a frame that arrives, besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label<'a> {
    pub hint: Hint,
    /// Opaque bytes that travel with the frame; at most [`MAX_TAG`](crate::tag::MAX_TAG).
    pub tag: &'a [u8],
    /// An answer to the frame, which goes the other way, gets the same tag. Else there is no answer
    /// to a frame with a tag.
    pub tags_answer: bool,
    /// Number of the port pair that it came in by, below [`MAX_PAIRS`](crate::matches::MAX_PAIRS).
    pub pair: u8,
}

impl Label<'_> {
    /// No hint and no tag, from the first pair.
    pub const NONE: Self = Self { hint: Hint::None, tag: &[], tags_answer: false, pair: 0 };

    /// With this hint, if it is one.
    #[inline]
    #[must_use]
    pub(crate) fn hinted(self, hint: Hint) -> Self {
        if hint == Hint::None { self } else { Self { hint, ..self } }
    }
}

/// The buffer type of a link that copies every frame. It has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBuffer {}

impl Buffer for NoBuffer {
    fn bytes(&self) -> &[u8] {
        match *self {}
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match *self {}
    }
}

/// A buffer of no driver, for links in virtual time.
impl Buffer for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// A frame that is handed over.
#[derive(Debug)]
pub enum Frame<'a, B> {
    /// To be copied.
    Bytes(&'a [u8]),
    /// Code that keeps or accepts the frame takes its buffer out; until then it is `Some`.
    Buffer(&'a mut Option<B>),
}

impl<B: Buffer> Frame<'_, B> {
    /// The frame's bytes; none once the buffer was taken.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Buffer(buffer) => buffer.as_ref().map_or(&[], B::bytes),
        }
    }
}
