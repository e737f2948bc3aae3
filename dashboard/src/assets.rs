//! Style sheet and scripts, embedded in the program. The URL of an asset contains the digest of its bytes, so a browser
//! can store it forever.
use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// File that pages refer to.
pub struct Asset {
    /// Name without the digest.
    pub name: &'static str,
    /// Value of the header `Content-Type`.
    pub content_type: &'static str,
    /// Content of the file.
    pub bytes: &'static [u8],
    /// Path on the server.
    pub path: String,
}

static ASSETS: LazyLock<[Asset; 9]> = LazyLock::new(|| {
    let script = "text/javascript; charset=utf-8";
    [
        asset("stead.css", "text/css; charset=utf-8", include_bytes!("../assets/stead.css")),
        asset("icon.svg", "image/svg+xml", include_bytes!("../assets/icon.svg")),
        asset("idiomorph.js", script, include_bytes!("../assets/idiomorph-0.8.0.min.js")),
        asset("live.js", script, include_bytes!("../assets/live.js")),
        asset("base.js", script, include_bytes!("../assets/base.js")),
        asset("log.js", script, include_bytes!("../assets/log.js")),
        asset("palette.js", script, include_bytes!("../assets/palette.js")),
        asset("graph.js", script, include_bytes!("../assets/graph.js")),
        asset("login.js", script, include_bytes!("../assets/login.js")),
    ]
});

fn asset(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Asset {
    let digest = hex::encode(Sha256::digest(bytes));
    Asset { name, content_type, bytes, path: format!("/ui/assets/{}-{name}", &digest[..16]) }
}

/// Returns all assets.
#[must_use]
pub fn all() -> &'static [Asset] {
    &*ASSETS
}

/// Path of the asset with this name, or an empty path.
pub(crate) fn path(name: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.name == name).map_or("", |asset| asset.path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendored_script_is_the_published_one() {
        let script = all().iter().find(|asset| asset.name == "idiomorph.js").unwrap();
        let digest = hex::encode(Sha256::digest(script.bytes));
        assert_eq!(digest, "4cbd535caf7663a51eda9bce6595371c384fc430d54b8d414e29a61167f19f96");
    }

    #[test]
    fn own_scripts_have_at_most_600_lines() {
        let is_own = |asset: &&Asset| asset.name.ends_with(".js") && asset.name != "idiomorph.js";
        let own = all().iter().filter(is_own);
        let lines: usize =
            own.map(|asset| asset.bytes.iter().filter(|byte| **byte == b'\n').count()).sum();
        assert!(lines <= 600, "{lines} lines");
    }
}
