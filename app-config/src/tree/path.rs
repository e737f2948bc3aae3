//! Which paths a tree accepts.
use super::TreeError;

/// As long as a ustar header can say without extensions.
const LONGEST: usize = 255;

pub fn check(path: &str) -> Result<(), TreeError> {
    let refuse = |why| Err(TreeError::Path { path: shown(path), why });
    if path.is_empty() {
        return refuse("is empty");
    }
    if path.len() > LONGEST {
        return refuse("is longer than 255 bytes");
    }
    if path.starts_with('/') {
        return refuse("is absolute");
    }
    if path.contains('\\') || path.chars().any(char::is_control) {
        return refuse("holds a backslash or a control character");
    }
    for part in path.split('/') {
        match part {
            "" => return refuse("has an empty part"),
            "." | ".." => return refuse("leaves or repeats its directory (`.` or `..`)"),
            _ => {}
        }
    }
    Ok(())
}

/// A path as an error may print it: one line, not too long.
pub fn shown(path: &str) -> String {
    path.chars().take(120).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
