use super::*;

fn refusal(text: &str) -> String {
    parse(text, "m.yaml").unwrap_err().message
}

const TWO: &str = "# first\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n---\n\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: shop}\n---\n";

#[test]
fn documents_keep_their_lines() {
    let parsed = parse(TWO, "m.yaml").unwrap();
    let places: Vec<_> = parsed.iter().map(|one| one.place.as_str()).collect();
    assert_eq!(places, ["m.yaml:2", "m.yaml:8"]);
    assert_eq!(parsed[1].reference.to_string(), "ConfigMap shop/b");
}

#[test]
fn list_becomes_its_items() {
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  \
                metadata: {name: a}\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: b}\n";
    assert_eq!(parse(list, "m").unwrap().len(), 2);
}

#[test]
fn numbers_and_texts_are_read_as_kubectl_reads_them() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nmode: 0644\n\
                on: on\nport: 80\ntext: |\n  --- x\n  y\n";
    let object = &parse(text, "m").unwrap()[0].object;
    assert_eq!(object["mode"], 420);
    assert_eq!(object["on"], "on");
    assert_eq!(object["port"], 80);
    assert_eq!(object["text"], "--- x\ny\n");
}

#[test]
fn texts_of_secrets_are_encoded() {
    let text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n\
                data: {a: YQ==, b: YQ==}\nstringData: {b: x}\n";
    let object = &parse(text, "m").unwrap()[0].object;
    assert_eq!(object["data"], serde_json::json!({ "a": "YQ==", "b": "eA==" }));
    assert!(object.get("stringData").is_none());
}

#[test]
fn ports_of_builtin_kinds_have_a_protocol() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n\
                spec: {ports: [{port: 80}, {port: 53, protocol: UDP}]}\n";
    let ports = |text: &str| parse(text, "m").unwrap()[0].object["spec"]["ports"].clone();
    let expected = serde_json::json!([
        { "port": 80, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" } ]);
    assert_eq!(ports(text), expected);
    let custom = text.replace("apiVersion: v1", "apiVersion: example.dev/v1");
    assert_eq!(ports(&custom)[0], serde_json::json!({ "port": 80 }));
}

#[test]
fn invalid_documents_are_named_with_their_lines() {
    let text = format!("{TWO}kind: ConfigMap\nmetadata: {{name: a}}\n---\na: [1\n");
    let message = refusal(&text);
    assert!(message.contains("m.yaml:12: the object has no apiVersion"), "{message}");
    assert!(message.contains("m.yaml:15: ") || message.contains("m.yaml:16: "), "{message}");
}

#[test]
fn object_without_a_name_is_rejected() {
    let message = refusal("apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n");
    assert!(message.contains("m.yaml:1: the Pod has no metadata.name"), "{message}");
    assert!(message.contains("generateName is not supported"), "{message}");
}

#[test]
fn same_object_twice_is_rejected_with_both_lines() {
    let text = format!("{TWO}{TWO}");
    let message = refusal(&text);
    assert!(message.contains("m.yaml:13: ConfigMap a is also at m.yaml:2"), "{message}");
}

#[test]
fn exported_object_is_rejected() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, resourceVersion: \"7\"}\n";
    assert!(refusal(text).contains("remove it"));
}

/// Document whose aliases repeat `10^depth` values.
fn expanding(depth: usize) -> String {
    let mut text = String::from(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NAME}\n\
         a: &a [x, x, x, x, x, x, x, x, x, x]\n",
    );
    for (last, next) in ('a'..'h').zip('b'..='h').take(depth) {
        let list = format!("*{last}, ").repeat(10);
        text += &format!("{next}: &{next} [{}]\n", list.trim_end_matches(", "));
    }
    text
}

#[test]
fn expanding_aliases_are_bounded() {
    assert!(parse(&expanding(2), "m.yaml").is_ok());
    let message = refusal(&expanding(7));
    assert!(message.contains("alias"), "{message}");
    // Each document is below the limit, and all together are not.
    let one = |at: usize| format!("{}---\n", expanding(3).replace("NAME", &format!("n{at}")));
    let message = refusal(&(0..500).map(one).collect::<String>());
    assert!(message.contains("m.yaml: too many values: more than 500000"), "{message}");
}

#[test]
fn documents_are_counted_before_they_are_parsed() {
    let message = refusal(&"a: [\n---\n".repeat(MAX_OBJECTS + 1));
    assert!(message.contains("too many objects: 2001, limit 2000"), "{message}");
}

#[test]
fn names_that_change_a_url_are_rejected() {
    let of = |api_version: &str, name: &str, namespace: &str| {
        let metadata = format!("{{name: '{name}', namespace: '{namespace}'}}");
        parse(&format!("apiVersion: {api_version}\nkind: Pod\nmetadata: {metadata}\n"), "m")
    };
    assert!(of("apps/v1", "system:web.v1_a", "shop").is_ok());
    for name in ["web?force=true&x=", "web#", "a/b", "a%2e", "..", &"a".repeat(254)] {
        let message = of("v1", name, "shop").unwrap_err().message;
        assert!(message.contains("m:1: the Pod has an invalid name"), "{message}");
        assert!(of("v1", "web", name).is_err(), "{name}");
    }
    for api_version in ["apps/v1/x", "v1?a", "../v1", "apps/"] {
        let message = of(api_version, "web", "shop").unwrap_err().message;
        assert!(message.contains("invalid apiVersion"), "{message}");
    }
}
