//! Every read of the Control API is a query that authorizes its caller.
use std::{collections::BTreeSet, fs, path::Path};

use crate::auth::roles::ROUTES;

/// Public functions of a module that take the caller of a request.
fn queries_of(text: &str) -> impl Iterator<Item = &str> {
    let functions = text.split("\npub(crate) ").skip(1);
    let functions =
        functions.filter(|item| item.starts_with("fn ") || item.starts_with("async fn "));
    functions.filter(|function| {
        let (signature, _) = function.split_once(" {\n").unwrap();
        signature.contains("caller: Caller") || signature.contains("caller: &Caller")
    })
}

/// Routes that the functions in a directory authorize.
fn authorized(directory: &Path, routes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            authorized(&path, routes);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for query in queries_of(&text) {
            let (signature, body) = query.split_once(" {\n").unwrap();
            let first = body.lines().next().unwrap().trim_start();
            assert!(first.starts_with("caller.authorize(\"GET\", "), "{path:?}: {signature}");
        }
        let calls = text.split(".authorize(\"GET\", \"").skip(1);
        routes.extend(calls.map(|call| call.split('"').next().unwrap().to_owned()));
    }
}

#[test]
fn each_get_route_has_a_query_that_authorizes_its_caller() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/queries");
    let mut queries = BTreeSet::new();
    authorized(&directory, &mut queries);
    let routes = ROUTES.iter().filter(|(method, ..)| *method == "GET");
    let routes: BTreeSet<String> = routes.map(|(_, route, _)| (*route).to_owned()).collect();
    assert_eq!(queries, routes);
}
