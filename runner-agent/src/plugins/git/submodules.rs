//! Addresses of submodules in `.gitmodules`.

/// Returns the address of the submodule at a path, from the output of `git config --null`.
pub(super) fn submodule_url(settings: &[u8], path: &str) -> Option<String> {
    let text = String::from_utf8_lossy(settings);
    let pairs: Vec<(&str, &str)> =
        text.split('\0').filter_map(|setting| setting.split_once('\n')).collect();
    let of_path = |(key, value): &&(&str, &str)| key.ends_with(".path") && *value == path;
    let (key, _) = pairs.iter().find(of_path)?;
    let key = format!("{}.url", key.strip_suffix(".path")?);
    let (_, address) = pairs.iter().find(|(name, _)| *name == key)?;
    Some((*address).to_owned())
}

/// Returns the absolute address of a submodule. An address that starts with `./` or `../` is
/// relative to the address of its repository. `None` for any other path.
pub(super) fn resolve_url(parent: &str, written: &str) -> Option<String> {
    if !written.starts_with("./") && !written.starts_with("../") {
        // `OWNER/NAME` is an address only in an app config. Git interprets it as a path.
        return written.contains(':').then(|| written.to_owned());
    }
    let (mut base, mut rest) = (parent.trim_end_matches('/').to_owned(), written);
    loop {
        if let Some(below) = rest.strip_prefix("./") {
            rest = below;
        } else if let Some(above) = rest.strip_prefix("../") {
            let scheme = base.find("://").map_or(0, |at| at + 3);
            let cut = base.rfind('/').filter(|at| *at > scheme)?;
            base.truncate(cut);
            rest = above;
        } else {
            return Some(format!("{base}/{rest}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_addresses_of_submodules_stay_on_their_server() {
        let parent = "https://host/acme/app";
        let of = |written: &str| resolve_url(parent, written);
        assert_eq!(of("../lib.git").as_deref(), Some("https://host/acme/lib.git"));
        assert_eq!(of("./lib").as_deref(), Some("https://host/acme/app/lib"));
        assert_eq!(of("../../x/y").as_deref(), Some("https://host/x/y"));
        assert_eq!(of("../../../x"), None);
        assert_eq!(of("libs/common"), None);
        assert_eq!(of("/srv/git/x"), None);
        let short = resolve_url("git@host:acme/app", "../lib");
        assert_eq!(short.as_deref(), Some("git@host:acme/lib"));
        assert_eq!(of("file:///etc").as_deref(), Some("file:///etc"));
    }

    #[test]
    fn the_address_of_a_submodule_has_the_name_of_its_path() {
        let settings =
            b"submodule.a.b.path\nlib/a\0submodule.a.b.url\n../a\0submodule.c.path\nlib/c\0";
        assert_eq!(submodule_url(settings, "lib/a").as_deref(), Some("../a"));
        assert_eq!(submodule_url(settings, "lib/c"), None);
    }
}
