// SPDX-License-Identifier: Apache-2.0
//! All methods, with their options in the protos (`linkemu/v1/method.proto`): the role that a call
//! needs, whether it is audited, and whether it waits for a turn.

use crate::caller::Role;
use prost_reflect::{DynamicMessage, ExtensionDescriptor, FieldDescriptor, MethodDescriptor};
use proto::POOL;
use proto::linkemu::v1 as pb;
use std::collections::HashMap;
use std::sync::LazyLock;

use Role::{Admin, Operator, Viewer};

/// All methods by full name, such as `linkemu.v1.Linkemu/GetLink`.
static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
    let methods = POOL.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.map(Method::of).map(|method| (method.name.clone(), method)).collect()
});

/// Methods of other packages that linkd serves to every caller.
const STANDARD: &[&str] = &[
    "grpc.health.v1.Health/Check",
    "grpc.health.v1.Health/List",
    "grpc.health.v1.Health/Watch",
    "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

#[derive(Debug)]
pub(crate) struct Method {
    pub name: String,
    pub descriptor: MethodDescriptor,
    /// What a call needs at least.
    pub role: Role,
    /// Its calls are left out of the audit log.
    pub is_unaudited: bool,
    /// Its calls wait for a turn, however short the request is.
    pub is_costly: bool,
    /// Fields of its request that need more when they are set.
    pub fields: Vec<(FieldDescriptor, Role)>,
}

impl Method {
    fn of(descriptor: MethodDescriptor) -> Self {
        let name = format!("{}/{}", descriptor.parent_service().full_name(), descriptor.name());
        let options = descriptor.options();
        let flag = |name: &str| {
            let extension = extension(name);
            extension.is_some_and(|it| options.get_extension(&it).as_bool() == Some(true))
        };
        let (is_unaudited, is_costly) = (flag("unaudited"), flag("costly"));
        let role = stated(&options, "role").unwrap_or(Admin);
        let input = descriptor.input();
        let fields = input.fields().filter_map(|field| {
            let role = stated(&field.options(), "role_if_set")?;
            Some((field, role))
        });
        let fields = fields.collect();
        Self { name, role, is_unaudited, is_costly, fields, descriptor }
    }

    /// Whether it is one of linkd itself: others pass to the dataplane unread (`--member`).
    pub fn is_public(&self) -> bool {
        !passes(&self.name)
    }

    pub fn is_client_streaming(&self) -> bool {
        self.descriptor.is_client_streaming()
    }
}

/// An option of this API.
pub(crate) fn extension(name: &str) -> Option<ExtensionDescriptor> {
    POOL.get_extension_by_name(&format!("linkemu.v1.{name}"))
}

/// The role that an option has; nothing if it is not given.
fn stated(options: &DynamicMessage, option: &str) -> Option<Role> {
    let role = options.get_extension(&extension(option)?).as_enum_number()?;
    match pb::Role::try_from(role) {
        Ok(pb::Role::Viewer) => Some(Viewer),
        Ok(pb::Role::Operator) => Some(Operator),
        Ok(pb::Role::Admin) => Some(Admin),
        Ok(pb::Role::Unspecified) | Err(_) => None,
    }
}

/// Finds a method by its full name.
pub(crate) fn find(name: &str) -> Option<&'static Method> {
    METHODS.get(name)
}

/// All methods of all services.
#[cfg(test)]
pub(crate) fn all() -> impl Iterator<Item = &'static Method> {
    METHODS.values()
}

/// The least role that a method needs, for any request.
pub(crate) fn role_of(name: &str) -> Role {
    match find(name) {
        Some(method) => method.role,
        None if STANDARD.contains(&name) => Viewer,
        None => Admin,
    }
}

/// Whether a call passes to the dataplane unread (`--member`).
pub(crate) fn passes(name: &str) -> bool {
    name.starts_with("dataplane.v1.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_public_method_has_a_role_and_no_field_needs_less() {
        let mut public = 0;
        for method in all().filter(|method| method.is_public()) {
            let role = stated(&method.descriptor.options(), "role");
            assert_eq!(role, Some(method.role), "{}: option (role)", method.name);
            public += 1;
        }
        assert!(public > 50, "{public}");
        for method in all() {
            for (field, role) in &method.fields {
                let field = field.full_name();
                assert!(*role > method.role, "{}: {field} is of no consequence", method.name);
            }
        }
        // The option is read in the requests of public methods alone.
        let is_read = |field: &FieldDescriptor| {
            let mut methods = all().filter(|it| it.is_public() && !it.is_client_streaming());
            methods.any(|method| method.fields.iter().any(|(read, _)| read == field))
        };
        for field in POOL.all_messages().flat_map(|message| message.fields().collect::<Vec<_>>()) {
            let is_given = stated(&field.options(), "role_if_set").is_some();
            assert!(!is_given || is_read(&field), "{}: role_if_set", field.full_name());
        }
    }

    #[test]
    fn roles_are_those_that_were_agreed() {
        let of = |name: &str| (role_of(name), find(name).map_or(0, |it| it.fields.len()));
        assert_eq!(of("linkemu.v1.Linkemu/GetLink"), (Viewer, 0));
        assert_eq!(of("linkemu.v1.Linkemu/GetStats"), (Viewer, 1));
        assert_eq!(of("linkemu.v1.Linkemu/UpdateLinks"), (Operator, 0));
        // The answer contains packets.
        assert_eq!(of("linkemu.v1.Captures/Capture"), (Operator, 0));
        let steal = &find("linkemu.v1.Leases/AcquireLease").unwrap().fields[..];
        assert!(matches!(steal, [(field, Admin)] if field.name() == "steal"), "{steal:?}");
        let mut costly: Vec<_> = all().filter(|it| it.is_costly).map(|it| &*it.name).collect();
        costly.sort_unstable();
        let diagnose = "linkemu.v1.Doctor/Diagnose";
        let envelope = "linkemu.v1.Envelopes/GetEnvelope";
        assert_eq!(costly, [diagnose, envelope, "linkemu.v1.Scenarios/RunScenario"]);
    }

    #[test]
    fn calls_of_the_dataplane_need_an_admin_and_changes_are_audited() {
        let unaudited: Vec<_> = all().filter(|it| it.is_unaudited).collect();
        assert_eq!(unaudited.len(), 7);
        for method in unaudited {
            assert!(passes(&method.name) && !method.is_client_streaming(), "{}", method.name);
        }
        for method in all().filter(|it| passes(&it.name)) {
            assert_eq!(method.role, Admin);
        }
        assert!(!find("dataplane.v1.Dataplane/Apply").unwrap().is_unaudited);
        assert!(find("dataplane.v1.Dataplane/GetPlan").unwrap().is_unaudited);
    }

    #[test]
    fn unknown_methods_need_an_admin() {
        for method in ["", "linkemu.v1.Linkemu", "linkemu.v1.Linkemu/getlink", "a.B/C"] {
            assert!(find(method).is_none());
            assert_eq!(role_of(method), Admin);
        }
        assert_eq!(role_of("grpc.health.v1.Health/Check"), Viewer);
    }
}
