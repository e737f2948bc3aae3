//! Values of a release: files, and single values by name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};
use stead_plugin_kubernetes::failure::{Failure, IoContext, Outcome};

use crate::settings::Settings;

/// Writes the values into a directory. Returns the files in the order of their precedence.
///
/// # Errors
/// The file and the line of values that are not a map.
pub fn write(settings: &Settings, dir: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = vec![];
    let mut add = |text: &str| {
        let path = dir.join(format!("values-{}.yaml", files.len()));
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
        files.push(path);
        Ok::<_, Failure>(())
    };
    for file in &settings.values_files {
        check(&file.name, &file.text)?;
        add(&file.text)?;
    }
    if !settings.values.is_empty() {
        let mut tree = Map::new();
        for (name, text) in &settings.values {
            set(&mut tree, name, typed(text))?;
        }
        add(&Value::Object(tree).to_string())?;
    }
    Ok(files)
}

/// Checks the values without writing them.
pub fn check_all(settings: &Settings) -> Outcome<()> {
    settings.values_files.iter().try_for_each(|file| check(&file.name, &file.text))?;
    let mut tree = Map::new();
    let mut values = settings.values.iter();
    values.try_for_each(|(name, text)| set(&mut tree, name, typed(text)))
}

/// Checks that a text is a YAML map.
///
/// # Errors
/// The file and the line of the first error.
pub fn check(file: &str, text: &str) -> Outcome<()> {
    let mut options = serde_saphyr::Options::default();
    options.with_snippet = false;
    let parsed: Value = serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        let line = e.location().map_or(1, |at| at.line() as usize);
        let why = e.to_string();
        let why = why.lines().next().unwrap_or_default();
        Failure::refused(format!("invalid values: {file}:{line}: {why}"))
    })?;
    match parsed {
        Value::Object(_) | Value::Null => Ok(()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Failure::refused(format!(
                "invalid values: {file}:1: the file is not a map; write lines of the form NAME: VALUE"
            )))
        }
    }
}

/// Sets a value at a path such as `image.tag`. A backslash makes a dot part of a name.
fn set(tree: &mut Map<String, Value>, name: &str, value: Value) -> Outcome<()> {
    let parts = parts(name);
    let refuse = |why: &str| Failure::refused(format!("invalid name of a value {name:?}: {why}"));
    let Some((last, parents)) = parts.split_last().filter(|_| !parts.contains(&String::new()))
    else {
        return Err(refuse("a part of the path is empty; use NAME or NAME.NAME"));
    };
    let mut map = tree;
    for part in parents {
        let inner = map.entry(part).or_insert_with(|| Value::Object(Map::new()));
        map = inner
            .as_object_mut()
            .ok_or_else(|| refuse("another name sets a part of its path; remove one of the two"))?;
    }
    match map.insert(last.clone(), value) {
        None => Ok(()),
        Some(_) => Err(refuse("another name sets a part of its path; remove one of the two")),
    }
}

fn parts(name: &str) -> Vec<String> {
    let (mut parts, mut part, mut escaped) = (vec![], String::new(), false);
    for c in name.chars() {
        match c {
            _ if escaped => {
                part.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' => parts.push(std::mem::take(&mut part)),
            _ => part.push(c),
        }
    }
    parts.push(part);
    parts
}

/// Returns the type that `helm --set` would choose: boolean, null, integer or text.
fn typed(text: &str) -> Value {
    let is_integer = text == "0" || !text.trim_start_matches('-').starts_with('0');
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        _ => match text.parse::<i64>() {
            Ok(number) if is_integer && !text.starts_with('+') => number.into(),
            Ok(_) | Err(_) => text.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tempfile::tempdir;

    use super::*;
    use crate::settings::ValuesFile;

    fn settings(values: &[(&str, &str)], files: &[&str]) -> Settings {
        let values = values.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        let file = |text: &&str| ValuesFile { name: "web.yaml".into(), text: text.to_string() };
        let values_files = files.iter().map(file).collect();
        Settings { values: values.collect(), values_files, ..Settings::default() }
    }

    #[test]
    fn single_values_have_the_types_of_helm_set() {
        let dir = tempdir().unwrap();
        let values = [
            ("port", "443"),
            ("image.tag", "007"),
            ("image.pull", "true"),
            ("note", "a,b={c}"),
            (r"labels.a\.b/c", "-5"),
            ("none", "null"),
        ];
        let files = write(&settings(&values, &["a: 1\n"]), dir.path()).unwrap();
        assert_eq!(files.len(), 2);
        let written: Value = serde_json::from_slice(&fs::read(&files[1]).unwrap()).unwrap();
        assert_eq!(
            written,
            json!({ "port": 443, "image": { "tag": "007", "pull": true }, "note": "a,b={c}",
                    "labels": { "a.b/c": -5 }, "none": null })
        );
    }

    #[test]
    fn invalid_values_are_named() {
        for (file, expected) in [
            ("- a\n", "web.yaml:1: the file is not a map"),
            ("a: 1\nb: [\n", "web.yaml:"),
            ("text", "web.yaml:1: the file is not a map"),
        ] {
            let error = check_all(&settings(&[], &[file])).unwrap_err().message;
            assert!(error.contains(expected), "{error}");
        }
        for values in [&[("a", "1"), ("a.b", "2")][..], &[("a..b", "1")], &[("", "1")]] {
            let error = check_all(&settings(values, &[])).unwrap_err().message;
            assert!(error.contains("invalid name of a value"), "{error}");
        }
        assert!(check_all(&settings(&[], &["", "# only a comment\n"])).is_ok());
    }
}
