//! Adds parameters, headers, error responses and authentication to the operations of the OpenAPI
//! document.
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Components, ContentBuilder, Header, ObjectBuilder, OpenApi, PathItem, Ref, RefOr,
        ResponseBuilder, Type,
        path::{Operation, ParameterBuilder, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use schemas::problem::{PROBLEM_JSON, Problem};

/// Adds unique operation ids, bearer authentication, the default error response, `min_position` and
/// idempotency keys.
pub(super) fn add_shared_parts(document: &mut OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    let mut more = Vec::new();
    Problem::schemas(&mut more);
    components.schemas.extend(more);
    for item in document.paths.paths.values_mut() {
        item.get.iter_mut().for_each(add_min_position);
        let PathItem { put, post, delete, patch, .. } = item;
        [put, post, delete, patch].into_iter().flatten().for_each(add_idempotency_key);
    }
    document.paths.paths.values_mut().flat_map(operations).for_each(add_problem_and_security);
}

/// Adds the parameter `min_position` to reads that declare no query of their own.
fn add_min_position(operation: &mut Operation) {
    let parameters = operation.parameters.get_or_insert_default();
    if parameters.iter().any(|one| one.parameter_in == ParameterIn::Query) {
        return;
    }
    let position = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
    parameters.push(
        ParameterBuilder::new()
            .name("min_position")
            .parameter_in(ParameterIn::Query)
            .description(Some("Wait up to 5 s until the response includes this position."))
            .schema(Some(position))
            .build(),
    );
}

/// Adds `Idempotency-Key` and the header of a replayed response to an operation that changes state.
/// Streams accept no key, because their responses are not stored.
fn add_idempotency_key(operation: &mut Operation) {
    let Some(RefOr::T(response)) = operation.responses.responses.get_mut("200") else { return };
    if response.content.contains_key("text/event-stream") {
        return;
    }
    let mut replayed = Header::new(ObjectBuilder::new().schema_type(Type::Boolean).build());
    replayed.description =
        Some("`true` if this is the stored response of the first request".into());
    response.headers.insert("Idempotency-Replayed".into(), replayed);
    let text = ObjectBuilder::new().schema_type(Type::String);
    operation.parameters.get_or_insert_default().push(
        ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .description(Some(
                "A repeated request with the same key changes nothing and gets the first response.",
            ))
            .schema(Some(text.min_length(Some(1)).max_length(Some(128))))
            .build(),
    );
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn add_problem_and_security(operation: &mut Operation) {
    // Handler names are unique only within a tag.
    if let (Some(name), Some(tag)) =
        (&operation.operation_id, operation.tags.iter().flatten().next())
    {
        operation.operation_id = Some(format!("{tag}_{name}"));
    }
    let problem = RefOr::Ref(Ref::from_schema_name(Problem::name()));
    let content = ContentBuilder::new().schema(Some(problem)).build();
    let refusal = ResponseBuilder::new()
        .description("Error: `code` is stable, `detail` explains the fix")
        .content(PROBLEM_JSON, content)
        .build();
    operation.responses.responses.insert("default".into(), refusal.into());
    let token = SecurityRequirement::new("token", Vec::<String>::new());
    operation.security.get_or_insert_with(Vec::new).push(token);
}
