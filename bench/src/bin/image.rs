//! Program of `scripts/bench image`.
fn main() {
    bench::image::main();
}
