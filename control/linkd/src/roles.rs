// SPDX-License-Identifier: Apache-2.0
//! The role that each call needs: one table, by the method's full name. Other methods need an
//! admin.

use crate::caller::{Caller, Role};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use Role::{Admin, Operator, Viewer};

/// The reason of such a refusal, for programs.
const ROLE_NEEDED: &str = "ROLE_NEEDED";

/// Every method, and the role that it needs.
const METHODS: &[(&str, Role)] = &[
    ("linkemu.v1.Boxes/ListBoxes", Viewer),
    ("linkemu.v1.Boxes/MoveClients", Operator),
    // The answer contains packets.
    ("linkemu.v1.Captures/Capture", Operator),
    ("linkemu.v1.Certificates/GetCertificate", Viewer),
    ("linkemu.v1.Certificates/ListCertificates", Viewer),
    ("linkemu.v1.Doctor/Diagnose", Viewer),
    ("linkemu.v1.Envelopes/GetEnvelope", Viewer),
    ("linkemu.v1.Events/WatchEvents", Viewer),
    ("linkemu.v1.History/GetHistory", Viewer),
    ("linkemu.v1.History/WatchLinks", Viewer),
    ("linkemu.v1.Jobs/CancelJob", Operator),
    ("linkemu.v1.Jobs/CreateJob", Operator),
    ("linkemu.v1.Jobs/DeleteJob", Operator),
    ("linkemu.v1.Jobs/GetJob", Viewer),
    ("linkemu.v1.Jobs/ListJobs", Viewer),
    ("linkemu.v1.Jobs/StartJob", Operator),
    ("linkemu.v1.Jobs/UploadJobInput", Operator),
    ("linkemu.v1.Jobs/WatchJob", Viewer),
    ("linkemu.v1.Leases/AcquireLease", Operator),
    ("linkemu.v1.Leases/GetLease", Viewer),
    ("linkemu.v1.Leases/ReleaseLease", Operator),
    ("linkemu.v1.Leases/RenewLease", Operator),
    ("linkemu.v1.Leases/WatchLease", Viewer),
    ("linkemu.v1.Linkemu/ChangeLinks", Operator),
    ("linkemu.v1.Linkemu/DeleteProfile", Operator),
    ("linkemu.v1.Linkemu/GetClients", Viewer),
    ("linkemu.v1.Linkemu/GetLink", Viewer),
    ("linkemu.v1.Linkemu/GetProfile", Viewer),
    ("linkemu.v1.Linkemu/GetRoom", Viewer),
    ("linkemu.v1.Linkemu/GetStats", Viewer),
    ("linkemu.v1.Linkemu/GetVersion", Viewer),
    ("linkemu.v1.Linkemu/ListClientPage", Viewer),
    ("linkemu.v1.Linkemu/ListClients", Viewer),
    ("linkemu.v1.Linkemu/ListProfiles", Viewer),
    ("linkemu.v1.Linkemu/PatchLink", Operator),
    ("linkemu.v1.Linkemu/PutProfile", Operator),
    ("linkemu.v1.Linkemu/SetClients", Operator),
    ("linkemu.v1.Linkemu/SetProfile", Operator),
    ("linkemu.v1.Linkemu/ValidateProfile", Viewer),
    ("linkemu.v1.Linkemu/WatchStats", Viewer),
    ("linkemu.v1.Links/CreateLink", Operator),
    ("linkemu.v1.Links/DeleteLink", Operator),
    ("linkemu.v1.Links/GetLinkRules", Viewer),
    ("linkemu.v1.Links/ListLinks", Viewer),
    ("linkemu.v1.Links/SetLinkRules", Operator),
    ("linkemu.v1.Scenarios/GetScenario", Viewer),
    ("linkemu.v1.Scenarios/GetScenarioState", Viewer),
    ("linkemu.v1.Scenarios/ListScenarios", Viewer),
    ("linkemu.v1.Scenarios/PauseScenario", Operator),
    ("linkemu.v1.Scenarios/ResumeScenario", Operator),
    ("linkemu.v1.Scenarios/RunScenario", Operator),
    ("linkemu.v1.Scenarios/StopScenario", Operator),
    ("linkemu.v1.Scenarios/WatchScenario", Viewer),
    ("linkemu.v1.Switch/GetSwitch", Viewer),
    ("linkemu.v1.Switch/SetGate", Operator),
    ("linkemu.v1.Switch/SetMirror", Operator),
    ("linkemu.v1.Web/CreateWebLogin", Viewer),
    ("linkemu.v1.Web/GetCaller", Viewer),
];

/// Methods of other packages that linkd serves.
const STANDARD: &[(&str, Role)] = &[
    ("grpc.health.v1.Health/Check", Viewer),
    ("grpc.health.v1.Health/List", Viewer),
    ("grpc.health.v1.Health/Watch", Viewer),
    ("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Viewer),
    ("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Viewer),
];

/// Calls of linkd-group that only read, some of them hundreds of times a second, and are therefore not
/// in the audit log.
const UNAUDITED: &[&str] = &[
    "dataplane.v1.Dataplane/Describe",
    "dataplane.v1.Dataplane/GetPlan",
    "dataplane.v1.Dataplane/GetScenario",
    "dataplane.v1.Dataplane/GetStats",
    "dataplane.v1.Dataplane/ListLinks",
    "dataplane.v1.Dataplane/LookAtClients",
    "dataplane.v1.Dataplane/Watch",
];

/// Fields that make a call need more when they are set.
const FIELDS: &[(&str, &str, Role)] = &[
    // It restarts the high-water marks for all users.
    ("linkemu.v1.Linkemu/GetStats", "mark", Operator),
    ("linkemu.v1.Certificates/GetCertificate", "mark", Operator),
    // It revokes another caller's lease.
    ("linkemu.v1.Leases/AcquireLease", "steal", Admin),
];

/// The least role that a method needs, for any request.
pub(crate) fn of_method(method: &str) -> Role {
    let mut known = METHODS.iter().chain(STANDARD);
    known.find(|(name, _)| *name == method).map_or(Admin, |(_, role)| *role)
}

/// Whether a call passes to the dataplane unread (`--member`).
pub(crate) fn passes(method: &str) -> bool {
    method.starts_with("dataplane.v1.")
}

/// Whether a call is left out of the audit log although it needs more than a viewer.
pub(crate) fn is_unaudited(method: &str) -> bool {
    UNAUDITED.contains(&method)
}

/// The fields of a method's request that need more.
pub(crate) fn of_fields(method: &str) -> impl Iterator<Item = (&'static str, Role)> {
    FIELDS.iter().filter(move |(name, ..)| *name == method).map(|(_, field, role)| (*field, *role))
}

pub(crate) fn denied(caller: &Caller, what: &str, needed: Role) -> Status {
    let Caller { name, role, .. } = caller;
    let message = if caller.session.is_some() {
        format!(
            "{what} needs the role {needed}, and the session of {name:?} has {role}: log in with a \
             link for that role (linkctl web --role {needed})"
        )
    } else {
        format!(
            "{what} needs the role {needed}, and the certificate of {name:?} gives {role}: ask for \
             one with that role (linkctl pki client --role {needed})"
        )
    };
    let facts = [("needed", needed.as_str()), ("role", role.as_str()), ("method", what)];
    let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let details = ErrorDetails::with_error_info(ROLE_NEEDED, "linkemu", facts);
    Status::with_error_details(Code::PermissionDenied, message, details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use prost_types::FileDescriptorSet;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_method_is_in_the_table_and_nothing_else() {
        let set = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
        let public = || set.file.iter().filter(|file| file.package() == "linkemu.v1");
        let messages: Vec<_> = public().flat_map(|file| &file.message_type).collect();
        // The name of each method, and the fields of its request.
        let mut methods: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for service in public().flat_map(|file| &file.service) {
            for method in &service.method {
                let request = method.input_type().strip_prefix(".linkemu.v1.").unwrap();
                let request = messages.iter().find(|message| message.name() == request).unwrap();
                let name = format!("linkemu.v1.{}/{}", service.name(), method.name());
                let fields = request.field.iter().map(|field| field.name()).collect();
                assert!(methods.insert(name, fields).is_none());
            }
        }
        let table: BTreeSet<String> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
        let named: BTreeSet<String> = methods.keys().cloned().collect();
        assert_eq!(table, named);
        let generated = proto::method::all().iter().map(|method| method.name.to_owned());
        let generated: BTreeSet<String> =
            generated.filter(|name| name.starts_with("linkemu.v1.")).collect();
        assert_eq!(table, generated);
        assert_eq!(table.len(), METHODS.len(), "twice in the table");
        for (method, field, role) in FIELDS {
            assert!(methods[*method].contains(field), "{method}: {field}");
            assert!(*role > of_method(method), "{method}: {field} is of no consequence");
        }
    }

    #[test]
    fn calls_of_the_dataplane_need_an_admin_and_changes_are_audited() {
        let methods = proto::method::all().iter().map(|method| method.name);
        let dataplane: Vec<_> = methods.filter(|it| passes(it)).collect();
        assert!(UNAUDITED.iter().all(|method| dataplane.contains(method)), "{dataplane:?}");
        for method in dataplane {
            assert_eq!(of_method(method), Admin);
        }
        assert!(!is_unaudited("dataplane.v1.Dataplane/Apply"));
        assert!(is_unaudited("dataplane.v1.Dataplane/GetPlan"));
    }

    #[test]
    fn what_is_not_in_the_table_needs_an_admin() {
        for method in ["", "linkemu.v1.Linkemu", "linkemu.v1.Linkemu/getlink", "a.B/C"] {
            assert_eq!(of_method(method), Admin);
        }
    }
}
