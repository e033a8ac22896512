// SPDX-License-Identifier: Apache-2.0
//! `GET /openapi.json`: the JSON form of the API as OpenAPI 3.1, made from the protos and their
//! comments.

use super::json::LINES;
use super::site::JSON;
use crate::methods;
use prost_reflect::{
    Cardinality, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};
use proto::POOL;
use std::collections::BTreeMap;
use utoipa::openapi::extensions::ExtensionsBuilder;
use utoipa::openapi::path::{OperationBuilder, ParameterBuilder, ParameterIn, PathsBuilder};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ComponentsBuilder, KnownFormat, ObjectBuilder, Schema,
    SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ContentBuilder, HttpMethod, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Ref, RefOr,
    Required, ResponseBuilder,
};

const PACKAGE: &str = "linkemu.v1";
const ERROR: &str = "Error";

/// The document, as JSON.
pub(super) fn document() -> Result<String, serde_json::Error> {
    build().to_json()
}

fn build() -> OpenApi {
    let about = "JSON form of the gRPC API of linkd. Each call is a POST; messages have the canonical \
        JSON form of protobuf: 64-bit integers are strings, fields with their default value are left \
        out. The answer of a stream has one line for each message.";
    let info = InfoBuilder::new()
        .title("linkemu")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .build();
    let mut paths = PathsBuilder::new();
    let mut tags = Vec::new();
    let mut schemas = Schemas::default();
    let services = POOL.services().filter(|service| service.package_name() == PACKAGE);
    for service in services {
        let text = proto::comment(service.parent_file().file_descriptor_proto(), service.path());
        tags.push(TagBuilder::new().name(service.name()).description(Some(text)).build());
        for method in service.methods().filter(|method| !method.is_client_streaming()) {
            let path = format!("/{}/{}", service.full_name(), method.name());
            let operation = operation(&method, service.name(), &mut schemas);
            paths = paths.path(path, PathItem::new(HttpMethod::Post, operation));
        }
    }
    let mut components = ComponentsBuilder::new().schema(ERROR, error());
    for (name, schema) in schemas.0 {
        components = components.schema(name, schema);
    }
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components.build()))
        .tags(Some(tags))
        .build()
}

fn operation(method: &MethodDescriptor, tag: &str, schemas: &mut Schemas) -> OperationBuilder {
    let file = method.parent_service().parent_file();
    let text = proto::comment(file.file_descriptor_proto(), method.path());
    let role = methods::role_of(&format!("{PACKAGE}.{tag}/{}", method.name()));
    let request = ContentBuilder::new().schema(Some(schemas.reference(&method.input()))).build();
    let request = RequestBodyBuilder::new().content(JSON, request).required(Some(Required::True));
    let output = schemas.reference(&method.output());
    let (kind, output) = if method.is_server_streaming() {
        let error = Ref::from_schema_name(ERROR);
        let line = ObjectBuilder::new().property("result", output).property("error", error);
        (LINES, RefOr::T(Schema::Object(line.build())))
    } else {
        (JSON, output)
    };
    let answer = ContentBuilder::new().schema(Some(output)).build();
    let answer = ResponseBuilder::new().description("The answer.").content(kind, answer).build();
    let failure = ContentBuilder::new().schema(Some(Ref::from_schema_name(ERROR))).build();
    let failure = ResponseBuilder::new().description("A refusal.").content(JSON, failure).build();
    OperationBuilder::new()
        .operation_id(Some(format!("{tag}.{}", method.name())))
        .tag(tag)
        .description(Some(text))
        .parameter(header(proto::LEASE_METADATA, "Tokens of leases, separated by commas."))
        .request_body(Some(request.build()))
        .response("200", answer)
        .response("default", failure)
        .extensions(Some(ExtensionsBuilder::new().add("x-role", role.as_str()).build()))
}

fn header(name: &str, text: &str) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(text))
        .schema(Some(string()))
}

/// The schemas of messages and enumerations, by name.
#[derive(Default)]
struct Schemas(BTreeMap<String, Schema>);

impl Schemas {
    /// A reference to a message, with its schema and those of its fields among the others.
    fn reference(&mut self, message: &MessageDescriptor) -> RefOr<Schema> {
        if let Some(known) = well_known(message) {
            return RefOr::T(Schema::Object(known.build()));
        }
        let name = message.name().to_owned();
        if !self.0.contains_key(&name) {
            // A message may contain itself.
            self.0.insert(name.clone(), Schema::default());
            let schema = self.message(message);
            self.0.insert(name.clone(), schema);
        }
        RefOr::Ref(Ref::from_schema_name(name))
    }

    fn message(&mut self, message: &MessageDescriptor) -> Schema {
        let file = message.parent_file();
        let file = file.file_descriptor_proto();
        let mut text = proto::comment(file, message.path());
        for oneof in message.oneofs().filter(|oneof| !oneof.is_synthetic()) {
            let fields: Vec<_> = oneof.fields().map(|field| field.json_name().to_owned()).collect();
            text += &format!("\n\nAt most one of {} is set.", fields.join(", "));
        }
        let mut object = ObjectBuilder::new()
            .description(Some(text.trim()))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        for field in message.fields() {
            let text = proto::comment(file, field.path());
            object = object.property(field.json_name(), self.field(&field, &text));
        }
        Schema::Object(object.build())
    }

    fn field(&mut self, field: &FieldDescriptor, text: &str) -> RefOr<Schema> {
        let is_list = field.cardinality() == Cardinality::Repeated;
        // The text of a list is that of the list.
        let own = if is_list { "" } else { text };
        let described = |object: ObjectBuilder| {
            let text = (!own.is_empty()).then_some(own);
            RefOr::T(Schema::Object(object.description(text).build()))
        };
        let one = match field.kind() {
            Kind::Message(message) => match self.reference(&message) {
                RefOr::Ref(mut reference) => {
                    own.clone_into(&mut reference.description);
                    RefOr::Ref(reference)
                }
                RefOr::T(Schema::Object(known)) => described(ObjectBuilder::from(known)),
                known => known,
            },
            Kind::Enum(kind) => described(enumeration(&kind)),
            Kind::Bool => described(ObjectBuilder::with(Type::Boolean)),
            Kind::String => described(string()),
            Kind::Bytes => {
                described(string().format(Some(SchemaFormat::KnownFormat(KnownFormat::Byte))))
            }
            Kind::Float | Kind::Double => described(number()),
            Kind::Uint32 | Kind::Fixed32 => {
                described(ObjectBuilder::with(Type::Integer).minimum(Some(0)))
            }
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => {
                described(ObjectBuilder::with(Type::Integer))
            }
            // A number is taken too, and a string is given.
            Kind::Uint64 | Kind::Fixed64 => described(whole("uint64", "^[0-9]+$")),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => described(whole("int64", "^-?[0-9]+$")),
        };
        if !is_list {
            return one;
        }
        let text = (!text.is_empty()).then_some(text);
        RefOr::T(Schema::Array(ArrayBuilder::new().items(one).description(text).build()))
    }
}

trait With {
    fn with(kind: Type) -> Self;
}

impl With for ObjectBuilder {
    fn with(kind: Type) -> Self {
        Self::new().schema_type(kind)
    }
}

fn string() -> ObjectBuilder {
    ObjectBuilder::with(Type::String)
}

/// JSON has no word for some numbers.
fn number() -> ObjectBuilder {
    let types = vec![Type::Number, Type::String];
    ObjectBuilder::new().schema_type(SchemaType::Array(types))
}

fn whole(format: &str, pattern: &str) -> ObjectBuilder {
    let types = vec![Type::String, Type::Integer];
    let format = SchemaFormat::Custom(format.into());
    ObjectBuilder::new()
        .schema_type(SchemaType::Array(types))
        .format(Some(format))
        .pattern(Some(pattern))
}

fn enumeration(kind: &EnumDescriptor) -> ObjectBuilder {
    let names: Vec<_> = kind.values().map(|value| value.name().to_owned()).collect();
    string().enum_values(Some(names))
}

/// Messages with a JSON form of their own.
fn well_known(message: &MessageDescriptor) -> Option<ObjectBuilder> {
    match message.full_name() {
        "google.protobuf.Timestamp" => {
            Some(string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))))
        }
        "google.protobuf.Duration" => Some(string().pattern(Some("^-?[0-9]+(\\.[0-9]+)?s$"))),
        "google.protobuf.FieldMask" => Some(string()),
        _ => None,
    }
}

/// A refusal.
fn error() -> ObjectBuilder {
    let details = ArrayBuilder::new().items(
        ObjectBuilder::new()
            .property("type", string().description(Some("Such as google.rpc.ErrorInfo.")))
            .property("value", string().description(Some("The message in protobuf, in base64."))),
    );
    ObjectBuilder::new()
        .property("code", string().description(Some("Such as not_found.")))
        .property("message", string())
        .property("details", details)
        .required("code")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::json::error as error_of;
    use prost_reflect::{DynamicMessage, Value};
    use serde_json::{Value as Json, json};
    use std::collections::BTreeSet;

    /// A message with all of its fields, to a depth.
    fn sample(message: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut sample = DynamicMessage::new(message.clone());
        for field in message.fields() {
            let value = match field.kind() {
                Kind::Message(_) if depth == 0 => continue,
                Kind::Message(inner) if well_known(&inner).is_some() => {
                    Value::Message(DynamicMessage::new(inner))
                }
                Kind::Message(inner) => Value::Message(sample_of(&inner, depth)),
                Kind::Enum(kind) => Value::EnumNumber(kind.values().last().unwrap().number()),
                Kind::Bool => Value::Bool(true),
                Kind::String => Value::String("a".into()),
                Kind::Bytes => Value::Bytes(vec![0, 255].into()),
                Kind::Float => Value::F32(1.5),
                Kind::Double => Value::F64(f64::INFINITY),
                Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(-1),
                Kind::Uint32 | Kind::Fixed32 => Value::U32(u32::MAX),
                Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(-1),
                Kind::Uint64 | Kind::Fixed64 => Value::U64(u64::MAX),
            };
            let value = if field.is_list() { Value::List(vec![value]) } else { value };
            sample.set_field(&field, value);
        }
        sample
    }

    fn sample_of(message: &MessageDescriptor, depth: usize) -> DynamicMessage {
        sample(message, depth - 1)
    }

    /// Whether JSON fits a schema of the document. It knows the keywords that the document has.
    fn check(schemas: &Json, schema: &Json, value: &Json) -> Result<(), String> {
        let object = value.as_object();
        for (keyword, rule) in schema.as_object().unwrap() {
            let fits = match keyword.as_str() {
                "description" | "format" => true,
                "$ref" => check(schemas, target(schemas, rule), value).map(|()| true)?,
                "type" => match rule.as_array() {
                    Some(kinds) => kinds.iter().any(|kind| is(kind, value)),
                    None => is(rule, value),
                },
                "properties" => {
                    let rules = rule.as_object().unwrap();
                    for (name, value) in object.into_iter().flatten() {
                        if let Some(rule) = rules.get(name) {
                            check(schemas, rule, value).map_err(|why| format!("{name}: {why}"))?;
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    assert_eq!(*rule, false);
                    object.is_none_or(|it| it.keys().all(|it| !schema["properties"][it].is_null()))
                }
                "required" => {
                    let mut names = rule.as_array().unwrap().iter();
                    names.all(|name| !value[name.as_str().unwrap()].is_null())
                }
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        check(schemas, rule, item)?;
                    }
                    true
                }
                "enum" => rule.as_array().unwrap().contains(value),
                "minimum" => value.as_f64().is_none_or(|value| value >= rule.as_f64().unwrap()),
                "pattern" => value.as_str().is_none_or(|text| matches(rule, text)),
                other => panic!("this test does not know the keyword {other}"),
            };
            if !fits {
                return Err(format!("{value} does not fit {keyword} {rule}"));
            }
        }
        Ok(())
    }

    /// The schema that a reference is to.
    fn target<'a>(schemas: &'a Json, reference: &Json) -> &'a Json {
        let name = reference.as_str().unwrap().strip_prefix("#/components/schemas/").unwrap();
        schemas.get(name).unwrap_or_else(|| panic!("there is no schema {name}"))
    }

    fn is(kind: &Json, value: &Json) -> bool {
        match kind.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            other => panic!("there is no type {other}"),
        }
    }

    fn matches(pattern: &Json, text: &str) -> bool {
        let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        match pattern.as_str().unwrap() {
            "^[0-9]+$" => is_digits(text),
            "^-?[0-9]+$" => is_digits(unsigned),
            "^-?[0-9]+(\\.[0-9]+)?s$" => unsigned.strip_suffix('s').is_some_and(|seconds| {
                let (whole, part) = seconds.split_once('.').unwrap_or((seconds, "0"));
                is_digits(whole) && is_digits(part)
            }),
            other => panic!("this test does not know the pattern {other}"),
        }
    }

    #[test]
    fn every_method_is_in_the_document_with_its_messages_and_nothing_else() {
        let document: Json = serde_json::from_str(&document().unwrap()).unwrap();
        let schemas = &document["components"]["schemas"];
        let refusal = crate::refusal::field("name", "it is too long");
        let refusal = serde_json::to_value(error_of(&refusal)).unwrap();
        let named: BTreeSet<_> = document["paths"].as_object().unwrap().keys().cloned().collect();
        let served = methods::all().filter(|it| it.is_public() && !it.is_client_streaming());
        let served: BTreeSet<_> = served.map(|method| format!("/{}", method.name)).collect();
        assert_eq!(named, served);
        for path in served {
            let method = &methods::find(&path[1..]).unwrap().descriptor;
            let operation = &document["paths"][&path]["post"];
            let answers = &operation["responses"];
            let request = &operation["requestBody"]["content"][JSON]["schema"];
            let answer = match method.is_server_streaming() {
                true => &answers["200"]["content"][LINES]["schema"]["properties"]["result"],
                false => &answers["200"]["content"][JSON]["schema"],
            };
            for (schema, message) in [(request, method.input()), (answer, method.output())] {
                let name = format!("#/components/schemas/{}", message.name());
                assert_eq!(schema["$ref"], name, "{path}");
                target(schemas, &schema["$ref"]);
            }
            let failure = &answers["default"]["content"][JSON]["schema"];
            check(schemas, failure, &refusal).unwrap();
        }
        let set = &document["paths"]["/linkemu.v1.Linkemu/UpdateLinks"]["post"];
        assert_eq!(set["x-role"], "operator");
        assert!(set["description"].as_str().unwrap().starts_with("Changes links"));
        let seed = &schemas["ProfileUpdate"]["properties"]["seed"];
        assert!(seed["description"].as_str().unwrap().starts_with("Seed of all random"), "{seed}");
    }

    #[test]
    fn messages_with_all_fields_fit_their_schemas_and_wrong_ones_do_not() {
        let document: Json = serde_json::from_str(&document().unwrap()).unwrap();
        let schemas = &document["components"]["schemas"];
        let mut seen = 0;
        for (name, schema) in schemas.as_object().unwrap().iter().filter(|it| it.0 != ERROR) {
            let message = POOL.get_message_by_name(&format!("{PACKAGE}.{name}")).unwrap();
            let mut whole = serde_json::to_value(sample(&message, 2)).unwrap();
            if let Err(why) = check(schemas, schema, &whole) {
                panic!("{name}: {why}\n{whole}");
            }
            for field in whole.as_object().unwrap().clone().keys() {
                // No field has this value.
                let right = std::mem::replace(&mut whole[field], json!([{}, null]));
                check(schemas, schema, &whole).unwrap_err();
                whole[field] = right;
            }
            assert!(check(schemas, schema, &json!({ "noSuchField": 1 })).is_err(), "{name}");
            seen += 1;
        }
        assert!(seen > 100, "{seen}");
    }
}
