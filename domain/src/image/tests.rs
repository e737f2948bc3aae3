use super::*;

fn complete(name: &str, tag: &str) -> String {
    ImageReference::new(name, tag).unwrap().to_string()
}

#[test]
fn short_names_are_images_of_docker_hub() {
    assert_eq!(complete("nginx", "1.29"), "docker.io/library/nginx:1.29");
    assert_eq!(complete("altinity/x", "1"), "docker.io/altinity/x:1");
    assert_eq!(complete("docker.io/nginx", "1"), "docker.io/library/nginx:1");
    assert_eq!(complete("index.docker.io/a/b", "1"), "docker.io/a/b:1");
    assert_eq!(
        complete("gcr.io/google-samples/hello-app", "1.0"),
        "gcr.io/google-samples/hello-app:1.0"
    );
    assert_eq!(complete("localhost/x", "1"), "localhost/x:1");
    assert_eq!(complete("127.0.0.1:5000/x", "1"), "127.0.0.1:5000/x:1");
}

#[test]
fn a_tag_can_contain_or_be_a_digest() {
    let digest = format!("sha256:{}", "a".repeat(64));
    let pinned = ImageReference::new("nginx", &digest).unwrap();
    assert_eq!((pinned.tag(), pinned.digest().unwrap().to_string()), (None, digest.clone()));
    let both = ImageReference::new("nginx", &format!("1.29@{digest}")).unwrap();
    assert_eq!((both.tag(), both.digest().is_some()), (Some("1.29"), true));
    for reference in [&pinned, &both] {
        assert_eq!(&reference.to_string().parse::<ImageReference>().unwrap(), reference);
    }
    let latest: ImageReference = "127.0.0.1:5000/x".parse().unwrap();
    assert_eq!(latest.to_string(), "127.0.0.1:5000/x:latest");
}

#[test]
fn invalid_references_name_the_invalid_part() {
    use ImageReferenceError::{Name, Scheme, Tag, Tagged};
    let error = |name: &str, tag: &str| ImageReference::new(name, tag).unwrap_err();
    for name in ["", "/x", "a//b", "UPPER", "a/../b", "-a", "a_", "a___b", "host.example/", "a b/c"]
    {
        assert_eq!(error(name, "1"), Name(name.into()), "{name}");
    }
    assert_eq!(error("https://ghcr.io/a/b", "1"), Scheme("https://ghcr.io/a/b".into()));
    assert_eq!(error("nginx:1", "1"), Tagged("nginx:1".into()));
    assert_eq!(error("host.example:99999/x", "1"), Name("host.example:99999/x".into()));
    for tag in ["", "-x", "a b", "{{ .nuon.x }}", "1@sha256:abc", "@sha256:abc", &"a".repeat(129)] {
        assert_eq!(error("nginx", tag), Tag(tag.into()), "{tag}");
    }
}

#[test]
fn a_platform_accepts_images_that_run_on_it() {
    let platform = |text: &str| text.parse::<Platform>().unwrap();
    let accepts = |wanted: &str, other: &str| platform(wanted).accepts(&platform(other));
    assert!(accepts("linux/amd64", "linux/amd64"));
    assert!(accepts("linux/arm64", "linux/arm64/v8") && accepts("linux/arm64/v8", "linux/arm64"));
    assert!(accepts("linux/arm", "linux/arm/v7"));
    assert!(!accepts("linux/arm/v7", "linux/arm/v6") && !accepts("linux/arm/v7", "linux/arm"));
    assert!(!accepts("linux/amd64", "windows/amd64"));
    for invalid in ["", "linux", "linux/", "/amd64", "linux/amd64/", "Linux/amd64", "a/b/c/d"] {
        assert_eq!(invalid.parse::<Platform>(), Err(ImageReferenceError::Platform(invalid.into())));
    }
}
