// SPDX-License-Identifier: Apache-2.0
//! Why a request was not carried out, and its gRPC status.

use std::time::Duration;

use emu::check::PlanError;
use owner::ChangeError;
use thiserror::Error;
use tonic::Status;
use worker::command::CommandError;

use crate::names::ClientsError;
use crate::refusal;

/// Why a request was not carried out.
#[derive(Debug, Error)]
pub enum DataplaneError {
    /// The change cannot be merged, or the plan after it is not valid.
    #[error("{what}: {error}")]
    Change {
        /// For example "the patch".
        what: &'static str,
        error: ChangeError,
    },
    /// The plan is not one that this dataplane can hold.
    #[error("{0}")]
    Refused(#[from] PlanError),
    /// The clients cannot be as the plan says.
    #[error("{0}")]
    Clients(#[from] ClientsError),
    /// The plan has an offload, and there is no switch.
    #[error(
        "the plan has an `offload`, and no P4 switch is before this box: leave it out, or describe \
         the switch under [switch] in the box's file and start the dataplane anew"
    )]
    NoSwitch,
    /// Access links come and go only while no change is pending.
    #[error("a change of this link is pending: wait for it, or withdraw it, and try again")]
    Pending,
    #[error("the link was removed meanwhile: see `linkctl link list`")]
    Removed,
    /// A client cannot be on hold, or the request is not valid.
    #[error("{0}")]
    Hold(String),
    /// The request for a capture is not valid.
    #[error("{0}")]
    Capture(String),
    #[error(
        "somebody captures already, and one capture runs at a time: wait for its end, or end it"
    )]
    Capturing,
    /// A worker cannot be asked.
    #[error("{0}")]
    Worker(#[from] CommandError),
    /// A worker has stalled.
    #[error(
        "a worker has not answered for {} s: it stands still, and frames wait with it. What it was \
         asked for is done when it goes on; look at the link then. If it does not, restart the \
         dataplane",
        .0.as_secs()
    )]
    Stalled(Duration),
    /// The work ended without a result.
    #[error("the request ended without a result: please report this, with the log")]
    Panicked,
}

impl From<DataplaneError> for Status {
    fn from(e: DataplaneError) -> Self {
        match e {
            DataplaneError::Change { what, error } => error.status(what),
            DataplaneError::Refused(e) => refusal::status(&e),
            DataplaneError::Clients(_) | DataplaneError::NoSwitch | DataplaneError::Pending => {
                Self::failed_precondition(e.to_string())
            }
            DataplaneError::Capture(_) | DataplaneError::Hold(_) => {
                Self::invalid_argument(e.to_string())
            }
            DataplaneError::Capturing => Self::resource_exhausted(e.to_string()),
            DataplaneError::Removed => Self::not_found(e.to_string()),
            DataplaneError::Stalled(_) => Self::unavailable(e.to_string()),
            DataplaneError::Worker(_) | DataplaneError::Panicked => Self::internal(e.to_string()),
        }
    }
}
