//! Program of `scripts/bench dashboard`.
fn main() {
    bench::dashboard::main();
}
