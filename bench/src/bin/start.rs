//! Program of `scripts/bench start`.
fn main() {
    bench::start::main();
}
