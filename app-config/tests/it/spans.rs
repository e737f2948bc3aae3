//! Values have a span, up to a limit, and findings use the span of their value.
use app_config::{Origin, Span, Tree, survey};

use crate::small;
use crate::support;

fn covered(text: &str, span: Span) -> String {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut found = String::new();
    for line in span.line..=span.end_line {
        let characters: Vec<char> = lines[line as usize - 1].chars().collect();
        let from = if line == span.line { span.column as usize - 1 } else { 0 };
        let to =
            if line == span.end_line { span.end_column as usize - 1 } else { characters.len() };
        found.extend(&characters[from..to]);
        found.extend((line < span.end_line).then_some('\n'));
    }
    found
}

/// Scalars of a document with their key paths.
fn scalars(key: &str, value: &toml::Value, into: &mut Vec<(String, toml::Value)>) {
    let below = |name: &str| {
        if key.is_empty() { name.to_string() } else { format!("{key}.{name}") }
    };
    if let Some(table) = value.as_table() {
        table.iter().for_each(|(name, value)| scalars(&below(name), value, into));
    } else if let Some(items) = value.as_array() {
        let items = items.iter().enumerate();
        items.for_each(|(at, value)| scalars(&below(&at.to_string()), value, into));
    } else {
        into.push((key.to_string(), value.clone()));
    }
}

/// Checks each span with an independent TOML parser: the text at the span must parse to the value.
#[test]
fn the_span_of_every_value_of_every_real_directory_is_correct() {
    let Some(corpus) = support::corpus() else { return };
    let mut correct = 0;
    for app in std::fs::read_dir(corpus.join("apps")).unwrap() {
        let app = app.unwrap();
        let tree: Tree = support::tree(&app.path());
        let config = survey(&tree, &[]).config;
        let mut files: Vec<&str> = config.spans.iter().map(|(file, _, _)| file).collect();
        files.dedup();
        assert!(files.contains(&"metadata.toml"), "{:?}", app.path());
        for file in files {
            let text = tree.text(file).unwrap();
            let mut all = Vec::new();
            scalars("", &toml::from_str(text).unwrap(), &mut all);
            for (key, value) in all {
                let at = Origin { file: file.into(), ..Origin::default() };
                let span = config.span(&at, &key).unwrap_or_else(|| panic!("{file} {key}"));
                let found = covered(text, span);
                if let Some(value) = value.as_str() {
                    let triple = [("\"\"\"\n", "\"\"\""), ("'''\n", "'''")];
                    let pairs = [("\"", "\""), ("'", "'")].into_iter().chain(triple);
                    let read = pairs.into_iter().any(|(open, close)| {
                        let again = format!("x = {open}{found}{close}");
                        let again = toml::from_str::<toml::Table>(&again);
                        again.is_ok_and(|table| table["x"].as_str() == Some(value))
                    });
                    assert!(read, "{file} {key}: {found:?} is not {value:?}");
                } else {
                    let again: toml::Table = toml::from_str(&format!("x = {found}")).unwrap();
                    assert_eq!(again["x"], value, "{file} {key}");
                }
                correct += 1;
            }
        }
    }
    println!("spans: {correct} correct");
}

#[test]
fn parts_have_the_spans_of_their_values() {
    let inputs =
        "[[input]]\nname = \"a\"\n[[input]]\nname = \"é\"\ndefault = 'x'\nrequired = true\n";
    let secrets = "[[secret]]\nname = \"s\"\nkubernetes_sync_targets = [{ name = \"n\" }]\n";
    let action = "name = \"x\"\n[[steps]]\nname = \"s\"\ncommand = \"\"\"\nc\nd\"\"\"\n";
    let files = [
        ("app/inputs.toml", inputs),
        ("app/secrets.toml", secrets),
        ("app/actions/x.toml", action),
    ];
    let config = survey(&small::bundle(&files).app(), &[]).config;
    let place = |at: &Origin, key: &str| {
        config.span(at, key).map(|s| (s.line, s.column, s.end_line, s.end_column))
    };
    let second = config.inputs.iter().find(|input| input.name == "é").unwrap();
    assert_eq!(place(&second.at, "name"), Some((4, 9, 4, 10)));
    assert_eq!(place(&second.at, "default"), Some((5, 12, 5, 13)));
    assert_eq!(place(&second.at, "required"), Some((6, 12, 6, 16)));
    assert_eq!(place(&second.at, "type"), None);
    assert_eq!(place(&config.secrets[0].sync_targets[0].at, "name"), Some((3, 38, 3, 39)));
    assert_eq!(place(&config.actions[0].steps[0].at, "command"), Some((5, 1, 6, 2)));
    let module = &config.component("a").unwrap().module;
    assert_eq!(place(&module.at, "public_repo.repo"), Some((4, 9, 4, 12)));
}

/// Spans cost memory, so values past a limit have none.
#[test]
fn the_number_of_spans_is_limited() {
    let many: Vec<(String, String)> = (0..40)
        .map(|file| {
            let keys: String = (0..4000).map(|key| format!("k{key} = 1\n")).collect();
            (format!("app/inputs/{file}.toml"), format!("name = \"i{file}\"\n{keys}"))
        })
        .collect();
    let files: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let config = survey(&small::bundle(&files).app(), &[]).config;
    assert_eq!(config.spans.iter().count(), 100_000);
    assert_eq!(config.inputs.len(), 40);
}
