// SPDX-License-Identifier: Apache-2.0
//! The remedy for a user who may not open linkd's socket.

use nix::unistd::{Gid, Group, User, getgrouplist, getuid};
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why linkd cannot be reached. [`remedy`] belongs to it.
pub const DENIED: &str = "permission denied";

/// How this user gets permission to open the socket.
pub fn remedy(socket: &Path) -> String {
    // The socket itself cannot be looked at if its directory denies it.
    let seen = socket.ancestors().find_map(|path| fs::metadata(path).ok());
    let gid = Gid::from_raw(seen.map_or(0, |seen| seen.gid()));
    let group = Group::from_gid(gid).ok().flatten().map(|group| group.name);
    let user = User::from_uid(getuid()).ok().flatten();
    let groups = user
        .as_ref()
        .and_then(|user| getgrouplist(&CString::new(user.name.as_str()).ok()?, user.gid).ok());
    let is_member = groups.is_some_and(|groups| groups.contains(&gid));
    let user = user.map(|user| user.name);
    words(user.as_deref(), group.as_deref(), gid, is_member)
}

/// `user` and `group` are `None` if they have no name.
fn words(user: Option<&str>, group: Option<&str>, gid: Gid, is_member: bool) -> String {
    let uid = getuid().to_string();
    let user = user.unwrap_or(&uid);
    let Some(group) = group.filter(|_| gid != Gid::from_raw(0)) else {
        return "only root may open it: use sudo, or start linkd with --socket-group".to_owned();
    };
    if is_member {
        return format!("{user} is in the group {group}, but was not at login: log in again");
    }
    format!("as root: adduser {user} {group}; then log in again as {user}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_names_user_and_group() {
        let gid = Gid::from_raw(990);
        let told = words(Some("alice"), Some("linkemu"), gid, false);
        assert_eq!(told, "as root: adduser alice linkemu; then log in again as alice");
        let told = words(Some("alice"), Some("linkemu"), gid, true);
        assert!(told.contains("log in again"), "{told}");
        for (group, gid) in [(Some("root"), Gid::from_raw(0)), (None, gid)] {
            let told = words(Some("alice"), group, gid, false);
            assert!(told.contains("sudo") && told.contains("--socket-group"), "{told}");
        }
    }

    #[test]
    fn group_of_a_socket_is_found_behind_a_closed_directory() {
        let folder = tempfile::tempdir().unwrap();
        let gid = fs::metadata(folder.path()).unwrap().gid();
        let group = Group::from_gid(Gid::from_raw(gid)).unwrap().map(|group| group.name);
        let told = remedy(&folder.path().join("closed/linkd.sock"));
        match group.filter(|_| gid > 0) {
            Some(group) => assert!(told.contains(&group), "{told}"),
            None => assert!(told.contains("--socket-group"), "{told}"),
        }
    }
}
