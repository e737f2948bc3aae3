//! `stead-plugin-helm_chart`: the plugin of the component type `helm_chart`.
//!
//! A component is a release of Helm. The plugin renders its chart once, packs the result as a static
//! chart, and lets Helm execute exactly that chart.
//!
//! | module | content |
//! |---|---|
//! | `settings`, `values`, `chart` | inputs, and the static chart |
//! | `helm`, `version`, `access` | the executable and the cluster |
//! | `render`, `release`, `current`, `objects`, `definitions` | rendered and stored releases, and their objects |
//! | `decide`, `owner`, `distinct`, `size` | rules |
//! | `hooks`, `former_hooks` | hooks, and the objects that they leave |
//! | `plan`, `destroy`, `summary`, `details`, `plan_file` | plans |
//! | `build`, `dependencies` | the artifact of a chart |
//! | `apply`, `keep`, `progress`, `removal` | execution of exactly that plan |

mod access;
mod apply;
mod build;
mod calls;
mod chart;
mod check;
mod current;
mod decide;
mod definitions;
mod dependencies;
mod destroy;
mod details;
mod distinct;
mod former_hooks;
mod helm;
mod hooks;
mod keep;
mod objects;
mod owner;
mod plan;
mod plan_file;
mod progress;
mod release;
mod removal;
mod render;
mod repositories;
mod settings;
mod size;
mod summary;
mod values;
mod version;

fn main() -> std::io::Result<()> {
    calls::serve()
}
