//! `stead-plugin-kubernetes_manifest`: the plugin of the component type `kubernetes_manifest`.
use stead_plugin_kubernetes::calls;

fn main() -> std::io::Result<()> {
    calls::serve()
}
