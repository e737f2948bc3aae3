//! Reads the outputs of a script: lines of `name=value` and JSON objects, in any mixture. The last
//! value of a name wins.

use std::{fs::OpenOptions, io::Read, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::fcntl::OFlag;
use serde_json::{Map, Value};

/// Largest output file in bytes.
const LIMIT: u64 = 256 * 1024;

pub(super) fn read(path: &Path) -> Result<Map<String, Value>, String> {
    let mut bytes = Vec::new();
    // The script can replace its file. A link would name a file that only the runner may read, and
    // the open of a pipe would wait for a writer.
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|_| "the output file is missing, or a link".to_owned())?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("the output file is not a regular file".to_owned());
    }
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > LIMIT {
        return Err(format!("the output file is larger than {LIMIT} bytes"));
    }
    parse(&String::from_utf8(bytes).map_err(|_| "the output file is not UTF-8".to_owned())?)
}

fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let mut outputs = Map::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let line = text.len() - rest.len();
        let line = text[..line].lines().count() + usize::from(text[..line].ends_with('\n'));
        if rest.starts_with('{') {
            let mut objects = serde_json::Deserializer::from_str(rest).into_iter();
            match objects.next() {
                Some(Ok(Value::Object(object))) => outputs.extend(object),
                _ => return Err(format!("line {} begins an invalid JSON object", line.max(1))),
            }
            rest = rest[objects.byte_offset()..].trim_start();
            continue;
        }
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let (name, value) = first
            .split_once('=')
            .filter(|(name, _)| !name.trim().is_empty())
            .ok_or_else(|| format!("line {} is neither name=value nor JSON", line.max(1)))?;
        outputs.insert(name.trim().into(), Value::String(value.trim_end_matches('\r').into()));
        rest = after.trim_start();
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_and_objects_are_merged_in_order() {
        let text = "a=1\nurl=http://x/?y=z\r\n{\"b\": {\"c\": [1]},\n \"a\": 2}\n\n{\"d\":true}{\"e\":1}\n";
        let expected =
            json!({ "a": 2, "url": "http://x/?y=z", "b": { "c": [1] }, "d": true, "e": 1 });
        assert_eq!(Value::Object(parse(text).unwrap()), expected);
        assert_eq!(parse("").unwrap(), Map::new());
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (other, output) = (dir.path().join("other"), dir.path().join("output"));
        std::fs::write(&other, "a=1\n").unwrap();
        assert_eq!(Value::Object(read(&other).unwrap()), json!({ "a": "1" }));
        std::os::unix::fs::symlink(&other, &output).unwrap();
        assert_eq!(read(&output).unwrap_err(), "the output file is missing, or a link");
        std::fs::remove_file(&output).unwrap();
        nix::unistd::mkfifo(&output, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read(&output).unwrap_err(), "the output file is not a regular file");
    }

    #[test]
    fn an_invalid_line_is_rejected_with_its_number() {
        assert_eq!(parse("a=1\nhello\n").unwrap_err(), "line 2 is neither name=value nor JSON");
        assert_eq!(parse("=1").unwrap_err(), "line 1 is neither name=value nor JSON");
        assert_eq!(parse("a=1\n{b}").unwrap_err(), "line 2 begins an invalid JSON object");
    }
}
