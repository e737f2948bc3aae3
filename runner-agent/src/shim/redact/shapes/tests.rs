use super::super::{HeldBack, Redactor};

fn shown(lines: &[&str]) -> String {
    let (redactor, mut held_back) = (Redactor::default(), HeldBack::default());
    let mut all = Vec::new();
    for line in lines {
        all.extend(redactor.line(&mut held_back, line.as_bytes(), false));
    }
    all.extend(redactor.flush(&mut held_back));
    String::from_utf8(all).unwrap()
}

/// Returns a token that is built at run time, so that no secret scanner reports this file.
fn token(prefix: &str, of: char, times: usize) -> String {
    format!("{prefix}{}", String::from(of).repeat(times))
}

#[test]
fn a_credential_is_recognized_by_its_format() {
    let secret = "x".repeat(40);
    for (unredacted, clean) in [
        (token("ghp_", 'a', 36), "[redacted]".to_owned()),
        (token("glpat-", 'b', 20), "[redacted]".to_owned()),
        (token("stead_", 'f', 43), "[redacted]".to_owned()),
        (token("stead_enrol_01ARZ3NDEKTSV4RRFFQ69G5FAV_", 'f', 43), "[redacted]".to_owned()),
        (
            token("eyJ", 'c', 20) + &token(".eyJ", 'd', 20) + &token(".", 'e', 43),
            "[redacted]".into(),
        ),
        (
            format!(r#""SecretAccessKey": "{secret}","#),
            r#""SecretAccessKey": "[redacted]","#.into(),
        ),
        (format!("AWS_SECRET_ACCESS_KEY={secret}"), "AWS_SECRET_ACCESS_KEY=[redacted]".into()),
    ] {
        assert_eq!(shown(&[&format!("at {unredacted} end")]), format!("at {clean} end\n"));
        assert_eq!(Redactor::default().text(&unredacted), clean);
    }
    // Values for other components are redacted by exact match only.
    let output = serde_json::json!(token("ghp_", 'a', 36));
    assert_eq!(Redactor::default().value(output.clone()), output);
    for plain in [
        "ghp_short",
        "eyJ.eyJ.x",
        "stead_owner and stead_runner",
        "secret_access_key = var.key",
        &"f".repeat(64),
    ] {
        assert_eq!(shown(&[plain]), format!("{plain}\n"));
    }
}

#[test]
fn a_private_key_is_redacted_to_its_last_line() {
    let (begin, end) = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----");
    let body = "MIIEpAIBAAKCAQEA1c7bhYu7XyZk";
    let lines = ["a", begin, body, "Qg==", end, "MIIEafter the key"];
    let hidden = "[redacted]\n".repeat(4);
    assert_eq!(shown(&lines), format!("a\n{hidden}MIIEafter the key\n"));
    let lines = [format!("  | {begin}"), format!("  | {body}"), format!("  | {end}"), "b".into()];
    let lines = lines.each_ref().map(String::as_str);
    assert_eq!(shown(&lines), "  | [redacted]\n[redacted]\n[redacted]\nb\n");
    let one = format!(r#"{{"key":"{begin}\n{body}\n{end}\n"}}"#);
    assert_eq!(shown(&[&one]), "{\"key\":\"[redacted]\\n\"}\n");
    let prose = [begin, "begins a key, as in any documentation.", body];
    assert_eq!(shown(&prose), format!("[redacted]\n{}\n{body}\n", prose[1]));
}

#[test]
fn a_private_key_is_redacted_with_joined_and_quoted_lines() {
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    let (body, last) = ("MIIEpAIBAAKCAQEA1c7bhYu7XyZk", "kZyX7uYhb7c1AEQACKAABIApEIIM");
    let certificate = format!("-----END CERTIFICATE-----{begin}");
    let lines = ["MIIC", &certificate, body, end, "after"];
    let shown_certificate = "MIIC\n-----END CERTIFICATE-----[redacted]\n";
    assert_eq!(shown(&lines), format!("{shown_certificate}[redacted]\n[redacted]\nafter\n"));
    let joined = format!("{end}{begin}");
    let clean = shown(&[begin, body, &joined, last, end, "after"]);
    assert!(!clean.contains(body) && !clean.contains(last), "{clean}");
    assert!(clean.ends_with("\nafter\n"), "{clean}");
    for (before, after) in [
        ("  \"", "\","),
        ("- '", "'"),
        ("\"", "\\n\","),
        ("\x1b[32m", "\x1b[0m"),
        ("\x1b[2m  | \x1b[0m", "\x1b[0m\r"),
        // Concatenated strings of a program or a shell, and a line of a JSON logger.
        ("  \"", "\" +"),
        ("echo ", " \\"),
        ("", " \\"),
        (r#"{"log":""#, r#"\n","stream":"stdout","time":"2026-11-21T09:00:00.1Z"}"#),
        ("\x1b[2mapi-1  |\x1b[0m \"", "\\n\" +\x1b[0m"),
    ] {
        let quoted = |line: &str| format!("{before}{line}{after}");
        let lines = [begin, body, last, "Qg==", end].map(quoted);
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.push("after");
        let clean = shown(&lines);
        assert!(!clean.contains(body) && !clean.contains(last), "{clean}");
        assert!(!clean.contains("Qg==") && clean.ends_with("\nafter\n"), "{clean}");
    }
    // A log that only mentions a key is shown, even if each of its lines contains a hash or a name.
    for text in [
        format!(r#"{{"log":"pulled","id":"{}"}}"#, "0a".repeat(32)),
        r#"{"log":"made it","id":"01JD2V8Z7M5Q4X9T3B6N1C0K8R"}"#.to_owned(),
        "module.network.PrivateSubnetAssociations was made".to_owned(),
        "wrote /home/runner/work/project/modules/network/src/main.rs in 3 s".to_owned(),
        r#"level=info job="7" msg="pulled it" url=https://example.com/?key=1&tab=2 ok"#.to_owned(),
    ] {
        assert_eq!(shown(&[begin, &text]), format!("[redacted]\n{text}\n"));
    }
}

#[test]
fn a_credential_is_found_at_any_cut_of_a_long_line() {
    let (begin, end) = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----");
    let (token, body) = (token("ghp_", 'a', 36), "MIIEpAIBAAKCAQEA1c7bhYu7XyZk");
    // Padding that is longer than the held-back part of a line, so that the redactor shows some
    // text at the cut.
    let far = " far".repeat(4096);
    let text = format!("{far} {token} {begin}\\n{body}\\n{far}{end} after {token} {far}");
    let starts = [text.find(&token), text.find(begin), text.find(end), text.rfind(&token)];
    for start in starts.map(Option::unwrap) {
        for at in (start - 20)..(start + 60) {
            // The part that is shown first ends near this offset.
            let at = at + super::super::MIN_HELD_BACK_BYTES;
            let (first, second) = text.as_bytes().split_at(at.min(text.len()));
            let (redactor, mut held_back) = (Redactor::default(), HeldBack::default());
            let mut all = redactor.line(&mut held_back, first, true);
            all.extend(redactor.line(&mut held_back, second, false));
            let all = String::from_utf8(all).unwrap();
            assert!(!all.contains("ghp_") && !all.contains(body), "{at}");
            assert!(!all.contains("aaaaaaaa") && !all.contains("PRIVATE"), "{at}");
            assert!(all.contains(" after [redacted]  far"), "{at}");
            assert!(all.ends_with(" far\n"), "{at}");
        }
    }
}
