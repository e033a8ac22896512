// SPDX-License-Identifier: Apache-2.0
//! Logs of jobs as they arrive: in unnamed files, at known offsets, with bounds.

use super::{Expiry, Jobs, WAITING};
use crate::refusal;
use proto::linkemu::v1 as pb;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tokio::task::spawn_blocking;
use tonic::Status;

/// Most bytes of one request, of a log, of a certificate, and of all jobs.
const PART: usize = 2 << 20;
const LOG: u64 = 256 << 20;
const CERTIFICATE: u64 = 1 << 20;
const ALL: u64 = 1 << 30;

/// A log, as far as it was uploaded.
#[derive(Clone, Debug)]
pub(super) struct Upload {
    pub file: Arc<File>,
    pub bytes: u64,
}

/// Marks a job as being uploaded to until it is dropped.
struct Uploading<'a> {
    jobs: &'a Jobs,
    job: &'a str,
}

impl Drop for Uploading<'_> {
    fn drop(&mut self) {
        if let Ok(job) = self.jobs.table().find(self.job) {
            job.is_uploading = false;
            if !job.has_ended() && job.expires.is_some() {
                job.expires = Expiry::after(WAITING);
            }
        }
    }
}

impl Jobs {
    /// Writes a part of a log. Returns the bytes of the log.
    pub async fn upload(&self, request: pb::UploadJobInputRequest) -> Result<u64, Status> {
        let input = match pb::JobInput::try_from(request.input) {
            Ok(pb::JobInput::Unspecified) => pb::JobInput::Baseline,
            Ok(input) => input,
            Err(_) => return Err(refusal::field("input", "is no known input of a job")),
        };
        let pb::UploadJobInputRequest { job: name, offset, data, .. } = request;
        if data.is_empty() || data.len() > PART {
            let message = format!("{} bytes are not within 1 B and 2 MiB", data.len());
            return Err(refusal::field("data", message));
        }
        let (known, _uploading) = self.begin(&name, input, offset, data.len() as u64)?;
        let directory = self.0.directory.clone();
        let length = data.len() as u64;
        let written = spawn_blocking(move || write(known, &directory, offset, &data)).await;
        let written = written.map_err(|_| Status::unavailable("linkd is shutting down"))?;
        let file = written.map_err(|error| {
            Status::resource_exhausted(format!(
                "cannot keep the log: {error}; make room on the disk"
            ))
        })?;
        let bytes = offset + length;
        // It may have been cancelled or deleted meanwhile.
        let mut table = self.table();
        let job = table.find(&name)?;
        if job.has_ended() {
            return Err(Status::failed_precondition("the job has ended"));
        }
        job.uploads.insert(input, Upload { file, bytes });
        Ok(bytes)
    }

    /// Checks that a part may be written, and returns the file if there is one to append to.
    fn begin<'a>(
        &'a self,
        name: &'a str,
        input: pb::JobInput,
        offset: u64,
        length: u64,
    ) -> Result<(Option<Arc<File>>, Uploading<'a>), Status> {
        let mut table = self.table();
        let all: u64 =
            table.jobs.iter().flat_map(|job| job.uploads.values()).map(|upload| upload.bytes).sum();
        let job = table.find(name)?;
        job.waiting("upload to")?;
        if !job.spec.takes(input) {
            let message = format!("this job takes no {}", input.as_str_name());
            return Err(refusal::field("input", message));
        }
        let known = job.uploads.get(&input).cloned();
        let bytes = known.as_ref().map_or(0, |known| known.bytes);
        if offset != 0 && offset != bytes {
            return Err(Status::out_of_range(format!(
                "offset {offset}: {bytes} bytes of the input were uploaded; continue there, or start \
                 again at 0"
            )));
        }
        let (most, what) = match input {
            pb::JobInput::BaselineCertificate | pb::JobInput::MeasuredCertificate => {
                (CERTIFICATE, "a certificate")
            }
            _ => (LOG, "a log"),
        };
        if offset.saturating_add(length) > most {
            return Err(Status::resource_exhausted(format!(
                "{what} may have {} MiB: pack it with gzip, give a part of it, or use linkctl",
                most >> 20
            )));
        }
        let replaced = if offset == 0 { bytes } else { 0 };
        if all - replaced + length > ALL {
            return Err(Status::resource_exhausted(format!(
                "the logs of all jobs would have more than {} MiB: start or delete one first",
                ALL >> 20
            )));
        }
        job.is_uploading = true;
        let file = known.filter(|_| offset > 0).map(|known| known.file);
        Ok((file, Uploading { jobs: self, job: name }))
    }
}

/// Writes a part into a file, which is created if there is none.
fn write(
    file: Option<Arc<File>>,
    directory: &Path,
    offset: u64,
    data: &[u8],
) -> io::Result<Arc<File>> {
    let file = file.map_or_else(|| tempfile::tempfile_in(directory).map(Arc::new), Ok)?;
    file.write_all_at(data, offset)?;
    Ok(file)
}
