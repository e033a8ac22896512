// SPDX-License-Identifier: Apache-2.0
//! linkd and the dataplane: their sockets, who may connect, whether they answer, and whether
//! they are of linkctl's own version.

use crate::connection::{Connection, channel};
use crate::context::Place;
use ::doctor::finding::Finding;
use nix::unistd::{Gid, Group};
use proto::dataplane::v1 as dp;
use proto::dataplane::v1::dataplane_client::DataplaneClient;
use proto::linkemu::v1 as pb;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use tonic::Code;

const OWN: &str = env!("CARGO_PKG_VERSION");
/// Deadline of an answer of linkd or the dataplane.
const DEADLINE: Duration = Duration::from_secs(5);

pub async fn check(linkd: &Path, dataplane: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    match socket("dataplane", dataplane, "linkd-dataplane") {
        Err(finding) => found.push(finding),
        Ok(()) => {
            let why = "linkd reaches the packets through it";
            let remedy = format!("linkd-dataplane --socket {} …", dataplane.display());
            found.push(match describe(dataplane).await {
                Ok(version) => judge("dataplane", &version),
                Err(error) => Finding::warning("dataplane", error, why, remedy).bad_if(true),
            });
        }
    }
    match socket("linkd", linkd, "linkd") {
        Err(finding) => found.push(finding),
        Ok(()) => found.push(answers(linkd).await),
    }
    found
}

/// Whether one can connect; the finding if not.
fn socket(check: &'static str, path: &Path, program: &str) -> Result<(), Finding> {
    let shown = path.display();
    let start = format!("{program} --socket {shown}");
    let bad = |found: String, why: &str, remedy: String| {
        Err(Finding::warning(check, found, why, remedy).bad_if(true))
    };
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let found = format!("not running: there is no {shown}");
            return Err(Finding::warning(check, found, "linkctl needs it", start));
        }
        Err(error) => {
            return bad(format!("{shown}: {error}"), "linkctl needs it", format!("ls -ld {shown}"));
        }
        Ok(there) => there,
    };
    if !there.file_type().is_socket() {
        let why = "the program refuses to start over it";
        return bad(format!("{shown} is not a socket"), why, format!("mv {shown} {shown}.old"));
    }
    match UnixStream::connect(path) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let group = Group::from_gid(Gid::from_raw(there.gid())).ok().flatten();
            let group = group.map_or_else(|| there.gid().to_string(), |group| group.name);
            let found = format!("{shown}: permission denied");
            let remedy = format!("usermod -aG {group} $USER   # then log in anew");
            return bad(found, "its owner and its group may connect", remedy);
        }
        Err(error) => {
            return bad(format!("{shown}: nobody listens ({error})"), "linkctl needs it", start);
        }
    }
    let mode = there.permissions().mode();
    if mode & 0o002 != 0 {
        let why = "everybody on this machine can change the link";
        return bad(format!("{shown} is open to all"), why, format!("chmod 660 {shown}"));
    }
    Ok(())
}

fn judge(check: &'static str, version: &str) -> Finding {
    if version == OWN {
        return Finding::ok(check, format!("answers, version {version}"));
    }
    Finding::warning(
        check,
        format!("answers, version {version}; linkctl is {OWN}"),
        "what one of them has the other may not know",
        format!("which -a linkctl {}   # install one version of all", program(check)),
    )
}

fn program(check: &str) -> &str {
    if check == "linkd" { check } else { "linkd-dataplane" }
}

async fn describe(path: &Path) -> Result<String, String> {
    let asked = async {
        let channel = channel(path).await?;
        let answer = DataplaneClient::new(channel).describe(dp::DescribeRequest {}).await;
        answer.map(|answer| answer.into_inner().version).map_err(|status| status.message().into())
    };
    let late = |_| Err(format!("it did not answer within {DEADLINE:?}"));
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(late)
}

async fn answers(path: &Path) -> Finding {
    const CHECK: &str = "linkd";
    let bad = |found: String, why: &str, remedy: &str| {
        Finding::warning(CHECK, found, why, remedy).bad_if(true)
    };
    let asked = async {
        let connection = match Connection::viewing(&Place::at(path)).await {
            Ok(connection) => connection,
            Err(failure) => return bad(failure.message().into(), "linkctl needs it", "linkd"),
        };
        let (mut client, request) = (connection.client(), pb::GetVersionRequest {});
        let version = match client.get_version(request).await {
            Ok(answer) => answer.into_inner().version,
            Err(status) if status.code() == Code::Unimplemented => "unknown, an older one".into(),
            Err(status) => return bad(status.message().into(), "linkctl needs it", "linkd"),
        };
        if let Err(status) = client.get_room(pb::GetRoomRequest::default()).await
            && status.code() == Code::Unavailable
        {
            let why = "without a dataplane there is no link";
            return bad(status.message().into(), why, "linkd-dataplane --help");
        }
        judge(CHECK, &version)
    };
    let late = |_| {
        let found = format!("it did not answer within {DEADLINE:?}");
        bad(found, "linkctl needs it", "kill -CONT $(pidof linkd)   # if it was stopped")
    };
    tokio::time::timeout(DEADLINE, asked).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::doctor::finding::Level::{Bad, Ok as Good, Warning};
    use std::fs::Permissions;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_must_be_one_that_is_served_and_not_open_to_all() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "text").unwrap();
        let look = |name: &str| socket("linkd", &at(name), "linkd");
        let none = look("none").unwrap_err();
        assert_eq!(none.level(), Warning);
        assert!(none.remedy.starts_with("linkd --socket "), "{none:?}");
        let file = look("file").unwrap_err();
        assert!(file.level() == Bad && file.found.contains("not a socket"), "{file:?}");
        drop(UnixListener::bind(at("dead")).unwrap());
        let dead = look("dead").unwrap_err();
        assert!(dead.level() == Bad && dead.found.contains("nobody listens"), "{dead:?}");
        let _listener = UnixListener::bind(at("live")).unwrap();
        fs::set_permissions(at("live"), Permissions::from_mode(0o666)).unwrap();
        let open = look("live").unwrap_err();
        assert!(open.level() == Bad && open.remedy.starts_with("chmod 660 "), "{open:?}");
        fs::set_permissions(at("live"), Permissions::from_mode(0o660)).unwrap();
        assert_eq!(look("live"), Ok(()));
    }

    #[test]
    fn other_version_is_reported() {
        assert_eq!(judge("linkd", OWN).level(), Good);
        let other = judge("dataplane", "0.0.9");
        assert_eq!(other.level(), Warning);
        assert!(other.found.contains("0.0.9; linkctl is") && other.remedy.contains("linkd-data"));
    }
}
