//! Agreed messages about invalid inputs.
use std::{fs, path::Path};

/// Compares the message about an invalid input with its golden file `schemas/bad-input/<name>.txt`:
/// the input, the point of its detection, and the message. `variable` lists parts that differ in
/// each test, with the texts that replace them. `UPDATE_GOLDEN=1` writes the file.
#[track_caller]
pub fn agreed_message(
    name: &str,
    (input, detection): (&str, &str),
    message: &str,
    variable: &[(&str, &str)],
) {
    let mut message = message.trim().to_owned();
    for (from, to) in variable {
        message = message.replace(from, to);
    }
    let text = format!("{input}\n{detection}\n{message}\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/bad-input");
    let path = path.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let agreed = fs::read_to_string(&path).unwrap_or_default();
    let hint = "set UPDATE_GOLDEN=1, then read the diff";
    assert!(agreed == text, "{path:?} is out of date: {hint}\n{text}");
}
