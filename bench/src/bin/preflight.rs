//! Program of `scripts/bench preflight`.
fn main() {
    bench::preflight::main();
}
