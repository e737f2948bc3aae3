//! Rejects query parameters that the OpenAPI document does not name. Otherwise a misspelled filter
//! would be ignored, and the response would be unfiltered.
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use axum::{
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::Next,
    response::Response,
};
use utoipa::openapi::{
    OpenApi,
    path::{Operation, ParameterIn},
};

use crate::problem::{Code, Problem};

/// Names of the query parameters of each operation.
#[derive(Clone)]
pub(crate) struct AllowedParams(Arc<HashMap<(Method, String), BTreeSet<String>>>);

impl AllowedParams {
    /// Reads the parameters from the OpenAPI document.
    pub(crate) fn of(document: &OpenApi) -> AllowedParams {
        let operations = document.paths.paths.iter().flat_map(|(path, item)| {
            let of = |method: Method, operation: &Option<Operation>| {
                Some(((method, path.clone()), query_params_of(operation.as_ref()?)))
            };
            let all = [
                of(Method::GET, &item.get),
                of(Method::PUT, &item.put),
                of(Method::POST, &item.post),
                of(Method::DELETE, &item.delete),
                of(Method::PATCH, &item.patch),
            ];
            all.into_iter().flatten()
        });
        AllowedParams(Arc::new(operations.collect()))
    }

    fn allowed(&self, method: &Method, route: &str) -> Option<&BTreeSet<String>> {
        // axum answers HEAD with the route of GET.
        let method = if method == Method::HEAD { Method::GET } else { method.clone() };
        self.0.get(&(method, route.to_owned()))
    }
}

fn query_params_of(operation: &Operation) -> BTreeSet<String> {
    let all = operation.parameters.iter().flatten();
    let query = all.filter(|one| one.parameter_in == ParameterIn::Query);
    query.map(|one| one.name.clone()).collect()
}

/// Middleware that rejects unknown query parameters.
pub(crate) async fn reject_unknown_params(
    State(params): State<AllowedParams>,
    route: MatchedPath,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if let Some(allowed) = params.allowed(request.method(), route.as_str()) {
        let query = request.uri().query().unwrap_or_default();
        let names = query.split('&').filter_map(|pair| pair.split('=').next());
        if let Some(name) = names.filter(|name| !name.is_empty()).find(|n| !allowed.contains(*n)) {
            let allowed = match allowed.is_empty() {
                true => "none".to_owned(),
                false => allowed.iter().cloned().collect::<Vec<_>>().join(", "),
            };
            let detail =
                format!("unknown query parameter {name:?}; this request accepts: {allowed}");
            return Err(Problem::new(Code::BadRequest, detail));
        }
    }
    Ok(next.run(request).await)
}
