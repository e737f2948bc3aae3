use super::TreeError;

/// Maximum length of a path in a ustar header without extensions.
const MAX_LENGTH: usize = 255;

pub fn check(path: &str) -> Result<(), TreeError> {
    let refuse = |why| Err(TreeError::Path { path: shown(path), why });
    if path.is_empty() {
        return refuse("it is empty");
    }
    if path.len() > MAX_LENGTH {
        return refuse("it is longer than 255 bytes");
    }
    if path.starts_with('/') {
        return refuse("it is absolute");
    }
    if path.contains('\\') || path.chars().any(char::is_control) {
        return refuse("it contains a backslash or a control character");
    }
    for part in path.split('/') {
        match part {
            "" => return refuse("it has an empty part"),
            "." | ".." => return refuse("it contains `.` or `..`"),
            _ => {}
        }
    }
    Ok(())
}

/// Formats a path for an error: on one line, and shortened.
pub fn shown(path: &str) -> String {
    path.chars().take(120).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
