//! Size of a release in the storage of Helm, which is one object of the cluster.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use stead_plugin_kubernetes::failure::{Failure, IoContext, Outcome};

use crate::{chart::StaticChart, settings::ReleaseRef};

/// Largest data of a Secret or a ConfigMap in bytes.
const LIMIT: usize = 1 << 20;

/// Refuses a release that Helm cannot store. Otherwise it would fail after its first changes.
pub fn check(release: &ReleaseRef, content: &StaticChart) -> Outcome<()> {
    let manifest: Vec<String> = content.documents().collect();
    let stored = json!({ "manifest": manifest.join("\n---\n"), "chart": content.stored() });
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    let packed = writer.write_all(stored.to_string().as_bytes()).and_then(|()| writer.finish());
    let size = packed.context(|| "compress the release".into())?.len().div_ceil(3) * 4;
    match size <= LIMIT {
        true => Ok(()),
        false => Err(Failure::refused(format!(
            "{release} is too large: Helm would store about {size} bytes in one object, which may \
             have {LIMIT}; split the chart into several components"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{release::Release, settings::StorageDriver};

    fn checked(data: &str) -> Outcome<()> {
        let manifest = format!("---\nkind: A\ndata: {data}\n");
        let content = StaticChart::pack(&Release { manifest, ..Release::default() }, &[]);
        let driver = StorageDriver::Secret;
        check(&ReleaseRef { namespace: "a".into(), name: "b".into(), driver }, &content)
    }

    #[test]
    fn only_the_compressed_size_counts() {
        assert!(checked(&"a".repeat(4 << 20)).is_ok());
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
        };
        let text: String = (0..2 << 20).map(|_| random()).collect();
        assert!(checked(&text).unwrap_err().message.contains("too large"));
    }
}
