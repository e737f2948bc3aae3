//! What every operation of the document has in common.
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Components, ContentBuilder, OpenApi, PathItem, Ref, RefOr, ResponseBuilder,
        path::Operation,
        security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use schemas::problem::{PROBLEM_JSON, Problem};

/// Names of their own, bearer tokens, and problem details for whatever is not a success.
pub fn finish(document: &mut OpenApi) {
    let components = document.components.get_or_insert_with(Components::new);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    components.schemas.insert(Problem::name().into_owned(), Problem::schema());
    let mut more = Vec::new();
    Problem::schemas(&mut more);
    components.schemas.extend(more);
    document.paths.paths.values_mut().flat_map(operations).for_each(refusable);
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    [get, put, post, delete, patch].into_iter().flatten()
}

fn refusable(operation: &mut Operation) {
    // A handler's name is only its own within its noun.
    if let (Some(name), Some(tag)) =
        (&operation.operation_id, operation.tags.iter().flatten().next())
    {
        operation.operation_id = Some(format!("{tag}_{name}"));
    }
    let problem = RefOr::Ref(Ref::from_schema_name(Problem::name()));
    let content = ContentBuilder::new().schema(Some(problem)).build();
    let refusal = ResponseBuilder::new()
        .description("Refused: `code` is a stable word, `detail` says what to do")
        .content(PROBLEM_JSON, content)
        .build();
    operation.responses.responses.insert("default".into(), refusal.into());
    let token = SecurityRequirement::new("token", Vec::<String>::new());
    operation.security.get_or_insert_with(Vec::new).push(token);
}
