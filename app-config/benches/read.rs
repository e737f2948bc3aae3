//! Measures reading, validation and inspection of the largest real app directory. The target is 100
//! ms. Without `CORPUS_DIR`, it measures nothing.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot start must stop")]
use app_config::{Tree, inspect, survey};
use criterion::{Criterion, criterion_group, criterion_main};

#[path = "../tests/it/support.rs"]
mod support;

fn largest() -> Option<(String, Tree)> {
    let apps = std::fs::read_dir(support::corpus()?.join("apps")).unwrap();
    let trees = apps.map(|app| {
        let app = app.unwrap();
        (app.file_name().to_string_lossy().into_owned(), support::tree(&app.path()))
    });
    trees.max_by_key(|(_, tree)| tree.len())
}

fn reading(criterion: &mut Criterion) {
    let Some((name, tree)) = largest() else { return };
    criterion.bench_function("read and validate", |b| b.iter(|| survey(&tree, &[])));
    let read = survey(&tree, &[]);
    criterion.bench_function("inspect", |b| b.iter(|| inspect(&name, &tree, &read)));
}

criterion_group!(benches, reading);
criterion_main!(benches);
