// SPDX-License-Identifier: Apache-2.0
//! Which role a call needs: one table, by the method's full name. What is not in it
//! needs an admin.

use crate::caller::{Caller, Role};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use Role::{Admin, Operator, Viewer};

/// The reason of such a refusal, for programs.
const ROLE_NEEDED: &str = "ROLE_NEEDED";

/// Every method, and the role that it needs.
const METHODS: &[(&str, Role)] = &[
    // It shows what is in the packets.
    ("linkemu.v1.Captures/Capture", Operator),
    ("linkemu.v1.Certificates/GetCertificate", Viewer),
    ("linkemu.v1.Events/WatchEvents", Viewer),
    ("linkemu.v1.Leases/AcquireLease", Operator),
    ("linkemu.v1.Leases/GetLease", Viewer),
    ("linkemu.v1.Leases/ReleaseLease", Operator),
    ("linkemu.v1.Leases/RenewLease", Operator),
    ("linkemu.v1.Linkemu/DeleteProfile", Operator),
    ("linkemu.v1.Linkemu/GetClients", Viewer),
    ("linkemu.v1.Linkemu/GetLink", Viewer),
    ("linkemu.v1.Linkemu/GetProfile", Viewer),
    ("linkemu.v1.Linkemu/GetRoom", Viewer),
    ("linkemu.v1.Linkemu/GetStats", Viewer),
    ("linkemu.v1.Linkemu/GetVersion", Viewer),
    ("linkemu.v1.Linkemu/ListClients", Viewer),
    ("linkemu.v1.Linkemu/ListProfiles", Viewer),
    ("linkemu.v1.Linkemu/PatchLink", Operator),
    ("linkemu.v1.Linkemu/PutProfile", Operator),
    ("linkemu.v1.Linkemu/SetClients", Operator),
    ("linkemu.v1.Linkemu/SetProfile", Operator),
    ("linkemu.v1.Linkemu/ValidateProfile", Viewer),
    ("linkemu.v1.Linkemu/WatchStats", Viewer),
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
];

/// Those of other packages that linkd serves.
const STANDARD: &[(&str, Role)] = &[
    ("grpc.health.v1.Health/Check", Viewer),
    ("grpc.health.v1.Health/List", Viewer),
    ("grpc.health.v1.Health/Watch", Viewer),
    ("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Viewer),
    ("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Viewer),
];

/// Fields that make a call need more when they are set.
const FIELDS: &[(&str, &str, Role)] = &[
    // It starts the high-water marks anew, for everybody.
    ("linkemu.v1.Linkemu/GetStats", "mark", Operator),
    ("linkemu.v1.Certificates/GetCertificate", "mark", Operator),
    // It takes what somebody else holds.
    ("linkemu.v1.Leases/AcquireLease", "steal", Admin),
];

/// The role that a method needs, whatever the request says.
pub(crate) fn of_method(method: &str) -> Role {
    let mut known = METHODS.iter().chain(STANDARD);
    known.find(|(name, _)| *name == method).map_or(Admin, |(_, role)| *role)
}

/// The fields of a method's request that need more.
pub(crate) fn of_fields(method: &str) -> impl Iterator<Item = (&'static str, Role)> {
    FIELDS.iter().filter(move |(name, ..)| *name == method).map(|(_, field, role)| (*field, *role))
}

/// Refuses a call.
pub(crate) fn denied(caller: &Caller, what: &str, needed: Role) -> Status {
    let Caller { name, role, .. } = caller;
    let message = format!(
        "{what} needs the role {needed}, and the certificate of {name:?} gives {role}: ask for \
         one with that role (linkctl cert client --role {needed})"
    );
    let facts = [("needed", needed.as_str()), ("role", role.as_str()), ("method", what)];
    let facts = facts.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let details = ErrorDetails::with_error_info(ROLE_NEEDED, "linkemu", facts);
    Status::with_error_details(Code::PermissionDenied, message, details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_reflect::DescriptorPool;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_is_in_the_table_and_nothing_else() {
        let pool = DescriptorPool::decode(proto::FILE_DESCRIPTOR_SET).unwrap();
        let public = pool.services().filter(|service| service.package_name() == "linkemu.v1");
        let methods: BTreeSet<String> = public
            .flat_map(|service| {
                let name = service.full_name().to_owned();
                service.methods().map(move |m| format!("{name}/{}", m.name())).collect::<Vec<_>>()
            })
            .collect();
        let table: BTreeSet<String> = METHODS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(table, methods);
        assert_eq!(table.len(), METHODS.len(), "twice in the table");
        for (method, field, role) in FIELDS {
            let (service, name) = method.split_once('/').unwrap();
            let service = pool.get_service_by_name(service).unwrap();
            let found = service.methods().find(|m| m.name() == name).unwrap();
            assert!(found.input().get_field_by_name(field).is_some(), "{method}: {field}");
            assert!(*role > of_method(method), "{method}: {field} is of no consequence");
        }
    }

    #[test]
    fn what_is_not_in_the_table_needs_an_admin() {
        for method in ["", "linkemu.v1.Linkemu", "linkemu.v1.Linkemu/getlink", "a.B/C"] {
            assert_eq!(of_method(method), Admin);
        }
    }
}
